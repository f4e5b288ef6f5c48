"""The routing gap, measured: transformers' engine against Megatron's trainer on nano models, routes replayed and free.

    for each model:      engine samples rows and records routes (fp32, bf16)
    for each precision:  trainer scores them, replayed and free; takes one PPO step on them; scores them once more

The second scoring is that of weights one step ahead of those that sampled, which the pipelined loop has in its
numerator. All of it runs in one process beside the caller's.
"""

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from t1core.analysis.routing_gap import AHEAD, SAMPLED, WHOLE, flip_statistics, gap_statistics
from t1core.campaign.assets import prepare_actor
from t1core.config import load_config
from t1core.records import Batch, Generation, RowStatus, SamplingParams, TrainingRow

Precision = Literal["fp32", "bf16"]
PRECISIONS: tuple[tuple[Precision, Precision], ...] = (("fp32", "fp32"), ("bf16", "fp32"), ("bf16", "bf16"))
_DTYPE = {"fp32": "float32", "bf16": "bfloat16"}


@dataclass(frozen=True)
class GapPlan:
    """What is measured, beside the policy itself.

    depths, dense_depths: layers of the models trained for it, with 8 experts of which 2 are chosen, and dense (both of
    two experts always: the same arithmetic without a choice). hidden_size, supervised_steps, supervised_tokens: their
    width and their supervised start, of which the first half copies word lists as the policy's own does. long, short:
    (prompt tokens at most, new tokens) of the rows. actor_lr: rate of the one PPO step that makes weights stale; its
    rewards are drawn at random.
    """

    depths: tuple[int, ...] = (4, 8, 12)
    dense_depths: tuple[int, ...] = (4, 12)
    hidden_size: int = 64
    supervised_steps: int = 100
    supervised_tokens: int = 512
    supervised_lr: float = 4e-3
    num_rows: int = 8
    long: tuple[int, int] = (400, 96)
    short: tuple[int, int] = (16, 16)
    actor_lr: float = 6e-5
    seed: int = 0


def measure_routing_gap(policy: Path, *, plan: GapPlan) -> Iterator[pd.DataFrame]:
    """One frame a model: a row a condition and layer (`analysis.routing_gap`), of which layer -1 holds the gaps.

    policy: Hugging Face directory of a nano policy with its tokenizer, measured before the plan's own models.
    """
    jobs = [("policy", 0)]
    for depth in sorted({*plan.depths, *plan.dense_depths}):
        jobs += [("experts", depth)] * (depth in plan.depths) + [("dense", depth)] * (
            depth in plan.dense_depths
        )
    with (
        tempfile.TemporaryDirectory(prefix="t1-routing-gap-") as scratch,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process,
    ):
        for kind, depth in jobs:
            yield process.submit(_measure, kind, depth, policy, plan, Path(scratch)).result()


def quickstart_policy(*, say: Callable[[str], None] = print) -> Path:
    """The quickstart's warm-started policy, made if it is not there yet."""
    return prepare_actor(load_config("quickstart"), say=say)


def _measure(kind: str, depth: int, policy: Path, plan: GapPlan, scratch: Path) -> pd.DataFrame:
    import os

    from t1core.cluster.environment import OFFLINE_ENV

    os.environ |= OFFLINE_ENV | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    import torch

    from t1core.model.shape import ModelShape

    torch.set_num_threads(1)
    directory = policy if kind == "policy" else scratch / f"{kind}-{depth}"
    if kind != "policy":
        _train(directory, kind=kind, depth=depth, policy=policy, plan=plan, scratch=scratch)
    shape = ModelShape.from_hf(directory)
    prompts = _prompts(policy, plan)
    parts = []
    for engine in ("fp32", "bf16"):
        batches = asyncio.run(_sample(directory, engine, prompts, plan))
        for with_engine, precision in PRECISIONS:
            if with_engine != engine:
                continue
            labels = {"model": kind, "num_layers": shape.num_layers, "engine": engine, "trainer": precision}
            parts += _compare(directory, shape, precision, batches, plan=plan, labels=labels, scratch=scratch)
    return pd.concat(parts, ignore_index=True)


