"""The executable audit of a pool: its tasks side by side, one verdict a line as it is known.

A file of verdicts is gone on with: a task is audited again only where its content or the settings have changed.
"""

import asyncio
import fcntl
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from t1core.pools.audit_task import AuditSettings, audit_task
from t1core.pools.verdict import Verdict, latest_verdicts
from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.store.atomic import append_line, drop_torn_line
from t1core.tasks.index import Entry
from t1core.verifier.grader import Grader


async def audit_pool(
    directory: Path,
    entries: Iterable[Entry],
    *,
    output: Path,
    settings: AuditSettings,
    num_parallel: int,
) -> AsyncIterator[Verdict]:
    """Audit the entries that `output` has no verdict of, append each verdict, and give it.

    Raises ValueError for a file that is no audit's or that another audit writes, SandboxUnavailable for what this
    machine lacks.
    """
    if num_parallel < 1:
        raise ValueError(f"num_parallel={num_parallel} must be at least 1")
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{output} is being written by another audit; give another file") from None
        drop_torn_line(output)
        known = latest_verdicts(output)
        waiting = [entry for entry in entries if not _is_known(known.get(entry.task_id), entry, settings)]
        sandbox, grader = BubblewrapSandbox(), Grader()
        try:
            await grader.start()
            places = iter(waiting)
            running: set[asyncio.Task[Verdict]] = set()
            try:
                while True:
                    for entry in places:
                        work = audit_task(
                            directory / entry.path, sandbox=sandbox, grader=grader, settings=settings
                        )
                        running.add(asyncio.ensure_future(work))
                        if len(running) == num_parallel:
                            break
                    if not running:
                        break
                    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for finished in done:
                        verdict = finished.result()
                        append_line(output, verdict.to_line())
                        yield verdict
            finally:
                for work in running:
                    work.cancel()
                await asyncio.gather(*running, return_exceptions=True)
        finally:
            await grader.close()
            await sandbox.close()


def _is_known(verdict: Verdict | None, entry: Entry, settings: AuditSettings) -> bool:
    return (
        verdict is not None
        and verdict.content_hash == entry.content_hash
        and verdict.settings == settings.__dict__
    )


def verdict_line(verdict: Verdict) -> str:
    """A verdict for people."""
    numbers = verdict.numbers
    told = [f"{numbers.get('num_tests', 0):g} tests", f"{numbers.get('nop_passed', 0):g} pass untouched"]
    if "mutants" in numbers:
        told.append(f"{numbers['mutants'] - numbers['survivors']:g} of {numbers['mutants']:g} mutants caught")
    failed = "".join(f"\n    {check.name}: {check.evidence}" for check in verdict.failed)
    return f"{verdict.standing:10s} {verdict.task_id}  {', '.join(told)}{failed}"
