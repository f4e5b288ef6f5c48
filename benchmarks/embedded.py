"""The embedded engine beside transformers' own generate(): the same model, trials that grow turn by turn.

    python -m benchmarks.embedded [--num-trials 32] [--num-turns 4] [--keep]

Every trial begins with a prompt, and each turn adds sampled tokens and context to it. The engine keeps what a session
has forwarded; generate() is given all trials as one batch of one length, and begins anew each turn. Both sample at
temperature 1, as many tokens, in bfloat16 on one thread, with random weights of the quickstart's shape. Tokens a second
count sampled tokens over CPU seconds of the process.
"""

import asyncio
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.kept import Comparison, command_line, finish
from t1core.records import SamplingParams

VOCAB_SIZE = 768


def make_model(directory: Path) -> Path:
    from t1core.model.convert import init_hf
    from t1core.model.shape import ModelShape

    init_hf(ModelShape.nano(vocab_size=VOCAB_SIZE), directory, seed=0)
    return directory


def _drawn(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.integers(3, VOCAB_SIZE, shape, dtype=np.int32)


async def with_engine(
    directory: Path, *, prompts: np.ndarray, contexts: list[np.ndarray], num_new: int
) -> float:
    """CPU seconds of all turns in the embedded engine. prompts: [trials, tokens]; contexts: of each later turn."""
    from t1core.rollout.embedded import EmbeddedEngine

    longest = prompts.shape[1] + sum(context.shape[1] + num_new for context in contexts) + num_new
    engine = EmbeddedEngine(directory, max_running=len(prompts), max_context=longest)

    async def trial(number: int) -> None:
        ids = prompts[number]
        for turn in range(len(contexts) + 1):
            sampling = SamplingParams(max_new_tokens=num_new, sampling_seed=1000 * number + turn)
            name = f"trial-{number}"
            answer = await engine.generate(
                ids, sampling=sampling, request_id=f"{name}/{turn}", session_id=name
            )
            assert len(answer.output_ids) == num_new
            if turn < len(contexts):
                ids = np.concatenate([ids, answer.output_ids, contexts[turn][number]])

    try:
        await engine.health()
        began = time.process_time()
        await asyncio.gather(*(trial(number) for number in range(len(prompts))))
        return time.process_time() - began
    finally:
        await engine.close()


def with_generate(directory: Path, *, prompts: np.ndarray, contexts: list[np.ndarray], num_new: int) -> float:
    """CPU seconds of all turns through transformers' generate(). All trials have one length, so nothing is padded."""
    import torch
    from transformers import Qwen3_5MoeForCausalLM

    model = Qwen3_5MoeForCausalLM.from_pretrained(directory, dtype=torch.bfloat16).eval()
    ids = torch.from_numpy(prompts.astype(np.int64))
    began = time.process_time()
    for turn in range(len(contexts) + 1):
        with torch.inference_mode():
            ids = model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=num_new, min_new_tokens=num_new,
                do_sample=True, temperature=1.0, top_k=0, top_p=1.0, pad_token_id=0,
            )  # fmt: skip
        if turn < len(contexts):
            ids = torch.cat([ids, torch.from_numpy(contexts[turn].astype(np.int64))], dim=1)
    used = time.process_time() - began
    assert ids.shape[1] == prompts.shape[1] + sum(c.shape[1] + num_new for c in contexts) + num_new
    return used


def measure(
    *, num_trials: int, num_turns: int, num_prompt: int, num_context: int, num_new: int, num_rounds: int
) -> dict[str, float]:
    """Sampled tokens a CPU second of each way: the best of the rounds, which are run in turn."""
    import torch

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    given = {
        "prompts": _drawn(rng, (num_trials, num_prompt)),
        "contexts": [_drawn(rng, (num_trials, num_context)) for _ in range(num_turns - 1)],
        "num_new": num_new,
    }
    taken: dict[str, list[float]] = {"engine": [], "generate": []}
    with tempfile.TemporaryDirectory() as folder:
        directory = make_model(Path(folder))
        for _ in range(num_rounds):
            taken["engine"].append(asyncio.run(with_engine(directory, **given)))
            taken["generate"].append(with_generate(directory, **given))
    num_tokens = num_trials * num_turns * num_new
    return {f"{name}_tokens_per_s": num_tokens / min(seconds) for name, seconds in taken.items()}


def main() -> None:
    given, keep = command_line(
        __doc__, num_trials=32, num_turns=4, num_prompt=200, num_context=60, num_new=40, num_rounds=2
    )
    found = measure(**given)
    beside = Comparison(
        f"the embedded engine at {given['num_trials']} live trials", "transformers generate()", "tokens/CPU s",
        found["engine_tokens_per_s"], found["generate_tokens_per_s"], is_more_better=True, target=3.0,
    )  # fmt: skip
    finish("embedded", [beside], parameters=given, detail=found, keep=keep)


if __name__ == "__main__":
    main()
