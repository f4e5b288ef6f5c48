"""Commands about pools of tasks: `t1 pool ...`.

They import what they need when they are called, so that `t1` itself stays quick.
"""

from pathlib import Path
from typing import Annotated

import typer

from t1core.campaign.commands import say

pool_app = typer.Typer(no_args_is_help=True, help="Pools of tasks: index, audit, convert.")

PoolPath = Annotated[Path, typer.Argument(help="directory of Harbor tasks")]


@pool_app.command("index")
def index_pool(
    pool: PoolPath,
    audit: Annotated[
        Path | None, typer.Option(help="verdicts of t1 pool audit: rank the tasks by them")
    ] = None,
) -> None:
    """Read every task and write the pool's index, which campaigns stream tasks by."""
    from t1core.pools.ranking import quality_ranks
    from t1core.tasks.index import write_index
    from t1core.tasks.pool import Pool

    write_index(pool, quality_ranks=None if audit is None else quality_ranks(audit))
    opened = Pool.open(pool)
    say(f"indexed  {len(opened)} tasks of {len(opened.families)} families")
    for split in opened.splits:
        say(f"    {split} {len(opened.split(split))}")
