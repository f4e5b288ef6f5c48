"""SGLang on a GPU beside itself: route capture, our client and assembler, publication of weights.

    python -m benchmarks.gpu_rollout --python .venv-sglang/bin/python --model DIR --trials 88

Trials of several turns, all alive at once: each turn's prompt is the history so far and some new tokens, and a fixed
number of tokens is sampled. No boxes and no agent: what they take is not the engine's. Four ways, each over prompts of
its own, on two servers one after the other:

- bare, log-probs: plain requests to a server without route capture, without and with log-probs;
- captured: plain requests with log-probs and routes, which come back and are not read;
- ours: `SGLangEngine.generate`, every reply decoded and checked, every trial assembled into a training row.

Publication: weights to the server and the hashes of all parameters back, beside one pinned copy of as many bytes.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from benchmarks.kept import Comparison, finish
from t1core.model.shape import ModelShape
from t1core.records import ModelCall, RowStatus, SamplingParams
from t1core.rollout.sglang import SGLangEngine
from t1core.rollout.sglang.client import Client
from t1core.rollout.sglang.flags import server_environment, server_flags
from t1core.rollout.sglang.served_model import prepare_model
from t1core.rollout.sglang.server import Server, free_port
from t1core.tito import assemble

CAPTURE = "--enable-return-routed-experts"
Sample = Callable[[str, np.ndarray, int], Awaitable[tuple[Sequence[int], ModelCall | None]]]
"""(trial/turn, prompt, tokens of it whose routes are known) to the sampled ids and, where it was captured, the call."""


async def play(sample: Sample, prompts: np.ndarray) -> int:
    """All trials at once; prompts int32 [trials, turns, tokens]. Returns how many tokens were sampled."""

    async def trial(number: int) -> int:
        history: list[int] = []
        calls: list[ModelCall] = []
        sampled = 0
        for turn, observed in enumerate(prompts[number]):
            known = max(len(history) - 1, 0)
            history += observed.tolist()
            new, call = await sample(f"{number}/{turn}", np.array(history, np.int32), known)
            history += new
            sampled += len(new)
            if call is not None:
                calls.append(call)
        if calls:
            (row,) = assemble(calls, reward=0.0, status=RowStatus.COMPLETED)
            assert row.loss_mask.sum() == sampled
        return sampled

    return sum(await asyncio.gather(*(trial(number) for number in range(len(prompts)))))


def plain(client: Client, *, new_tokens: int, logprobs: bool, routes: bool) -> Sample:
    """Requests as anyone would send them."""

    async def sample(name: str, ids: np.ndarray, known: int) -> tuple[Sequence[int], None]:
        asked: dict[str, Any] = {"return_logprob": True, "logprob_start_len": -1} if logprobs else {}
        if routes:
            asked |= {"return_routed_experts": True, "routed_experts_start_len": known}
        reply = await client.bulk(
            "/generate",
            input_ids=ids.tolist(),
            sampling_params={"max_new_tokens": new_tokens, "temperature": 1.0},
            **asked,
        )
        return reply["output_ids"], None

    return sample


def through_ours(engine: SGLangEngine, *, new_tokens: int) -> Sample:
    """A campaign's way: checked replies as model calls."""

    async def sample(name: str, ids: np.ndarray, known: int) -> tuple[Sequence[int], ModelCall]:
        trial, turn = name.split("/")
        answer = await engine.generate(
            ids,
            sampling=SamplingParams(max_new_tokens=new_tokens),
            request_id=name,
            routed_experts_start=known,
        )
        call = ModelCall(
            model_call_id=name,
            rollout_id=trial,
            parent_call_id=f"{trial}/{int(turn) - 1}" if int(turn) else None,
            prompt_token_ids=ids,
            completion_token_ids=answer.output_ids,
            logprobs=answer.output_logprobs,
            finish_reason=answer.finish_reason,
            weight_version=answer.weight_version,
            output_versions=answer.output_versions,
            routed_experts=answer.routed_experts,
            routed_experts_start=answer.routed_experts_start,
        )
        return answer.output_ids.tolist(), call

    return sample


async def timed(
    ways: dict[str, Sample], given: argparse.Namespace, *, vocab: int
) -> dict[str, dict[str, float]]:
    """Median tokens a second of each way over rounds in which all take turns; the first round does not count."""
    rng = np.random.default_rng(len(ways))
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(given.rounds + 1):
        for name, sample in ways.items():
            prompts = rng.integers(0, vocab, (given.trials, given.turns, given.prompt_tokens), dtype=np.int32)
            began = time.perf_counter()
            sampled = await play(sample, prompts)
            speeds[name].append(sampled / (time.perf_counter() - began))
            print(f"{name}: {speeds[name][-1]:.0f} tokens/s", flush=True)
    return {
        name: {"tokens_per_s": statistics.median(found[1:]), "all": found} for name, found in speeds.items()
    }


