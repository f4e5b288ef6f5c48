"""`t1 pool synthesise`: rounds of harder tasks, attempts of a fixed policy at what each round kept, and the table."""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from t1core.pools.audit_task import AuditSettings
from t1core.pools.llm.endpoint import Cost, EndpointSettings, open_endpoint
from t1core.pools.synthesis.attempts import ATTEMPTS_NAME, attempt_tasks
from t1core.pools.synthesis.candidate import Parent, read_files, size_of
from t1core.pools.synthesis.composer import Bounds, Composer
from t1core.pools.synthesis.rounds import Proposer, RoundPlan, head_of, synthesise
from t1core.pools.synthesis.stand import open_stand
from t1core.pools.synthesis.table import (
    Summary,
    reject_reasons,
    step_line,
    summary_lines,
    synthesis_table,
)
from t1core.pools.synthesis.variant import VariantWriter
from t1core.tasks.order import spread
from t1core.tasks.pool import Pool

SUMMARY_NAME = "summary.json"


@dataclass(frozen=True)
class PolicyPlan:
    """The fixed policy: `num_attempts` at each of at most `num_tasks` tasks a round, leaving out each command with
    probability `error_rate`. No attempts: no pass rates."""

    num_attempts: int = 4
    num_tasks: int = 8
    error_rate: float = 0.02

    def __post_init__(self) -> None:
        if self.num_attempts < 0 or self.num_tasks < 1 or not 0 <= self.error_rate <= 1:
            raise ValueError(
                f"num_attempts={self.num_attempts} must be at least 0, num_tasks={self.num_tasks} at least 1, "
                f"error_rate={self.error_rate} from 0 to 1"
            )


async def run_synthesis(
    pool: Pool,
    *,
    split: str,
    num_seeds: int | None,
    plan: RoundPlan,
    bounds: Bounds,
    audit: AuditSettings,
    policy: PolicyPlan,
    endpoint: EndpointSettings | None,
    max_retries: int,
    max_chars: int,
    seed: int,
    output: Path,
    say: Callable[[str], None],
) -> None:
    """Synthesise from a split of the pool, with a model where an endpoint is given, and write the summary beside it.

    Raises ValueError for settings and seeds that cannot be used.
    """
    entries = spread(pool.split(split), num_seeds)
    seeds = [Parent(entry.task_id, pool.directory / entry.path) for entry in entries]
    head = head_of(
        seed=seed,
        seeds=[entry.content_hash for entry in entries],
        per_round=plan.per_round,
        model=endpoint.model if endpoint else None,
        bounds=bounds if endpoint is None else None,
        audit=audit,
    )
    async with _proposer(
        endpoint, seed=seed, bounds=bounds, max_retries=max_retries, max_chars=max_chars
    ) as proposer:
        async with open_stand(audit) as stand:
            steps = await synthesise(
                seeds,
                proposer=proposer,
                gate=stand.gate,
                plan=plan,
                head=head,
                output=output,
                say=lambda step: say(step_line(step)),
            )
            kept = {
                number: [s for s in steps if s.round == number and s.is_kept]
                for number in range(1, plan.num_rounds + 1)
            }
            tasks = [(0, parent.directory) for parent in spread(seeds, policy.num_tasks)]
            for number, round_steps in kept.items():
                chosen = spread(round_steps, policy.num_tasks)
                tasks += [(number, output / f"round-{number:02d}" / step.task_id) for step in chosen]
            attempts = await attempt_tasks(
                tasks,
                num_attempts=policy.num_attempts,
                error_rate=policy.error_rate,
                seed=seed,
                play=stand.play,
                output=output / ATTEMPTS_NAME,
                say=lambda one: say(
                    f"attempt  {one.task_id} {one.attempt}: {one.num_passed} of {one.num_tests} tests, "
                    f"{one.num_left_out} of {one.num_commands} commands left out"
                ),
            )
    table = synthesis_table(
        steps,
        seeds={parent.task_id: size_of(read_files(parent.directory)) for parent in seeds},
        attempts=attempts,
        error_rate=policy.error_rate,
    )
    if ungraded := len(tasks) * policy.num_attempts - len(attempts):
        say(f"ungraded {ungraded} attempts: the same command makes them again")
    summary = Summary(
        settings={name: value for name, value in head.items() if name != "seeds"} | {"num_seeds": len(seeds)},
        policy=asdict(policy),
        table=table,
        dropped=dict(reject_reasons(steps).most_common()),
        cost=sum((step.cost for step in steps), Cost()),
    )
    (output / SUMMARY_NAME).write_text(summary.to_json())
    for line in summary_lines(summary):
        say(line)


@contextlib.asynccontextmanager
async def _proposer(
    endpoint: EndpointSettings | None, *, seed: int, bounds: Bounds, max_retries: int, max_chars: int
) -> AsyncIterator[Proposer]:
    if endpoint is None:
        yield Composer(seed=seed, bounds=bounds)
        return
    async with open_endpoint(endpoint) as asked:
        yield VariantWriter(asked, seed=seed, max_retries=max_retries, max_chars=max_chars)
