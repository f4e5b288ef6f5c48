"""The train-inference gap on a GPU: SGLang against Megatron, the same weights, routes replayed and free, by length.

    python benchmarks/gpu_gap.py --python .venv-sglang/bin/python --lengths 1024 8192 32768

For each length SGLang samples rows whose prompt and answer together have it, and records what it chose; the trainer
then scores the same rows, once through those experts and once routing freely. d = log p_trainer - log p_rollout of a
sampled token. The trainer scores the rows once more in fp32, up to 8,192 tokens: what its own bf16 is away from that is
numerics alone, without a second implementation.

With --model prompts are the practice pool's demonstrations, laid end to end; without it the model is random and so are
they, and the gains make its routers and distributions surer of themselves than at the start of a training from nothing.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.gpu_model import machine, make_shape, num_params, write_random
from t1core.analysis.routing_gap import WHOLE, flip_statistics, gap_statistics
from t1core.campaign.routing_gap import one_call_row
from t1core.model.kernels import Wanted
from t1core.model.shape import ModelShape
from t1core.records import Batch, Generation, SamplingParams
from t1core.rollout.engine import EngineDead
from t1core.rollout.sglang import SGLangEngine
from t1core.rollout.sglang.server import free_port

OUTPUT = Path(__file__).resolve().parents[1] / "figures" / "results" / "gpu_gap.json"
# Attention in fp32 has no kernel that does without the whole matrix of scores.
LONGEST_IN_FP32 = 8192
Rows = list[tuple[np.ndarray, Generation]]


def compare(batch: Batch, scored: "Scored", *, reference: "Scored | None") -> dict[str, dict[str, float]]:
    """Gaps over the batch's sampled tokens, replayed and free, and the flips of free routing. `reference`: the same
    rows and experts in fp32."""
    rows = np.repeat(np.arange(len(batch)), batch.lengths())
    given = dict(rollout_logprobs=batch.rollout_log_probs, mask=batch.loss_mask, rows=rows)
    flipped = flip_statistics(scored.flips, mask=batch.loss_mask).set_index("layer")
    found = {
        "sampled": {"mean_logprob": float(batch.rollout_log_probs[batch.loss_mask.astype(bool)].mean())},
        "replayed": gap_statistics(scored.replayed, **given),
        "free": gap_statistics(scored.free, **given),
        "flips": {name: float(flipped.loc[WHOLE, name]) for name in ("flip_frac", "flip_token_frac")},
    }
    if reference is not None:
        found["engine_against_fp32"] = gap_statistics(reference.replayed, **given)
        found["trainer_against_fp32"] = gap_statistics(
            scored.replayed, **(given | {"rollout_logprobs": reference.replayed})
        )
    return found


def random_prompts(vocab_size: int) -> Callable[[int, int], np.ndarray]:
    """(count, length) -> int32 [count, length] of random tokens."""
    rng = np.random.default_rng(0)
    return lambda count, length: rng.integers(0, vocab_size, (count, length), dtype=np.int32)


def demonstrated_prompts(model: Path) -> Callable[[int, int], np.ndarray]:
    """(count, length) -> int32 [count, length] of whole dialogues of the practice pool, end to end."""
    from t1core.agent.prompt import WORDINGS
    from t1core.agent.tokenizer import ChatTokenizer
    from t1core.campaign.demonstrations import demonstration_batches

    batches = demonstration_batches(
        seed=1, tokens=16_384, tokenizer=ChatTokenizer.load(model), wording=WORDINGS["compact"]
    )

    def make(count: int, length: int) -> np.ndarray:
        stream = np.zeros(0, np.int32)
        while len(stream) < count * length:
            stream = np.concatenate([stream, next(batches).tokens])
        return stream[: count * length].reshape(count, length)

    return make


async def sample(
    model: Path,
    *,
    python: Path,
    device: Literal["cpu", "cuda"],
    dtype: Literal["bfloat16", "float32"],
    prompts_of: Callable[[int, int], np.ndarray],
    lengths: Sequence[int],
    num_rows: Sequence[int],
    new_tokens: int,
    log_file: Path,
    scratch: Path,
) -> tuple[dict[int, Rows], dict[str, Any]]:
    """Rows by length from a server of its own, and how long it took to start and to sample."""
    began = time.perf_counter()
    engine = await SGLangEngine.start(
        model,
        python=python,
        scratch=scratch / "engine",
        log_file=log_file,
        device=device,
        dtype=dtype,
        max_running=max(num_rows),
        max_context=max(lengths) + 8,
        max_total_tokens=2 * max(n * length for n, length in zip(num_rows, lengths, strict=True)) + 1024,
        gpu_memory_frac=0.5,
        cuda_graphs=False,
        start_deadline_s=500.0,
    )
    print(f"engine up in {time.perf_counter() - began:.1f} s", flush=True)
    rows: dict[int, Rows] = {}
    took: dict[str, Any] = {"start_s": time.perf_counter() - began}
    try:
        for length, count in zip(lengths, num_rows, strict=True):
            prompts = prompts_of(count, length - new_tokens)
            began = time.perf_counter()
            try:
                answers = await asyncio.gather(
                    *(
                        engine.generate(
                            prompt,
                            sampling=SamplingParams(max_new_tokens=new_tokens),
                            request_id=f"{length}/{i}",
                        )
                        for i, prompt in enumerate(prompts)
                    )
                )
            except EngineDead as error:
                # What shorter rows gave is still worth scoring.
                took["died"] = f"length {length}: {error}"
                print(took["died"], flush=True)
                break
            took[f"sample_{length}_s"] = time.perf_counter() - began
            print(f"length {length}: {count} rows in {took[f'sample_{length}_s']:.1f} s", flush=True)
            rows[length] = list(zip(prompts, answers, strict=True))
    finally:
        await engine.close()
    return rows, took


@dataclass(frozen=True)
class Scored:
    """replayed and free log-probs, float32 [T]; flips of free routing, bool [T, layers]."""

    replayed: np.ndarray
    free: np.ndarray
    flips: np.ndarray


def score(
    model: Path, batches: dict[int, Batch], *, precision: Literal["fp32", "bf16"], port: int, kernels: Wanted
) -> dict[int, Scored]:
    """Every batch through the trainer, in this process."""
    from t1core.train import process_group
    from t1core.train.settings import TrainSettings
    from t1core.train.trainer import Trainer

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0", "WORLD_SIZE": "1"}
    process_group.join()
    trainer = Trainer(
        TrainSettings(
            actor_path=str(model),
            critic_path=None,
            shape=ModelShape.from_hf(model),
            precision=precision,
            kernels=kernels,
            max_tokens_per_gpu=16_384,
        )
    )
    trainer.setup()
    found = {}
    try:
        for length, batch in batches.items():
            began = time.perf_counter()
            free, flips = trainer.score_freely(batch)
            found[length] = Scored(replayed=trainer.score(batch), free=free, flips=flips)
            print(f"length {length}, {precision}: scored in {time.perf_counter() - began:.1f} s", flush=True)
    finally:
        print(f"{precision}: {trainer.actor.kernels} kernels", flush=True)
        trainer.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", required=True, help="Python of SGLang's own environment")
    parser.add_argument("--model", default="", help="Hugging Face directory; without it a random model")
    parser.add_argument("--size", default="12-layer", help="size of the random model")
    parser.add_argument("--router-gain", type=float, default=4.0)
    parser.add_argument("--head-gain", type=float, default=6.0)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 8192, 32_768])
    parser.add_argument("--rows", type=int, nargs="+", default=[16, 8, 4])
    parser.add_argument("--new-tokens", type=int, default=256)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--precision", default="bf16", choices=["bf16", "fp32"])
    parser.add_argument(
        "--kernels", default="auto", choices=["auto", "fused", "plain"], help="of the trainer"
    )
    parser.add_argument("--log", default="", help="where to keep what the server says")
    parser.add_argument("--output", default=str(OUTPUT), help="'' writes nothing")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        model = Path(given.model) if given.model else Path(scratch) / "model"
        if not given.model:
            write_random(
                make_shape(given.size), model, router_gain=given.router_gain, head_gain=given.head_gain
            )
        shape = ModelShape.from_hf(model)
        rows, took = asyncio.run(
            sample(
                model,
                python=Path(os.path.abspath(given.python)),
                device=given.device,
                dtype={"bf16": "bfloat16", "fp32": "float32"}[given.precision],
                prompts_of=demonstrated_prompts(model) if given.model else random_prompts(shape.vocab_size),
                lengths=given.lengths,
                num_rows=given.rows,
                new_tokens=given.new_tokens,
                log_file=Path(given.log or Path(scratch) / "engine.log"),
                scratch=Path(scratch),
            )
        )
        batches = {
            length: Batch.from_rows(
                [
                    one_call_row(prompt, answer, f"{length}/{i}", reward=0.0)
                    for i, (prompt, answer) in enumerate(pairs)
                ],
                step=0,
                num_tests=[1] * len(pairs),
            )
            for length, pairs in rows.items()
        }
        scored = score(model, batches, precision=given.precision, port=free_port(), kernels=given.kernels)
        short = {length: batch for length, batch in batches.items() if length <= LONGEST_IN_FP32}
        exact = (
            score(model, short, precision="fp32", port=free_port(), kernels="plain")
            if given.precision == "bf16"
            else {}
        )
    found = {
        length: compare(batch, scored[length], reference=exact.get(length))
        for length, batch in batches.items()
    }
    for length, measured in found.items():
        print(
            f"length {length:6d}: mean |d| {measured['replayed']['abs_mean']:.5f} replayed, "
            f"{measured['free']['abs_mean']:.5f} free; {measured['flips']['flip_frac']:.3%} of choices flip, "
            f"{measured['flips']['flip_token_frac']:.2%} of tokens have a flip"
        )
    if given.output:
        parameters = {
            "model": (given.model and Path(given.model).name) or f"random {given.size}",
            "num_params": num_params(shape),
            "router_gain": given.router_gain, "head_gain": given.head_gain, "precision": given.precision,
            "num_layers": shape.num_layers, "num_experts": shape.num_experts,
            "num_experts_per_tok": shape.num_experts_per_tok, "kernels": given.kernels,
            "rows": given.rows, "new_tokens": given.new_tokens,
        }  # fmt: skip
        kept = {"parameters": parameters, "by_length": found, "engine": took}
        if given.device == "cuda":
            kept["machine"] = machine()
        Path(given.output).write_text(json.dumps(kept, indent=2) + "\n")


if __name__ == "__main__":
    main()
