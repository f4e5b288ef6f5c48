"""The warm start: a short supervised phase for the policy, then a critic from a short campaign on easy tasks.

The supervised phase stops early on purpose: PPO needs something to improve. As in T1, of the second phase only the
critic is kept, weights alone.
"""

import contextlib
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from t1core.agent.choose import wording_of
from t1core.agent.tokenizer import ChatTokenizer
from t1core.campaign.demonstrations import demonstration_batches
from t1core.campaign.nano import nano_shape
from t1core.config import CampaignConfig

Say = Callable[[str], None]
_MOST_RANKS = 2
# Cheap tasks: mostly of the easiest level, with enough of the others that the critic meets large task sizes.
WARMUP_LEVELS = (0.65, 0.25, 0.1)


def supervised_start(config: CampaignConfig, directory: Path, *, say: Say) -> None:
    """Write a random nano model beside the tokenizer in `directory` and train it on demonstrations, in place."""
    from t1core.model.convert import init_hf

    tokenizer = ChatTokenizer.load(directory)
    # A multiple that tensor parallelism can split.
    shape = nano_shape(config.model, vocab_size=-(-tokenizer.vocab_size // 64) * 64)
    init_hf(shape, directory, seed=config.warm_start.seed)
    say(
        f"warm start: {config.warm_start.supervised_steps} supervised steps of "
        f"{config.warm_start.supervised_tokens} tokens on {_num_ranks()} processes"
    )
    began = time.monotonic()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    _run_ranks(config.model_dump(mode="json"), str(directory), port)
    say(f"warm start: done in {time.monotonic() - began:.0f} s")


def _num_ranks() -> int:
    """Data-parallel processes; with GPUs one of them each, since NCCL lets no two share one."""
    import torch

    return min(_MOST_RANKS, torch.cuda.device_count()) if torch.cuda.is_available() else _MOST_RANKS


def _run_ranks(*arguments: object) -> None:
    """Run the data-parallel processes to their end; none outlives this call. RuntimeError when one is killed."""
    import torch.multiprocessing as multiprocessing

    num_ranks = _num_ranks()
    ranks = multiprocessing.spawn(_rank, args=(num_ranks, *arguments), nprocs=num_ranks, join=False)
    try:
        while not ranks.join():
            pass
    except (multiprocessing.ProcessExitedException, multiprocessing.ProcessRaisedException):
        # The others fail in their collectives once one is gone, so the first to be seen may not be the killed one.
        killed = [rank for rank, process in enumerate(ranks.processes) if process.exitcode == -signal.SIGKILL]
        if not killed:
            raise
        raise RuntimeError(
            f"process {killed[0]} of the warm start's {num_ranks} was killed, perhaps for want of memory: free some "
            "and start again"
        ) from None
    finally:
        for process in ranks.processes:
            process.kill()
            process.join()


def _rank(rank: int, num_ranks: int, tree: dict, directory: str, port: int) -> None:
    """One data-parallel process of the supervised phase."""
    from t1core.cluster.environment import OFFLINE_ENV

    os.environ |= OFFLINE_ENV | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "WORLD_SIZE": str(num_ranks),
    }
    from t1core.model.shape import ModelShape
    from t1core.train.adam import Adam
    from t1core.train.learning_rate import LearningRate
    from t1core.train.process_group import join
    from t1core.train.settings import TrainSettings
    from t1core.train.trainer import Trainer

    join()
    config = CampaignConfig.model_validate(tree)
    settings = config.warm_start
    falling = LearningRate(
        settings.supervised_lr,
        style="cosine",
        warmup_steps=max(1, settings.supervised_steps // 20),
        decay_steps=max(2, settings.supervised_steps),
        floor=0.1 * settings.supervised_lr,
    )
    trainer = Trainer(
        TrainSettings(
            actor_path=directory,
            critic_path=None,
            shape=ModelShape.from_hf(Path(directory)),
            actor=Adam(lr=falling, weight_decay=0.0),
            loss_aggregation="token_mean",
            precision=settings.supervised_precision,
            max_tokens_per_gpu=config.train.max_tokens_per_gpu,
            use_rollout_routing_replay=False,
            seed=settings.seed,
        )
    )
    trainer.setup()
    if rank == 0:
        print(f"  warm start: {trainer.actor.kernels} kernels", flush=True)
    batches = demonstration_batches(
        seed=settings.seed,
        tokens=settings.supervised_tokens,
        tokenizer=ChatTokenizer.load(directory),
        wording=wording_of(config.agent.prompt, protocol="json"),
        copying_steps=settings.copying_steps,
        first_turn_steps=settings.first_turn_steps,
        idle_from=max(0, settings.supervised_steps - settings.idle_steps),
        idle_share=settings.idle_share,
    )
    began = time.monotonic()
    for step in range(settings.supervised_steps):
        loss = trainer.supervised_step(next(batches))
        if rank == 0 and (step + 1) % max(1, settings.supervised_steps // 10) == 0:
            print(
                f"  warm start {step + 1}/{settings.supervised_steps}  loss {loss:.3f}  "
                f"{time.monotonic() - began:.0f} s",
                flush=True,
            )
    trainer.save_weights(Path(directory), "actor")


def critic_warmup(config: CampaignConfig, *, actor: Path, directory: Path, scratch: Path, say: Say) -> None:
    """Run a short actor-critic campaign on easy tasks from `actor`, and keep the critic's weights in `directory`.

    The campaign's own run lies in a new folder under `scratch` and goes away with success. RuntimeError names it when
    the campaign failed.
    """
    from t1core.campaign.asset import Assets
    from t1core.campaign.campaign import run_campaign
    from t1core.tasks.practice.pool import generate_pool

    settings = config.warm_start
    say(f"critic warm-up: {settings.critic_warmup_steps} actor-critic steps on easy tasks")
    with _kept_on_failure(scratch) as root:
        pool = root / "pool"
        generate_pool(pool, seed=settings.seed + 1, level_mix=WARMUP_LEVELS)
        overrides = {
            "name": "critic-warmup",
            "num_steps": settings.critic_warmup_steps,
            "run_root": str(root),
            "checkpoint_every": 0,
            "seed": settings.seed + 1,
            "model": config.model.model_dump() | {"actor_path": str(actor), "critic_path": "cold"},
            "tasks": config.tasks.model_dump() | {"pool": str(pool)},
            "rollout": config.rollout.model_dump()
            | {
                "rollout_batch_size": settings.critic_warmup_batch,
                "over_sampling_batch_size": settings.critic_warmup_batch,
                "samples_per_task": 1,
            },
            "train": config.train.model_dump() | {"num_critic_only_steps": 0, "measure_free_routing": False},
        }
        warmup = CampaignConfig.model_validate(config.model_dump(mode="json") | overrides)
        run_path = run_campaign(warmup, Assets(pool, actor, critic=None), say=say, is_evaluated=False)
        shutil.copytree(run_path / "checkpoints" / "final" / "critic", directory, dirs_exist_ok=True)


@contextlib.contextmanager
def _kept_on_failure(scratch: Path) -> Iterator[Path]:
    """A new folder that is removed again, unless a run in it failed."""
    scratch.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="critic-warmup-", dir=scratch))
    is_kept = False
    try:
        yield root
    except Exception as error:
        runs = sorted(path.parent for path in root.glob("*/*/status.json"))
        if not runs:
            raise
        is_kept = True
        raise RuntimeError(f"the critic's warm-up failed: {error}. Its run is kept: {runs[-1]}") from error
    finally:
        if not is_kept:
            shutil.rmtree(root, ignore_errors=True)
