"""Boxes by bubblewrap over the host's /usr, or an unpacked image's, read-only: the default kind, with no daemon.

A box is one bubblewrap process in fresh user, pid, net, ipc, uts and cgroup namespaces, started from a uid of
its own (never host root), under a seccomp deny-list, with `inbox.control` as its payload. Writable and kept
for grading: /app, /root, /tmp, /logs and what the Dockerfile adds. All else is read-only or vanishes with the
box.
"""

import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from t1core.sandbox import furnish, seccomp
from t1core.sandbox.bubblewrap_box import BubblewrapBox
from t1core.sandbox.dockerfile import Copy, Recipe, read_recipe
from t1core.sandbox.etc import write_etc
from t1core.sandbox.packages import missing
from t1core.sandbox.request import refuse_beyond_bubblewrap, refuse_without_packages
from t1core.sandbox.runtime import BOX_PREFIX, ensure_runtime, install_payload, payload_argv
from t1core.sandbox.sandbox import BoxSpec, SandboxUnavailable
from t1core.sandbox.state import BLOCK_SIZE, Claim, StateBlock, lacks_uids

KEPT_DIRECTORIES = ("/app", "/root", "/tmp", "/logs")
BOX_PATH = f"{BOX_PREFIX}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
START_DEADLINE_S = 60.0
ROOT_BYTES = SHARED_MEMORY_BYTES = 64 << 20
_PAYLOAD = tuple(
    f"t1core.sandbox.inbox.{name}" for name in ("control", "terminal", "watch", "wire", "overlay", "pack")
)
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETUID", "SETGID")


