"""Commands about pools of tasks: `t1 pool ...`.

They import what they need when they are called, so that `t1` itself stays quick.
"""

from pathlib import Path
from typing import Annotated

import typer

from t1core.campaign.commands import interruptible, say

pool_app = typer.Typer(no_args_is_help=True, help="Pools of tasks: index, audit, convert.")

PoolPath = Annotated[Path, typer.Argument(help="directory of Harbor tasks")]


@pool_app.command("index")
def index_pool(
    pool: PoolPath,
    audit: Annotated[
        Path | None,
        typer.Option(help="verdicts of t1 pool audit: rank by them, take what passes untouched"),
    ] = None,
) -> None:
    """Read every task and write the pool's index, which campaigns stream tasks by."""
    from t1core.pools.ranking import quality_ranks
    from t1core.pools.verdict import latest_verdicts
    from t1core.tasks.index import write_index
    from t1core.tasks.pool import Pool

    verdicts = {} if audit is None else latest_verdicts(audit)
    nop_passed = {name: one.nop_passed for name, one in verdicts.items() if one.nop_passed is not None}
    contents = {name: one.content_hash for name, one in verdicts.items()}
    ranks = quality_ranks(verdicts.values())
    write_index(pool, nop_passed=nop_passed, quality_ranks=ranks, measured_on=contents)
    opened = Pool.open(pool)
    say(f"indexed  {len(opened)} tasks of {len(opened.families)} families")
    for split in opened.splits:
        say(f"    {split} {len(opened.split(split))}")
    stale = [
        one.task_id
        for one in opened.entries
        if contents.get(one.task_id, one.content_hash) != one.content_hash
    ]
    if stale:
        say(
            f"{len(stale)} verdicts are of other contents and left out ({', '.join(stale[:3])}): audit the pool again"
        )


@pool_app.command("audit")
def audit_pool(
    pool: PoolPath,
    output: Annotated[Path, typer.Option(help="file of verdicts, one JSON line a task; gone on with")],
    split: Annotated[str | None, typer.Option(help="only the tasks of this split")] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="so many tasks, at even distances")] = None,
    parallel: Annotated[int, typer.Option(min=1, help="tasks at once")] = 2,
    mutants: Annotated[int, typer.Option(min=0, help="broken solutions a task, at most")] = 12,
    repeats: Annotated[int, typer.Option(min=0, help="further grades of the solution")] = 2,
    attacks: Annotated[bool, typer.Option(help="play the battery of attacks")] = True,
    seed: Annotated[int, typer.Option(help="draws the mutants")] = 0,
) -> None:
    """Audit tasks by running them in boxes: solution, nothing, broken solutions, attacks, repeats. Resumable."""
    import asyncio

    from t1core.pools.audit import audit_pool as audit
    from t1core.pools.audit import verdict_line
    from t1core.pools.audit_task import AuditSettings
    from t1core.pools.table import summary_lines
    from t1core.pools.verdict import latest_verdicts
    from t1core.tasks.order import spread
    from t1core.tasks.pool import Pool

    opened = Pool.open(pool)
    entries = spread(opened.split(split) if split else opened.entries, sample)
    settings = AuditSettings(num_repeats=repeats, num_mutants=mutants, with_attacks=attacks, seed=seed)

    async def tell() -> None:
        async for verdict in audit(
            opened.directory, entries, output=output, settings=settings, num_parallel=parallel
        ):
            say(verdict_line(verdict))

    with interruptible():
        asyncio.run(tell())
    names = {entry.task_id for entry in entries}
    for line in summary_lines(one for name, one in latest_verdicts(output).items() if name in names):
        say(line)


@pool_app.command("convert")
def convert_pool(
    form: Annotated[
        str,
        typer.Argument(help="terminal-bench, tmax, harbor-registry or intercode-alfa: what the source is"),
    ],
    output: Annotated[Path, typer.Option(help="the new pool's directory")],
    source: Annotated[
        Path | None,
        typer.Option(help="directory, records or registry.json; intercode-alfa: the installed package"),
    ] = None,
    licence: Annotated[str, typer.Option(help="of the tasks; kept with each")] = "",
    dataset: Annotated[str, typer.Option(help="of a registry: NAME or NAME@VERSION")] = "",
) -> None:
    """Write the tasks of another form as a pool: each is read again, and one has to answer in a box."""
    import asyncio

    from t1core.pools.convert.conversion import convert

    with interruptible():
        done = asyncio.run(convert(form, source, output, licence=licence, dataset=dataset))
    say(f"kept     {done.num_kept} of {done.num_found} tasks in {output}")
    for reason, count in done.reasons.most_common(8):
        say(f"refused  {count}: {reason}")
    for name, told in done.tried.items():
        say(f"tried    {name}: {told}")
