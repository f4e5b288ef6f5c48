"""Copying a box's directories into another box: one process packs them to its stdout, the other unpacks its stdin.

    pack directory ...     an archive of the directories below the root
    unpack directory ...   the directories emptied, then the archive, at the root

With our own interpreter, so that neither an image nor an agent has a say in it. What cannot be read, made or named is
left out, and the exit code is then 1. Stretches of zeros are left as holes.
"""

import os
import shutil
import sys
import tarfile
from collections.abc import Iterator

PIECE_BYTES = 1 << 20


def entries(tops: list[str]) -> Iterator[str]:
    """Every path below the directories, a directory before what is in it; links are not followed."""
    for top in tops:
        yield top
        for directory, inside, files in os.walk(top):
            for name in (*inside, *files):
                yield f"{directory}/{name}"


def pack(tops: list[str]) -> bool:
    """Write the archive to stdout; whether it is whole."""
    is_whole = True
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.GNU_FORMAT) as archive:
        for path in entries(tops):
            try:
                archive.add(path, arcname=path.lstrip("/"), recursive=False)
            except OSError:
                is_whole = False
    return is_whole


def unpack(tops: list[str]) -> bool:
    """Empty the directories and fill them from stdin; whether all could be made."""
    for top in tops:
        with os.scandir(top) as found:
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    os.unlink(entry.path)
    is_whole = True
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
        for member in archive:
            try:
                if member.isreg():
                    _write(archive, member)
                else:
                    archive.extract(member, "/", filter="fully_trusted")
            except (OSError, KeyError):  # KeyError: a hard link to what is not there
                is_whole = False
    return is_whole


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    path = f"/{member.name}"
    content = archive.extractfile(member)
    assert content is not None
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        while piece := content.read(PIECE_BYTES):
            if piece.count(0) == len(piece):
                file.seek(len(piece), os.SEEK_CUR)
            else:
                file.write(piece)
        file.truncate()
    os.chmod(path, member.mode & 0o7777)


def main() -> None:
    """argv: pack or unpack, and the directories."""
    what, *tops = sys.argv[1:]
    os.chdir("/")
    sys.exit(0 if {"pack": pack, "unpack": unpack}[what](tops) else 1)
