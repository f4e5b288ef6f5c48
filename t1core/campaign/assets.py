"""What a campaign needs before it starts: runtime, task pool, tokenizer, warm-started policy, warmed critic.

Each is made once and kept under the cache directory (T1CORE_HOME, else `.t1core` in the working directory). Policy and
critic are made from a recipe: the configuration with everything else put back to its default, so that what the recipe's
key leaves out cannot matter. `t1core.campaign.asset_key` says what else is in a key.
"""

import contextlib
import fcntl
import math
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from t1core.agent.choose import wording_of
from t1core.agent.tokenizer import train_tokenizer
from t1core.campaign.asset import Assets, cache_root
from t1core.campaign.asset_key import CAMPAIGN, POLICY, POOL, asset_key, weights_key
from t1core.campaign.demonstrations import demonstration_texts
from t1core.config import CampaignConfig
from t1core.sandbox.runtime import ensure_runtime
from t1core.tasks.pool import Pool
from t1core.tasks.practice.check import check_pool
from t1core.tasks.practice.families import HELDOUT_FAMILIES, TRAINED
from t1core.tasks.practice.pool import generate_pool

Say = Callable[[str], None]
_TOKENIZER_TEXTS = 4000
_CHECKED_TASKS, _CHECKED_BY_PYTEST = 40, 2  # about four seconds
# What of a configuration does not reach the critic's warm-up, which sets these itself or does without them.
NOT_THE_CRITICS = (
    *("name", "seed", "run_root", "num_steps", "evaluation"),
    *("sinks", "checkpoint_every", "checkpoint_content", "checkpoint_keep"),
)


def prepare(config: CampaignConfig, *, say: Say = print) -> Assets:
    """Make what is missing, and say what is being made. Safe to interrupt: nothing half made is taken for whole."""
    ensure_runtime()
    pool = prepare_pool(config, say=say)
    actor = prepare_actor(config, say=say)
    return Assets(pool, actor, prepare_critic(config, actor=actor, say=say))


def prepare_pool(config: CampaignConfig, *, say: Say) -> Path:
    """The pool of the configuration, generated when it is the practice pool. ValueError for a generated pool with tasks
    that are not what they claim to be.
    """
    tasks = config.tasks
    if tasks.pool:
        return Pool.open(tasks.pool).directory.resolve()
    held_out = config.evaluation.tasks_per_split
    settings = {
        "seed": tasks.pool_seed,
        "tasks_per_family": tasks.tasks_per_family,
        "heldout_per_family": max(2, math.ceil(held_out / len(TRAINED))),
        "heldout_family_tasks": max(4, math.ceil(held_out / len(HELDOUT_FAMILIES))),
        "max_level": tasks.max_level,
    }

    def make(directory: Path) -> None:
        say("generating the practice pool")
        directory.rmdir()
        check_generated(generate_pool(directory, **settings))

    return _ensure(cache_root() / f"pool-{asset_key(settings, sources=POOL)}", make, say=say)


def check_generated(pool: Pool) -> None:
    """Try a sample of the pool's tasks. ValueError naming those whose oracle, tests and files do not fit together."""
    results = check_pool(pool, _CHECKED_TASKS, pytest_sample=_CHECKED_BY_PYTEST, num_processes=1)
    unsound = [result for result in results if not result.is_sound]
    if unsound:
        told = "; ".join(
            f"{result.task_id}: "
            + ", ".join(
                [*result.problems, *(f"{name} passes with nothing done" for name in result.nop_passed)]
            )
            for result in unsound[:3]
        )
        raise ValueError(
            f"{len(unsound)} of {len(results)} generated tasks tried here are unsound: {told[:1500]}"
        )


def actor_recipe(config: CampaignConfig) -> CampaignConfig:
    """The configuration from which the policy is made: its settings, all others at their defaults."""
    default = CampaignConfig()
    return default.model_copy(
        update={
            "model": config.model.model_copy(update={"actor_path": "", "critic_path": ""}),
            "warm_start": config.warm_start.model_copy(
                update={
                    name: getattr(default.warm_start, name)
                    for name in ("critic_warmup_steps", "critic_warmup_batch")
                }
            ),
            "agent": default.agent.model_copy(update={"prompt": config.agent.prompt}),
            "train": default.train.model_copy(update={"max_tokens_per_gpu": config.train.max_tokens_per_gpu}),
        }
    )


