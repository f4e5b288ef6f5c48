"""Before a campaign on a pool of one's own: do its verifiers answer, and does the reward fit what they say?"""

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from t1core.cluster.hosting import make_boxes
from t1core.config import CampaignConfig
from t1core.pools.startup import Answers, ask_verifiers
from t1core.tasks.pool import Pool


def check_verifiers(
    config: CampaignConfig, pool: Pool, *, say: Callable[[str], None]
) -> dict[str, Any] | None:
    """Run the tests of `tasks.startup_sample` training tasks on untouched workspaces, say and return what came of it.

    None for the practice pool, whose tasks are tried when it is generated, and for a sample of 0. Raises ValueError
    when not one verifier answers.
    """
    if not config.tasks.pool or not config.tasks.startup_sample:
        return None
    answers = asyncio.run(_ask(config, pool))
    say(
        f"verifiers: {answers.num_reported} of {answers.num_sampled} sampled tasks report their tests"
        + (f", {answers.num_declared} declare a number" if answers.num_declared else "")
        + (f"; silent: {_some(answers.silent.items())}" if answers.silent else "")
    )
    if answers.solved_untouched:
        say(f"solved with nothing done: {', '.join(answers.solved_untouched[:5])}")
    if not answers.num_reported + answers.num_declared:
        raise ValueError(
            f"pool {pool.directory}: not one of {answers.num_sampled} sampled verifiers answers on untouched files "
            f"({_some(answers.silent.items())}): `t1 verify TASK` looks at one, tasks.startup_sample=0 asks none"
        )
    if config.reward.kind == "dense" and not answers.num_reported:
        say("no test is counted: the dense reward of these tasks is the number that their scripts declare")
    return asdict(answers)


async def _ask(config: CampaignConfig, pool: Pool) -> Answers:
    sandbox, grader = make_boxes(config)
    try:
        await grader.start()
        return await ask_verifiers(
            pool,
            split="train",
            number=config.tasks.startup_sample,
            seed=config.seed,
            sandbox=sandbox,
            grader=grader,
            limits={
                "memory_mb": config.sandbox.memory_mb,
                "storage_mb": config.sandbox.storage_mb,
                "max_processes": config.sandbox.max_processes,
            },
            num_parallel=config.rollout.max_live_trials,
        )
    finally:
        await grader.close()
        await sandbox.close()


def _some(silent: Any) -> str:
    told = [f"{name} ({why})" if why else name for name, why in silent]
    return "; ".join(told[:3]) + ("; ..." if len(told) > 3 else "")
