"""What gates candidates and grades the fixed policy: boxes and a grader, open while a synthesis runs."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from t1core.pools.audit_task import AuditSettings, audit_task
from t1core.pools.verdict import Verdict
from t1core.records import Grade
from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.tasks.harbor import load_task
from t1core.verifier.attacks.battery import Bench
from t1core.verifier.grader import Grader


@dataclass(frozen=True)
class Stand:
    """Boxes with a grader beside them."""

    sandbox: BubblewrapSandbox
    grader: Grader
    settings: AuditSettings

    async def gate(self, directory: Path) -> Verdict:
        """The executable audit of a task."""
        return await audit_task(directory, sandbox=self.sandbox, grader=self.grader, settings=self.settings)

    async def play(self, directory: Path, script: str) -> Grade:
        """Run a script in a box of the task, and grade what it left."""
        return await Bench(load_task(directory), sandbox=self.sandbox, grader=self.grader).grade(script)


@contextlib.asynccontextmanager
async def open_stand(settings: AuditSettings) -> AsyncIterator[Stand]:
    """Raises SandboxUnavailable for what this machine lacks."""
    sandbox, grader = BubblewrapSandbox(), Grader()
    try:
        await grader.start()
        yield Stand(sandbox, grader, settings)
    finally:
        await grader.close()
        await sandbox.close()