async def measure(given: argparse.Namespace) -> dict[str, Any]:
    model, python = Path(given.model), Path(os.path.abspath(given.python))
    vocab = ModelShape.from_hf(model).vocab_size
    longest = given.turns * (given.prompt_tokens + given.new_tokens) + 8
    sizes = dict(max_running=given.trials, max_total_tokens=2 * given.trials * longest)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        engine = await SGLangEngine.start(
            model, python=python, scratch=Path(scratch) / "ours", log_file=Path(given.log), device=given.device,
            dtype=given.dtype, max_context=longest, gpu_memory_frac=given.memory, cuda_graphs=True,
            start_deadline_s=given.start_deadline_s, transport=given.transport, **sizes,
        )  # fmt: skip
        try:
            found |= await timed(
                {
                    "captured": plain(
                        engine._client, new_tokens=given.new_tokens, logprobs=True, routes=True
                    ),
                    "ours": through_ours(engine, new_tokens=given.new_tokens),
                },
                given,
                vocab=vocab,
            )
            found["publication"] = await publication(engine, model)
        finally:
            await engine.close()
        (Path(scratch) / "bare").mkdir()
        port = free_port()
        flags = server_flags(
            prepare_model(model, into=Path(scratch) / "bare" / "model").path, device=given.device, dtype=given.dtype,
            port=port, weight_version=0, context_length=longest, max_running_requests=given.trials,
            max_total_tokens=sizes["max_total_tokens"], gpu_memory_frac=given.memory,
        )  # fmt: skip
        server = Server(
            python,
            flags=[flag for flag in flags if flag != CAPTURE],
            environment=server_environment(device=given.device, scratch=Path(scratch) / "bare", inherited=os.environ),
            log_file=Path(f"{given.log}.bare"),
            name="bare",
        )  # fmt: skip
        client = Client(server, url=f"http://127.0.0.1:{port}", deadline_s=120.0)
        try:
            await server.wait_until_ready(client.is_ready, deadline_s=given.start_deadline_s)
            found |= await timed(
                {
                    "bare": plain(client, new_tokens=given.new_tokens, logprobs=False, routes=False),
                    "logprobs": plain(client, new_tokens=given.new_tokens, logprobs=True, routes=False),
                },
                given,
                vocab=vocab,
            )
        finally:
            await client.close()
            server.kill()
    return found


def weights_of(model: Path) -> dict[str, np.ndarray]:
    """Every tensor of a Hugging Face directory in float32, whatever it is stored in."""
    arrays: dict[str, np.ndarray] = {}
    for file in sorted(model.glob("*.safetensors")):
        arrays |= {name: tensor.float().numpy() for name, tensor in load_file(file).items()}
    return arrays


async def publication(engine: SGLangEngine, model: Path) -> dict[str, float]:
    """Seconds of two updates with the model's own weights, and of a pinned copy of the bytes that the server keeps."""
    arrays = weights_of(model)
    size = 2 * sum(array.size for array in arrays.values())
    taken = []
    for version in (1, 2):
        began = time.perf_counter()
        await engine.update_weights(version, arrays)
        taken.append(time.perf_counter() - began)
    found = {"bytes": size, "first_s": taken[0], "second_s": taken[1]}
    if torch.cuda.is_available():
        pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        device = torch.empty(size, dtype=torch.uint8, device="cuda")
        for _ in range(2):
            torch.cuda.synchronize()
            began = time.perf_counter()
            device.copy_(pinned, non_blocking=True)
            torch.cuda.synchronize()
            found["pinned_copy_s"] = time.perf_counter() - began
    return found


def comparisons(found: dict[str, Any]) -> list[Comparison]:
    def speeds(*names: str) -> list[float]:
        return [found[name]["tokens_per_s"] for name in names]

    told = [
        Comparison(
            "rollout with route capture", "the same without", "s a token",
            *(1 / speed for speed in speeds("captured", "logprobs")), is_more_better=False, target=1.03,
        ),
        Comparison(
            "rollout through client and assembler", "bare requests to SGLang", "tokens/s",
            *speeds("ours", "bare"), is_more_better=True, target=0.95,
        ),
    ]  # fmt: skip
    sent = found["publication"]
    if "pinned_copy_s" in sent:
        told.append(
            Comparison(
                "publication with every parameter's hash", "one pinned copy to the device", "GB/s",
                sent["bytes"] / sent["second_s"] / 1e9, sent["bytes"] / sent["pinned_copy_s"] / 1e9,
                is_more_better=True, target=0.8,
            )
        )  # fmt: skip
    return told


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", required=True, help="Python of SGLang's own environment")
    parser.add_argument("--model", required=True, help="Hugging Face directory")
    parser.add_argument("--trials", type=int, default=88)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--prompt-tokens", type=int, default=300, help="new ones of each turn")
    parser.add_argument("--new-tokens", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--memory", type=float, default=0.4, help="of the GPU's, for the server")
    parser.add_argument("--transport", default="tensor", choices=["tensor", "disk", "gloo"])
    parser.add_argument("--start-deadline-s", type=float, default=240.0)
    parser.add_argument("--log", default="gpu_rollout_server.log", help="what the server says")
    parser.add_argument("--keep", action="store_true", help="write the result where git keeps it")
    given = parser.parse_args()
    found = asyncio.run(measure(given))
    finish(
        "gpu_rollout",
        comparisons(found),
        parameters={
            name: getattr(given, name)
            for name in (
                "trials",
                "turns",
                "prompt_tokens",
                "new_tokens",
                "rounds",
                "device",
                "dtype",
                "transport",
            )
        },
        detail=found,
        keep=given.keep,
    )


if __name__ == "__main__":
    main()
