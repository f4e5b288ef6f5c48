"""Boxes in Harbor's environments: Daytona, Modal, E2B and whatever else implements Harbor's `BaseEnvironment`.

Harbor is an extra (`pip install 't1core[harbor]'`) and is imported when the first box is opened. What an environment
cannot give (GPUs, another number of cores, no network) it refuses itself, in its own words, before it starts. What it
leaves is graded on this host, like every box's.
"""

import asyncio
import importlib.metadata
import os
import shlex
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.sandbox.machine import Finished, answered, shell
from t1core.sandbox.machine_box import MachineBox, refuse_without_room
from t1core.sandbox.request import refuse_without_image
from t1core.sandbox.sandbox import BoxBroken, BoxDied, BoxSpec, BoxTimeout, SandboxUnavailable

FIX = "pip install 't1core[harbor]'"
KNOWN = ((0, 25), (0, 27))  # from, below
START_DEADLINE_S, TRANSFER_DEADLINE_S = 900.0, 300.0
_PACK = """
f=/var/tmp/.t1-$1.tar; mkdir -p /var/tmp; shift
limit=$1; is_end=$2; shift 2
[ "$is_end" = 0 ] || timeout -s KILL 5 tmux -S /tmp/.t1-tmux kill-server
for top; do [ -d "/$top" ] && set -- "$@" "$top"; shift; done
tar -C / -c --exclude='tmp/.t1-*' -- "$@" | head -c "$limit" > "$f"; stat -c %s "$f"
"""


def harbor_version() -> str:
    """The version that is installed. Raises SandboxUnavailable for none, and for one whose interface is not known."""
    try:
        version = importlib.metadata.version("harbor")
    except importlib.metadata.PackageNotFoundError:
        raise SandboxUnavailable("harbor is not installed", fix=FIX) from None
    numbers = tuple(int(word) for word in version.split(".")[:2])
    if not KNOWN[0] <= numbers < KNOWN[1]:
        raise SandboxUnavailable(f"harbor {version} is installed, and 0.25 or 0.26 is known", fix=FIX)
    return version


class HarborSandbox:
    """Opens boxes in environments of one class; see `Sandbox`."""

    def __init__(self, *, environment: str, max_boxes: int, options: Mapping[str, Any] | None = None) -> None:
        """`environment` is Harbor's name of a kind ("daytona"), or `module:Class`; `options` are its own keyword
        arguments. Raises ValueError for neither, SandboxUnavailable without Harbor, and what `BubblewrapSandbox`
        raises: layers are unpacked in its boxes."""
        os.environ.setdefault("HARBOR_TELEMETRY", "off")
        harbor_version()
        self._make = _maker(environment)
        self._options = dict(options or {})
        self._unpacker = BubblewrapSandbox(max_boxes=max_boxes)
        self.state_path = self._unpacker.state_path
        self._boxes: set[MachineBox] = set()

    async def open(self, spec: BoxSpec) -> MachineBox:
        """Make an environment and start it; see `Sandbox.open`. What the environment's class refuses is ValueError."""
        refuse_without_image(spec)
        refuse_without_room(len(self._boxes), self._unpacker)
        place = tempfile.TemporaryDirectory(prefix="t1-harbor-")
        try:
            environment = self._environment(spec, place=Path(place.name))
        except BaseException:
            place.cleanup()
            raise
        machine = Environment(environment, place=place, box_id=spec.box_id, user=spec.user)
        try:
            await machine.start()
            box = MachineBox(
                spec,
                machine,
                workdir=spec.workdir,
                env=spec.env,
                unpacker=self._unpacker,
                on_closed=self._boxes.discard,
            )
            self._boxes.add(box)
        except BaseException:
            await asyncio.shield(machine.remove())
            raise
        try:
            await box.prepare()
        except BaseException:
            await box.close()
            raise
        return box

    def _environment(self, spec: BoxSpec, *, place: Path) -> Any:
        from harbor.models.task.config import EnvironmentConfig, NetworkPolicy
        from harbor.models.trial.paths import TrialPaths

        definition = spec.environment_dir
        if definition is None:
            definition = place / "environment"
            definition.mkdir()
        try:
            asked = EnvironmentConfig(
                docker_image=spec.docker_image or None,
                cpus=spec.cpus,
                memory_mb=spec.memory_mb,
                storage_mb=spec.storage_mb,
                gpus=spec.num_gpus or None,
                workdir=spec.workdir,
                env=dict(spec.env),
            )
            return self._make(
                environment_dir=definition,
                environment_name=spec.box_id,
                session_id=f"{spec.box_id}-{uuid.uuid4().hex[:8]}",
                trial_paths=TrialPaths(place / "trial"),
                task_env_config=asked,
                network_policy=NetworkPolicy(network_mode="no-network"),
                **self._options,
            )
        except (ValueError, TypeError, RuntimeError, FileNotFoundError) as error:
            raise ValueError(f"box {spec.box_id}: Harbor's environment refuses it: {error}") from error

    async def close(self) -> None:
        """Close every box still open. Layers of this sandbox end too."""
        while self._boxes:
            await asyncio.gather(*(box.close() for box in list(self._boxes)))
        await self._unpacker.close()


