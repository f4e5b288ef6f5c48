"""Schema versions: each file says which version of its layout it holds; a newer one than ours is refused."""

from pathlib import Path

SCHEMA_VERSION = 1


class NewerSchema(ValueError):
    """The file was written by a newer t1core than this one."""


def check_version(found: object, *, path: Path) -> int:
    """The version as a number. NewerSchema above ours, ValueError where it is absent or not positive."""
    try:
        version = int(str(found))
    except ValueError:
        version = 0
    if version < 1:
        raise ValueError(
            f"{path}: schema_version is {found!r}; this file was not written by t1core or is damaged"
        )
    if version > SCHEMA_VERSION:
        raise NewerSchema(
            f"{path}: schema_version {version} is newer than {SCHEMA_VERSION}, the newest this t1core reads; "
            "update t1core to open this run"
        )
    return version