def _train(directory: Path, *, kind: str, depth: int, policy: Path, plan: GapPlan, scratch: Path) -> None:
    """A nano model of `depth` layers after a short supervised start, in `directory`."""
    from t1core.model.convert import init_hf
    from t1core.model.shape import ModelShape
    from t1core.train.adam import Adam
    from t1core.train.learning_rate import LearningRate

    width = plan.hidden_size
    experts = dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=width // 2)
    if kind == "dense":
        experts = dict(num_experts=2, num_experts_per_tok=2, moe_intermediate_size=width // 2)
    shape = ModelShape.nano(
        vocab_size=ModelShape.from_hf(policy).vocab_size,
        num_layers=depth,
        hidden_size=width,
        head_dim=width // 4,
        linear_key_head_dim=width // 4,
        linear_value_head_dim=width // 4,
        shared_expert_intermediate_size=width // 2,
        **experts,
    )
    directory.mkdir()
    init_hf(shape, directory, seed=plan.seed)
    falling = LearningRate(
        plan.supervised_lr,
        style="cosine",
        warmup_steps=max(1, plan.supervised_steps // 20),
        decay_steps=max(2, plan.supervised_steps),
        floor=0.1 * plan.supervised_lr,
    )
    trainer = _trainer(
        directory, shape, "fp32", scratch, actor=Adam(lr=falling, weight_decay=0.0), replay=False
    )
    batches = _demonstrations(
        policy, seed=plan.seed, tokens=plan.supervised_tokens, copying=plan.supervised_steps // 2
    )
    for _ in range(plan.supervised_steps):
        trainer.supervised_step(next(batches))
    trainer.save_weights(directory, "actor")
    trainer.close()


def _demonstrations(policy: Path, *, seed: int, tokens: int, copying: int = 0) -> Any:
    from t1core.agent.prompt import WORDINGS
    from t1core.agent.tokenizer import ChatTokenizer
    from t1core.campaign.demonstrations import demonstration_batches

    return demonstration_batches(
        seed=seed,
        tokens=tokens,
        tokenizer=ChatTokenizer.load(policy),
        wording=WORDINGS["compact"],
        copying_steps=copying,
    )


def _prompts(policy: Path, plan: GapPlan) -> list[np.ndarray]:
    """Dialogues of the practice corpus up to their last answer, from another seed than the models' training."""
    prompts: list[np.ndarray] = []
    for batch in _demonstrations(policy, seed=plan.seed + 1, tokens=4096):
        for start, end in zip(batch.cu_seqlens[:-1], batch.cu_seqlens[1:], strict=True):
            mask = batch.loss_mask[start:end].astype(bool)
            opens = np.flatnonzero(mask[1:] & ~mask[:-1]) + 1
            fitting = opens[opens <= plan.long[0]]
            if len(fitting):
                prompts.append(batch.tokens[start : start + int(fitting[-1])])
        if len(prompts) >= plan.num_rows:
            return prompts[: plan.num_rows]
    raise AssertionError("unreachable: demonstrations do not end")


async def _sample(
    directory: Path, dtype: str, prompts: Sequence[np.ndarray], plan: GapPlan
) -> dict[str, Batch]:
    """The engine's rows by horizon, one turn each."""
    from t1core.rollout.embedded import EmbeddedEngine

    engine = EmbeddedEngine(
        directory, dtype=_DTYPE[dtype], max_running=len(prompts), max_context=sum(plan.long)
    )
    batches = {}
    try:
        for horizon in ("long", "short"):
            most, new = getattr(plan, horizon)
            cut = [prompt[:most] for prompt in prompts]
            answers = await asyncio.gather(
                *(
                    engine.generate(
                        prompt,
                        sampling=SamplingParams(max_new_tokens=new, sampling_seed=plan.seed + row),
                        request_id=f"{horizon}/{row}",
                    )
                    for row, prompt in enumerate(cut)
                )
            )
            rows = [
                one_call_row(prompt, answer, f"{horizon}/{i}", reward=_drawn_reward(horizon, i))
                for i, (prompt, answer) in enumerate(zip(cut, answers, strict=True))
            ]
            batches[horizon] = Batch.from_rows(rows, step=0, num_tests=[1] * len(rows))
    finally:
        await engine.close()
    return batches


def _drawn_reward(horizon: str, row: int) -> float:
    return float(np.random.default_rng(len(f"{horizon}/{row}") + row).random())


def one_call_row(prompt: np.ndarray, answer: Generation, name: str, *, reward: float) -> TrainingRow:
    """One call as a training row, every sampled token in the loss; the answer's routes begin with its first token."""
    n, new = len(prompt), len(answer.output_ids)
    mask = np.concatenate([np.zeros(n, np.uint8), np.ones(new, np.uint8)])
    return TrainingRow(
        rollout_id=name,
        chunk=0,
        tokens=np.concatenate([prompt, answer.output_ids]),
        response_length=new,
        loss_mask=mask,
        rollout_log_probs=np.concatenate([np.zeros(n, np.float32), answer.output_logprobs]),
        rollout_routed_experts=answer.routed_experts,
        weight_versions=np.where(mask, 0, -1).astype(np.int32),
        reward=reward,
        status=RowStatus.COMPLETED,
        spans=(),
    )


def _compare(
    directory: Path,
    shape: Any,
    precision: Precision,
    batches: dict[str, Batch],
    *,
    plan: GapPlan,
    labels: dict[str, Any],
    scratch: Path,
) -> list[pd.DataFrame]:
    from t1core.train.adam import Adam
    from t1core.train.learning_rate import LearningRate

    trainer = _trainer(
        directory,
        shape,
        precision,
        scratch,
        actor=Adam(LearningRate(plan.actor_lr), weight_decay=0.0),
        replay=True,
    )
    parts = []
    for weights in (SAMPLED, AHEAD):
        if weights == AHEAD:
            trainer.train_batch(batches["long"], update_actor=True, expected_version_lag=0)
        for horizon, batch in batches.items():
            free, flips = trainer.score_freely(batch)
            for routing, logprobs in (("replayed", trainer.score(batch)), ("free", free)):
                statistics = gap_statistics(
                    logprobs,
                    rollout_logprobs=batch.rollout_log_probs,
                    mask=batch.loss_mask,
                    rows=np.repeat(np.arange(len(batch)), batch.lengths()),
                )
                condition = labels | {"horizon": horizon, "weights": weights, "routing": routing}
                frame = flip_statistics(
                    flips if routing == "free" else np.zeros_like(flips), mask=batch.loss_mask
                )
                frame = frame.assign(**condition)
                for name, value in statistics.items():
                    frame[name] = np.where(frame["layer"] == WHOLE, value, np.nan)
                parts.append(frame)
    trainer.close()
    return parts


def _trainer(
    directory: Path, shape: Any, precision: Precision, scratch: Path, *, actor: Any, replay: bool
) -> Any:
    """A trainer that is a world of its own, in this process."""
    import torch.distributed as dist

    from t1core.train.settings import TrainSettings
    from t1core.train.trainer import Trainer

    with tempfile.NamedTemporaryFile(dir=scratch) as store:
        meeting = f"file://{store.name}.store"
    dist.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
    trainer = Trainer(
        TrainSettings(
            actor_path=str(directory),
            critic_path=None,
            shape=shape,
            precision=precision,
            actor=actor,
            loss_aggregation="row_mean" if replay else "token_mean",
            max_tokens_per_gpu=4096,
            use_rollout_routing_replay=replay,
        )
    )
    trainer.setup()
    return trainer