class Environment:
    """One environment of Harbor's; see `Machine`."""

    def __init__(
        self, environment: Any, *, place: tempfile.TemporaryDirectory, box_id: str, user: str
    ) -> None:
        self._environment, self._place, self._box_id, self._user = environment, place, box_id, user or None
        self._is_removed = False

    async def start(self) -> None:
        """Build and start it. Raises SandboxUnavailable with what Harbor says."""
        try:
            async with asyncio.timeout(START_DEADLINE_S):
                await self._environment.start(force_build=False)
        except Exception as error:  # a provider's own errors, of every kind
            said = f"{type(error).__name__}: {error}"[:500]
            if type(error).__name__ == "SandboxBuildFailedError":
                raise ValueError(f"box {self._box_id}: its image does not build: {said}") from None
            raise SandboxUnavailable(
                f"Harbor's environment did not start: {said}", fix="see what the provider says"
            ) from None

    async def run(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, within_s: float
    ) -> Finished:
        """See `Machine.run`."""
        done = await self._ask(
            self._environment.exec(
                shlex.join(argv), cwd=cwd, env=dict(env), timeout_sec=int(within_s) + 1, user=self._user
            ),
            within_s=within_s,
        )
        return Finished(done.return_code, done.stdout or "")

    async def _ask(self, work: Any, *, within_s: float) -> Any:
        try:
            async with asyncio.timeout(within_s):
                return await work
        except TimeoutError:
            raise BoxTimeout(f"box {self._box_id}: no answer within {within_s:g} s") from None
        except Exception as error:  # a provider's own errors, of every kind
            raise BoxDied(f"box {self._box_id}: {type(error).__name__}: {error}"[:500]) from None

    async def upload(self, source: Path, target: str) -> None:
        """See `Machine.upload`."""
        await self._ask(self._environment.upload_file(source, target), within_s=TRANSFER_DEADLINE_S)

    async def download(self, source: str, target: Path, *, limit_bytes: int) -> bool:
        """See `Machine.download`."""
        work = self._environment.download_file(source, target)
        fetching = asyncio.create_task(self._ask(work, within_s=TRANSFER_DEADLINE_S))
        try:
            while not (await asyncio.wait([fetching], timeout=0.5))[0]:  # the size is what the box says it is
                if target.exists() and target.stat().st_size > limit_bytes:
                    return False
            await fetching
        finally:
            fetching.cancel()
        return target.stat().st_size <= limit_bytes

    async def archive(
        self, directories: Sequence[str], *, into: Path, limit_bytes: int, is_end: bool
    ) -> bool:
        """See `Machine.archive`. The archive is made by the environment's own tar, which the agent may have replaced:
        then there is nothing, or what it likes."""
        name = uuid.uuid4().hex
        tops = [top.removeprefix("/") for top in directories]
        pack = shell(_PACK, name, str(limit_bytes), str(int(is_end)), *tops)
        done = await self.run(pack, env={}, cwd="/", within_s=TRANSFER_DEADLINE_S)
        said = answered(done, box_id=self._box_id)
        if not said.strip().isdigit():
            raise BoxBroken(f"box {self._box_id}: its tar makes no archive")
        packed = f"/var/tmp/.t1-{name}.tar"
        is_whole = await self.download(packed, into / "000.tar", limit_bytes=limit_bytes)
        if not is_end:
            await self.run(["rm", "-f", packed], env={}, cwd="/", within_s=TRANSFER_DEADLINE_S)
        return is_whole and (into / "000.tar").stat().st_size < limit_bytes

    async def remove(self) -> None:
        """See `Machine.remove`."""
        if not self._is_removed:
            self._is_removed = True
            try:
                await self._environment.stop(delete=True)
            finally:
                self._place.cleanup()


def _maker(environment: str) -> Any:
    """What makes environments of that name."""
    from harbor.environments.factory import EnvironmentFactory
    from harbor.models.environment_type import EnvironmentType

    if ":" in environment:
        return lambda **given: EnvironmentFactory.create_environment_from_import_path(environment, **given)
    try:
        kind = EnvironmentType(environment)
    except ValueError:
        names = ", ".join(sorted(known.value for known in EnvironmentType))
        raise ValueError(
            f"sandbox.harbor_environment {environment!r}: neither module:Class nor one of Harbor's: {names}"
        ) from None
    return lambda **given: EnvironmentFactory.create_environment(kind, **given)
