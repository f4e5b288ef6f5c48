"""What a campaign needs before it starts: runtime, task pool, tokenizer, warm-started policy, warmed critic.

Each is made once and kept under the cache directory (T1CORE_HOME, else `.t1core` in the working directory), keyed by
everything that determines it: settings, and the source files that make it.
"""

import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import t1core
from t1core.agent.prompt import WORDINGS
from t1core.agent.tokenizer import train_tokenizer
from t1core.campaign.demonstrations import demonstration_texts
from t1core.config import CampaignConfig
from t1core.sandbox.runtime import ensure_runtime
from t1core.tasks.pool import Pool
from t1core.tasks.practice.families import HELDOUT_FAMILIES, TRAINED
from t1core.tasks.practice.pool import generate_pool

Say = Callable[[str], None]
_POOL_SOURCES = ("tasks", "records/task.py")
_POLICY_SOURCES = (*_POOL_SOURCES, "agent", "model", "campaign/demonstrations.py", "campaign/warm_start.py")
_TOKENIZER_TEXTS = 4000


@dataclass(frozen=True)
class Assets:
    """Paths of what was prepared. `critic` None: the critic starts cold."""

    pool: Path
    actor: Path
    critic: Path | None


def cache_root() -> Path:
    """Where prepared things are kept."""
    return Path(os.environ.get("T1CORE_HOME") or ".t1core").resolve()


def prepare(config: CampaignConfig, *, say: Say = print) -> Assets:
    """Make what is missing, and say what is being made. Safe to interrupt: nothing half made is kept."""
    ensure_runtime()
    pool = prepare_pool(config, say=say)
    actor = prepare_actor(config, say=say)
    return Assets(pool, actor, prepare_critic(config, actor=actor, say=say))


def prepare_pool(config: CampaignConfig, *, say: Say) -> Path:
    """The pool of the configuration, generated when it is the practice pool."""
    tasks = config.tasks
    if tasks.pool:
        Pool.open(tasks.pool)
        return Path(tasks.pool).resolve()
    held_out = config.evaluation.tasks_per_split
    parts = (tasks.pool_seed, tasks.tasks_per_family, tasks.max_level, held_out)
    target = _target("pool", *parts, sources=_POOL_SOURCES)
    if not target.is_dir():
        say("generating the practice pool")
        generate_pool(
            target,
            seed=tasks.pool_seed,
            tasks_per_family=tasks.tasks_per_family,
            heldout_per_family=max(2, math.ceil(held_out / len(TRAINED))),
            heldout_family_tasks=max(4, math.ceil(held_out / len(HELDOUT_FAMILIES))),
            max_level=tasks.max_level,
        )
    return target


def prepare_actor(config: CampaignConfig, *, say: Say) -> Path:
    """The starting policy: given, or the nano model after its supervised start."""
    model = config.model
    if model.actor_path:
        path = Path(model.actor_path)
        if not (path / "config.json").is_file():
            raise ValueError(
                f"model.actor_path={model.actor_path!r} has no config.json: name a Hugging Face directory"
            )
        return path.resolve()
    start = config.warm_start.model_dump(exclude={"critic_warmup_steps", "critic_warmup_batch"})
    shape = model.model_dump(exclude={"actor_path", "critic_path"})
    target = _target("actor", start, shape, config.agent.prompt, sources=_POLICY_SOURCES)
    if not target.is_dir():
        from t1core.campaign.warm_start import supervised_start

        with _building(target) as directory:
            texts = demonstration_texts(
                seed=config.warm_start.seed, count=_TOKENIZER_TEXTS, wording=WORDINGS[config.agent.prompt]
            )
            train_tokenizer(texts, directory, vocab_size=model.vocab_size)
            supervised_start(config, directory, say=say)
    return target


def prepare_critic(config: CampaignConfig, *, actor: Path, say: Say) -> Path | None:
    """The warmed critic: given, cold, or what a short actor-critic campaign on easy tasks leaves."""
    given = config.model.critic_path
    if given == "cold" or (not given and config.warm_start.critic_warmup_steps == 0):
        return None
    if given:
        path = Path(given)
        if not path.is_dir():
            raise ValueError(f'model.critic_path={given!r} is no directory; give one, or "cold"')
        return path.resolve()
    steps, batch = config.warm_start.critic_warmup_steps, config.warm_start.critic_warmup_batch
    train = config.train.model_dump(mode="json")
    parts = (actor.name, steps, batch, train, config.reward.model_dump(mode="json"))
    target = _target("critic", *parts, sources=("rl", "train"))
    if not target.is_dir():
        from t1core.campaign.warm_start import critic_warmup

        with _building(target) as directory:
            critic_warmup(config, actor=actor, directory=directory, say=say)
    return target


def _target(kind: str, *parts: object, sources: tuple[str, ...]) -> Path:
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode())
    root = Path(t1core.__file__).parent
    for source in sources:
        path = root / source
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
    return cache_root() / f"{kind}-{digest.hexdigest()[:12]}"


class _building:
    """A directory that appears under its name only when the block ends well."""

    def __init__(self, target: Path) -> None:
        self._target = target

    def __enter__(self) -> Path:
        self._target.parent.mkdir(parents=True, exist_ok=True)
        self._partial = Path(tempfile.mkdtemp(prefix=f".{self._target.name}-", dir=self._target.parent))
        return self._partial

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and not self._target.exists():
            self._partial.chmod(0o755)
            self._partial.rename(self._target)
        else:
            shutil.rmtree(self._partial, ignore_errors=True)