class BubblewrapSandbox:
    """Opens bubblewrap boxes. One per process is enough; `close` ends every box it opened."""

    def __init__(
        self, *, max_boxes: int = BLOCK_SIZE, image: Path | None = None, is_overlay: bool = False
    ) -> None:
        """`max_boxes` counts what has a place on the host: open boxes, and layers not closed yet.

        `image` is the root directory of an unpacked image, readable by everyone: boxes take /usr and what belongs to
        it from there, and start with what it holds in the directories they keep. It needs bash, tmux, the locale
        C.UTF-8 and a C library that our Python runs with. With `is_overlay` the whole of the image is the box's root
        and can be written: what is written lies in a layer above it. Raises SandboxUnavailable for what this machine or
        the image lacks, ValueError for an image that is no directory.
        """
        if image is not None and not image.is_dir():
            raise ValueError(f"image {image}: no such directory; unpack the image there")
        self._image, self._system = image, image.resolve() if image is not None else Path("/")
        self._is_overlay = is_overlay
        if is_overlay and image is None:
            raise ValueError("an overlay needs an image to lie over: name its unpacked root directory")
        if is_overlay and os.geteuid() != 0:
            raise SandboxUnavailable("an image's root can be overlaid by root only", fix="run as root")
        self._bwrap, self._setpriv = shutil.which("bwrap"), shutil.which("setpriv")
        if self._bwrap is None:
            raise SandboxUnavailable("bubblewrap is not installed", fix="apt-get install -y bubblewrap")
        places = ":".join(str(self._system / place) for place in ("usr/local/bin", "usr/bin", "bin"))
        for tool in ("bash", "tmux"):
            if shutil.which(tool, path=places) is None:
                where = "under /usr" if image is None else f"in the image {image}"
                fix = f"apt-get install -y {tool}" + ("" if image is None else ", there")
                raise SandboxUnavailable(f"{tool} is not installed {where}", fix=fix)
        if os.geteuid() == 0 and self._setpriv is None:
            raise SandboxUnavailable("setpriv is not installed", fix="apt-get install -y util-linux")
        if lacks := lacks_uids():
            raise SandboxUnavailable(lacks, fix="run as a plain user, or outside the rootless container")
        self._runtime = ensure_runtime()
        payload = install_payload(self._runtime, _PAYLOAD)
        self._payload_argv = payload_argv(BOX_PREFIX, payload, _PAYLOAD[0])
        self._overlay_argv = payload_argv(str(self._runtime), payload, _PAYLOAD[4])
        self._packer = payload_argv(BOX_PREFIX, payload, _PAYLOAD[5])
        self._block = StateBlock(num_slots=max_boxes)
        self.state_path = self._block.path
        self._etc = self._block.path / "etc"
        write_etc(self._etc)
        self._seccomp = seccomp.program()
        self._boxes: set[BubblewrapBox] = set()

    @property
    def num_free(self) -> int:
        """How many more boxes and layers it may hold."""
        return self._block.num_free

    async def open(self, spec: BoxSpec, *, directories: Sequence[str] = ()) -> BubblewrapBox:
        """Furnish and start a box; see `Sandbox.open`. `directories` are top-level directories that it keeps beside the
        usual ones."""
        refuse_beyond_bubblewrap(spec, has_image=self._image is not None)
        dockerfile = spec.environment_dir / "Dockerfile" if spec.environment_dir is not None else None
        text = dockerfile.read_text() if dockerfile is not None and dockerfile.exists() else ""
        recipe = read_recipe(
            text, workdir=spec.workdir, path=BOX_PATH, tests_in="/tests" if spec.is_for_tests else ""
        )
        refuse_without_packages(spec, missing(recipe.needs, system=self._system))
        claim = self._block.claim()
        try:
            box = self._start(spec, recipe, claim=claim, more=directories)
        except BaseException:
            claim.release()
            raise
        self._boxes.add(box)
        try:
            await box.started(deadline_s=START_DEADLINE_S)
            await box.furnish(recipe, environment_dir=spec.environment_dir)
        except BaseException:
            await box.close()  # goes on by itself should we be cancelled here
            raise
        return box

    def _start(self, spec: BoxSpec, recipe: Recipe, *, claim: Claim, more: Sequence[str]) -> BubblewrapBox:
        tops = dict.fromkeys([*KEPT_DIRECTORIES, *recipe.directories, *more])
        files = claim.path
        if self._is_overlay:
            files = furnish.make_overlay(claim.path, uid=claim.uid)
            tops |= dict.fromkeys(furnish.top_directories(self._system))
        directories = {top: files / top[1:] for top in tops}
        for top, directory in directories.items():
            directory.mkdir()
            directory.chmod(0o1777 if top == "/tmp" else 0o755)
            if self._image is not None and not self._is_overlay:
                furnish.copy_from_image(self._system, top, directory)
        furnish.host_path(recipe.workdir, directories).mkdir(parents=True, exist_ok=True)
        for step in recipe.steps:
            if not isinstance(step, Copy):
                break
            assert spec.environment_dir is not None
            furnish.copy_in(step, environment_dir=spec.environment_dir, directories=directories)
        furnish.hand_over(directories, uid=claim.uid)
        host, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        errors = os.memfd_create("bubblewrap-errors", os.MFD_CLOEXEC)
        filter_fd = os.memfd_create("seccomp", os.MFD_CLOEXEC)
        try:
            os.write(filter_fd, self._seccomp)
            os.lseek(filter_fd, 0, os.SEEK_SET)
            os.set_inheritable(filter_fd, True)
            env = {**recipe.env, **spec.env}
            places = self._root_over(claim.path) if self._is_overlay else self._places(directories)
            arguments = self._arguments(places, env=env, workdir=recipe.workdir, seccomp_fd=filter_fd)
            overlay = [*self._overlay_argv, str(claim.uid), str(self._system), str(claim.path)]
            process = subprocess.Popen(
                [
                    *(overlay if self._is_overlay else ()),
                    *self._as_uid(claim.uid),
                    self._bwrap,
                    *arguments,
                    "--",
                    *self._payload(spec, inner, directories),
                ],
                pass_fds=(inner.fileno(), filter_fd),
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                env={},
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            host.close()
            os.close(errors)
            raise
        finally:
            inner.close()
            os.close(filter_fd)
        return BubblewrapBox(
            spec,
            process=process,
            control=host,
            errors_fd=errors,
            claim=claim,
            directories=directories,
            is_overlay=self._is_overlay,
            workdir=recipe.workdir,
            env=env,
            open_beside=self.open,
            packer=self._packer,
            on_closed=self._boxes.discard,
        )

    def _payload(self, spec: BoxSpec, inner: socket.socket, directories: Mapping[str, Path]) -> list[str]:
        sizes = [str(megabytes << 20) for megabytes in (spec.memory_mb, spec.storage_mb)]
        limits = {
            "NPROC": spec.max_processes,
            "DATA": spec.memory_mb << 20,
            "FSIZE": spec.max_file_mb << 20,
            "NOFILE": 1024,
            "CORE": 0,
        }
        pairs = [f"{name}={value}" for name, value in limits.items()]
        counted = furnish.SEEN_UPPER if self._is_overlay else ":".join(directories)
        return [*self._payload_argv, str(inner.fileno()), *sizes, counted, *pairs]

    def _as_uid(self, uid: int) -> list[str]:
        if os.geteuid() != 0:
            return []
        assert self._setpriv is not None
        return [self._setpriv, f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs"]

    def _arguments(
        self, places: Sequence[str], *, env: Mapping[str, str], workdir: str, seccomp_fd: int
    ) -> list[str]:
        out = ["--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
        out += ["--unshare-cgroup-try", "--disable-userns", "--uid", "0", "--gid", "0", "--hostname", "box"]
        out += [
            "--as-pid-1",
            "--die-with-parent",
            "--new-session",
            "--seccomp",
            str(seccomp_fd),
            "--cap-drop",
            "ALL",
        ]
        for capability in _CAPABILITIES:
            out += ["--cap-add", f"CAP_{capability}"]
        out += places
        out += ["--clearenv"]
        fixed = {
            "PATH": BOX_PATH,
            "HOME": "/root",
            "USER": "root",
            "LOGNAME": "root",
            "SHELL": "/bin/bash",
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "PS1": r"root@box:\w# ",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        for name, value in {**fixed, **env}.items():
            out += ["--setenv", name, value]
        return [*out, "--chdir", workdir]

    def _root_over(self, place: Path) -> list[str]:
        """Mounts of a box whose root is an overlay: the image's /etc, but for the few files that are ours."""
        seen = ["--ro-bind", str(place / "upper"), furnish.SEEN_UPPER]
        out = ["--bind", str(place / "root"), "/", *self._runtime_places(seen)]
        for name in ("hosts", "hostname", "inputrc", "tmux.conf"):
            out += ["--ro-bind", str(self._etc / name), f"/etc/{name}"]
        return [*out, "--size", str(ROOT_BYTES), "--tmpfs", "/run", "--dir", "/run/t1", "--dir", "/var/tmp"]

    def _runtime_places(self, devices: Sequence[str] = ()) -> list[str]:
        out = ["--ro-bind", str(self._runtime), BOX_PREFIX, "--proc", "/proc", "--dev", "/dev"]
        out += ["--size", str(SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm", *devices]
        return [*out, "--remount-ro", "/dev"]

    def _places(self, directories: Mapping[str, Path]) -> list[str]:
        """Mounts of a box over a read-only system."""
        out = ["--size", str(ROOT_BYTES), "--tmpfs", "/", "--ro-bind", str(self._system / "usr"), "/usr"]
        for name in ("bin", "sbin", "lib", "lib32", "lib64"):
            host = self._system / name
            if host.is_symlink():
                out += ["--symlink", os.readlink(host), f"/{name}"]
            elif host.is_dir():
                out += ["--ro-bind", str(host), f"/{name}"]
        out += ["--ro-bind", str(self._etc), "/etc"]
        for name in ("alternatives", "ld.so.cache", "localtime"):
            out += ["--ro-bind-try", str(self._system / "etc" / name), f"/etc/{name}"]
        out += self._runtime_places()
        for top, host in directories.items():
            out += ["--bind", str(host), top]
        return [*out, "--dir", "/run/t1", "--dir", "/var/tmp"]

    async def close(self) -> None:
        """Close every box still open and give the state block back. Layers of this sandbox end too."""
        while self._boxes:  # one may be opening still
            await asyncio.gather(*(box.close() for box in list(self._boxes)))
        self._block.close()
