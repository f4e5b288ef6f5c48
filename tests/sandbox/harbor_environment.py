"""An environment of Harbor's for tests: each is a bubblewrap box. Imported only where harbor is installed."""

import base64
import io
import shlex
import tarfile
from pathlib import Path

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities

from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.sandbox.sandbox import BoxSpec

_sandbox = None
live = []


async def close():
    global _sandbox
    if _sandbox is not None:
        await _sandbox.close()
        _sandbox = None


class BoxEnvironment(BaseEnvironment):
    box = None  # until a start has gone so far

    @staticmethod
    def type():
        return "test-box"

    @property
    def capabilities(self):
        return EnvironmentCapabilities(disable_internet=True)

    @classmethod
    def resource_capabilities(cls):
        return EnvironmentResourceCapabilities(memory_limit=True, cpu_request=True)

    def _validate_definition(self):
        pass

    async def start(self, force_build):
        global _sandbox
        if _sandbox is None:
            _sandbox = BubblewrapSandbox()
        env = self._merge_env(None) or {}
        self.box = await _sandbox.open(BoxSpec(self.session_id, None, env=env, storage_mb=2048))
        await self.box.exec("mkdir -p /logs/agent /logs/verifier /logs/artifacts", timeout_s=60)
        live.append(self)

    async def stop(self, delete):
        if self in live:
            live.remove(self)
        if self.box is not None:
            await self.box.close()

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None):
        done = await self.box.exec(command, timeout_s=timeout_sec or 600, cwd=cwd, env=self._merge_env(env))
        if done.timed_out:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds")
        code = done.rc if done.rc >= 0 else 128 - done.rc
        out, err = (data.decode(errors="replace") for data in (done.stdout, done.stderr))
        return ExecResult(stdout=out, stderr=err, return_code=code)

    async def upload_file(self, source_path, target_path):
        await self.box.put(Path(source_path), str(target_path))

    async def upload_dir(self, source_dir, target_dir):
        for path in Path(source_dir).rglob("*"):
            if path.is_file():
                await self.upload_file(path, f"{target_dir}/{path.relative_to(source_dir)}")

    async def download_file(self, source_path, target_path):
        try:
            await self.box.get(str(source_path), Path(target_path))
        except ValueError as error:
            raise FileNotFoundError(source_path) from error

    async def download_dir(self, source_dir, target_dir):
        done = await self.box.exec(f"tar -c -C {shlex.quote(str(source_dir))} . | base64 -w 0", timeout_s=60)
        Path(target_dir).mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(done.stdout))) as archive:
            archive.extractall(target_dir, filter="data")
