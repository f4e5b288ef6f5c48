"""The runtime: a relocatable Python with pytest and pytest-json-ctrf that boxes and graders share, read-only.

Boxes run as another uid and see neither a private home nor this environment, so they get a copy of the
interpreter: keyed by its content, world-readable, built once under a temporary name and renamed into place.
It works with `-I` from any path, and is bound into every box at `BOX_PREFIX`.
"""

import fcntl
import hashlib
import importlib.metadata
import os
import platform
import py_compile
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

import t1core

BOX_PREFIX = "/opt/t1"
_LAYOUT = "2"
_PACKAGES = ("pytest", "pluggy", "iniconfig", "packaging", "pygments", "pytest-json-ctrf")
_PRUNED = {
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "ensurepip",
    "lib2to3",
    "site-packages",
    "dist-packages",
    "__pycache__",
    "pydoc_data",
    "__phello__",
    "_pyrepl",
}
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def state_root() -> Path:
    """Where runtimes and boxes live: a place another uid can reach. T1CORE_STATE_DIR overrides."""
    if chosen := os.environ.get("T1CORE_STATE_DIR"):
        return Path(chosen)
    if os.geteuid() == 0:
        return Path("/var/lib/t1core")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "t1core"


def ensure_runtime() -> Path:
    """Path of the runtime, built if it is not there yet (a few CPU seconds, once a machine and interpreter).

    Raises ValueError when T1CORE_RUNTIME_DIR or the interpreter cannot serve, and when the copied pytest does not
    start; a runtime that does not work is not kept.
    """
    chosen = os.environ.get("T1CORE_RUNTIME_DIR")
    target = Path(chosen) if chosen else state_root() / f"runtime-{runtime_key()}"
    if (target / "bin" / "python3").exists():
        return target
    reachable_directory(target.parent)
    with open(target.parent / f".{target.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "bin" / "python3").exists():
            building = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
            try:
                _build(building)
                os.rename(building, target)
            finally:
                shutil.rmtree(building, ignore_errors=True)
    return target


def runtime_key() -> str:
    """Sixteen hex digits that change when the interpreter or a package does."""
    library = Path(sys.base_prefix, "bin", f"python{_VERSION}").resolve()
    stamp = library.stat() if library.exists() else Path(sys.executable).resolve().stat()
    parts = [
        _LAYOUT,
        sys.version,
        platform.machine(),
        sys.base_prefix,
        str(stamp.st_size),
        str(stamp.st_mtime_ns),
    ]
    parts += [f"{name}=={importlib.metadata.version(name)}" for name in _PACKAGES]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def install_payload(runtime: Path, modules: Sequence[str]) -> str:
    """Compile `t1core` modules into the runtime; returns the payload's directory relative to it.

    A payload is what runs under the runtime's Python without this package's environment: the box's control
    process, the graders' fork server. Keyed by content, so that an edited module makes a new payload.
    """
    top = Path(t1core.__file__).parent
    sources = {}
    for module in modules:
        *parents, name = module.split(".")[1:]
        for depth in range(len(parents) + 1):
            sources[Path(*parents[:depth], "__init__.py")] = None
        sources[Path(*parents, f"{name}.py")] = None
    texts = {path: (top / path).read_bytes() for path in sources}
    digest = hashlib.sha256(
        b"".join(str(path).encode() + b"\0" + text for path, text in sorted(texts.items()))
    )
    relative = f"payload/{digest.hexdigest()[:16]}"
    target = runtime / relative
    if target.exists():
        return relative
    reachable_directory(target.parent)
    building = Path(tempfile.mkdtemp(prefix=".building.", dir=target.parent))
    for path in texts:
        compiled = building / "t1core" / path.with_suffix(".pyc")
        compiled.parent.mkdir(parents=True, exist_ok=True)
        py_compile.compile(
            str(top / path),
            str(compiled),
            dfile=f"t1core/{path}",
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    _open_to_all(building)
    try:
        os.rename(building, target)
    except OSError:  # another process was first, with the same content
        shutil.rmtree(building, ignore_errors=True)
    return relative


def payload_argv(runtime: str, payload: str, module: str, *args: str) -> list[str]:
    """Command line that runs `module`'s `main()` from a payload with the runtime's Python at path
    `runtime`."""
    code = f"import sys; sys.path.insert(0, {runtime + '/' + payload!r}); from {module} import main; main()"
    return [f"{runtime}/bin/python3", "-I", "-S", "-E", "-c", code, *args]


def reachable_directory(path: Path) -> Path:
    """Create `path` so that other uids can pass through the directories made here."""
    for directory in reversed([path, *path.parents]):
        if not directory.exists():
            directory.mkdir(exist_ok=True)
            directory.chmod(0o755)
    return path


def _build(target: Path) -> None:
    base, stdlib = Path(sys.base_prefix), Path(sysconfig.get_path("stdlib"))
    python = base / "bin" / f"python{_VERSION}"
    if not python.exists():
        raise ValueError(f"no {python}: the runtime is a copy of this environment's base interpreter")
    (target / "bin").mkdir(parents=True)
    (target / "lib").mkdir()
    shutil.copy(python.resolve(), target / "bin" / f"python{_VERSION}")
    for alias in ("python3", "python"):
        (target / "bin" / alias).symlink_to(f"python{_VERSION}")
    for library in sorted((base / "lib").glob(f"libpython{_VERSION}*.so*")):
        shutil.copy(library, target / "lib" / library.name, follow_symlinks=False)
    library = target / "lib" / f"python{_VERSION}"

    def pruned(directory: str, names: list[str]) -> set[str]:
        return {name for name in names if name in _PRUNED or name.startswith(f"config-{_VERSION}")}

    shutil.copytree(stdlib, library, symlinks=True, ignore=pruned)
    dynamic = Path(sysconfig.get_path("platstdlib"), "lib-dynload")
    if not (library / "lib-dynload").exists() and dynamic.exists():
        shutil.copytree(dynamic, library / "lib-dynload")
    site = library / "site-packages"
    site.mkdir()
    for package in _PACKAGES:
        for file in importlib.metadata.files(package) or ():
            if file.parts[0] != ".." and "__pycache__" not in file.parts:
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file.locate(), site / file)
    (target / "pytest.ini").write_text("[pytest]\n")
    pytest = target / "bin" / "pytest"
    pytest.write_text(f'#!/bin/sh\nexec {BOX_PREFIX}/bin/python3 -I -m pytest "$@"\n')
    pytest.chmod(0o755)
    for binary in [target / "bin" / f"python{_VERSION}", *(library / "lib-dynload").glob("*.so")]:
        _relocate(binary, base / "lib")
    _open_to_all(target)
    _check_pytest(target)
    python_argv = [str(target / "bin" / "python3"), "-I", "-S", "-m", "compileall", "-q"]
    done = subprocess.run(
        [*python_argv, "--invalidation-mode", "unchecked-hash", str(library)],
        capture_output=True,
        text=True,
        env={"PATH": os.defpath},
    )
    if done.returncode != 0:
        raise ValueError(
            f"the copied interpreter in {target} does not run: {(done.stdout + done.stderr)[-500:]}"
        )
    _open_to_all(target)


def _check_pytest(target: Path) -> None:
    """ValueError when the copied pytest does not start with its reports: a package may lack files that it lists, which
    `importlib.metadata.files` leaves out."""
    asked = [str(target / "bin" / "python3"), "-I", "-B", "-m", "pytest", "--help"]
    done = subprocess.run(
        asked, capture_output=True, text=True, env={"PATH": os.defpath}, cwd=target, check=False
    )
    if done.returncode != 0 or "--ctrf" not in done.stdout:
        said = (done.stderr.strip() or "its help has no --ctrf").splitlines()[-1]
        raise ValueError(
            f"the runtime's pytest does not work: {said[-300:]}; install these whole, here in "
            f"{sys.prefix}: {', '.join(_PACKAGES)}"
        )


def _relocate(binary: Path, library_dir: Path) -> None:
    """Point an absolute library search path at the copy, in place: the new path is shorter, the rest
    becomes NULs."""
    old, new = os.fsencode(library_dir), b"$ORIGIN/../lib"
    data = binary.read_bytes()
    if b"\0" + old + b"\0" in data and len(old) >= len(new):
        binary.write_bytes(data.replace(b"\0" + old + b"\0", b"\0" + new.ljust(len(old), b"\0") + b"\0"))


def _open_to_all(tree: Path) -> None:
    """Readable and searchable by every uid, writable by the owner only."""
    for directory, _, names in os.walk(tree):
        os.chmod(directory, 0o755)
        for name in names:
            path = os.path.join(directory, name)
            if not os.path.islink(path):
                os.chmod(path, 0o755 if os.stat(path).st_mode & 0o100 else 0o644)