def critic_recipe(config: CampaignConfig) -> CampaignConfig:
    """The configuration from which the critic is made: all of it but NOT_THE_CRITICS and the paths of models."""
    default = CampaignConfig()
    return config.model_copy(
        update={name: getattr(default, name) for name in NOT_THE_CRITICS}
        | {"model": config.model.model_copy(update={"actor_path": "", "critic_path": ""})}
    )


def prepare_actor(config: CampaignConfig, *, say: Say) -> Path:
    """The starting policy: given, or the nano model after its supervised start."""
    if config.model.actor_path:
        path = Path(config.model.actor_path)
        for pattern in ("config.json", "tokenizer.json", "*.safetensors"):
            if not any(path.glob(pattern)):
                raise ValueError(
                    f"model.actor_path={config.model.actor_path!r} has no {pattern}: name a Hugging Face directory"
                )
        return path.resolve()
    recipe = actor_recipe(config)

    def make(directory: Path) -> None:
        from t1core.campaign.warm_start import supervised_start

        texts = demonstration_texts(
            seed=recipe.warm_start.seed,
            count=_TOKENIZER_TEXTS,
            wording=wording_of(recipe.agent.prompt, protocol="json"),
        )
        train_tokenizer(texts, directory, vocab_size=recipe.model.vocab_size)
        supervised_start(recipe, directory, say=say)

    key = asset_key(_settings_of_the_policy(recipe), sources=POLICY)
    return _ensure(cache_root() / f"actor-{key}", make, say=say)


def _settings_of_the_policy(recipe: CampaignConfig) -> dict[str, Any]:
    """The settings that the supervised start reads, by value. The recipe's others are defaults, and one that is added
    among them makes no other policy."""
    return {
        "model": recipe.model.model_dump(mode="json"),
        "warm_start": recipe.warm_start.model_dump(mode="json"),
        "agent.prompt": recipe.agent.prompt,
        "train.max_tokens_per_gpu": recipe.train.max_tokens_per_gpu,
    }


def plays_for_critic(config: CampaignConfig) -> bool:
    """Whether the critic is warmed up by a short campaign, which needs an engine."""
    needs_one = config.train.advantage != "grpo" and not config.train.load
    return needs_one and not config.model.critic_path and config.warm_start.critic_warmup_steps > 0


def prepare_critic(config: CampaignConfig, *, actor: Path, say: Say) -> Path | None:
    """The warmed critic: given, cold, or what a short actor-critic campaign on easy tasks leaves. None where there is
    no critic, or a checkpoint gives it.
    """
    if config.train.advantage == "grpo" or config.train.load:
        return None
    given = config.model.critic_path
    if given and given != "cold":
        path = Path(given)
        if not path.is_dir():
            raise ValueError(f'model.critic_path={given!r} is no directory; give one, or "cold"')
        return path.resolve()
    if not plays_for_critic(config):
        return None
    recipe = critic_recipe(config)

    def make(directory: Path) -> None:
        from t1core.campaign.warm_start import critic_warmup

        critic_warmup(recipe, actor=actor, directory=directory, scratch=cache_root(), say=say)

    key = asset_key(recipe.model_dump(mode="json"), weights_key(actor), sources=CAMPAIGN)
    return _ensure(cache_root() / f"critic-{key}", make, say=say)


def _ensure(target: Path, make: Callable[[Path], None], *, say: Say) -> Path:
    """`target`, filled by `make` if it is not there. It appears only whole; one process at a time makes it, and removes
    what a killed one left.
    """
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is making {target}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for path in target.parent.glob(f".*{target.name}*"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
        if not target.is_dir():
            partial = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
            try:
                make(partial)
                partial.chmod(0o755)
                partial.rename(target)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(partial)
    return target
