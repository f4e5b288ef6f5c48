"""An unpacked image, small enough for a test: a few programs of the host and the libraries they need."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from t1core.sandbox.runtime import ensure_runtime

PROGRAMS = (
    "bash",
    "tmux",
    "cat",
    "chmod",
    "dirname",
    "echo",
    "env",
    "ls",
    "mkdir",
    "sleep",
    "touch",
    "rm",
    "mv",
    "ln",
    "cp",
)


def make_image(root: Path) -> Path:
    """Fill a new directory: /usr with PROGRAMS and a marker, /app with a file, the links of a merged /usr."""
    (root / "usr/bin").mkdir(parents=True)
    for name in ("bin", "lib", "lib64"):
        (root / "usr" / name).mkdir(exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    wanted = [Path(shutil.which(name, path="/usr/bin:/bin")) for name in PROGRAMS]
    runtime = ensure_runtime()
    libraries = [*wanted, runtime / "bin/python3", *(runtime / "lib").rglob("*.so")]
    for program in wanted:
        shutil.copy(program, root / "usr/bin" / program.name)
    listed = subprocess.run(["ldd", *map(str, libraries)], capture_output=True, text=True).stdout
    for path in sorted(set(re.findall(r"(?:=> |^\s+)(/\S+)", listed, re.MULTILINE))):
        if not path.startswith(str(runtime)):
            place = (
                root / os.path.relpath(os.path.realpath(os.path.dirname(path)), "/") / os.path.basename(path)
            )
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
    for terminfo in (Path("/usr/share/terminfo"), Path("/lib/terminfo"), Path("/etc/terminfo")):
        for entry in ("s/screen-256color", "x/xterm-256color", "s/screen", "d/dumb"):
            if (terminfo / entry).is_file():
                place = root / "usr/share/terminfo" / entry
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(terminfo / entry, place)
    shutil.copytree("/usr/lib/locale/C.utf8", root / "usr/lib/locale/C.utf8")  # tmux will not start without
    (root / "usr/share/marker").write_text("image\n")
    (root / "app").mkdir()
    (root / "app/given.txt").write_text("given\n")
    for path in [root, *root.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    return root
