"""Waiting until a box is ready for its agent: the task's own check, as Docker's HEALTHCHECK and Harbor count it."""

import asyncio

from t1core.records.task import HealthCheck
from t1core.sandbox.sandbox import Box


class Unhealthy(RuntimeError):
    """A box whose check did not succeed in time: it may the next time, and the agent has had no part in it."""


async def wait_healthy(box: Box, check: HealthCheck) -> None:
    """Run the check until it ends with 0. A failure in the start period is not counted; `retries` of those after it,
    in a row, raise Unhealthy. Also raises what `Box.exec` raises."""
    now = asyncio.get_running_loop().time
    started_by = now() + check.start_period_s
    num_failures = 0
    while True:
        is_starting = now() < started_by
        done = await box.exec(check.command, timeout_s=check.timeout_s)
        if done.rc == 0 and not done.timed_out:
            return
        num_failures += not is_starting
        if not is_starting and num_failures >= check.retries:
            how = f"took longer than {check.timeout_s:g} s" if done.timed_out else f"ended with {done.rc}"
            said = (done.stderr or done.stdout)[-200:].decode(errors="replace").strip()
            raise Unhealthy(
                f"the health check {check.command[:80]!r} failed {num_failures} times, and last {how}"
                + (f": {said}" if said else "")
            )
        await asyncio.sleep(check.start_interval_s if is_starting else check.interval_s)
