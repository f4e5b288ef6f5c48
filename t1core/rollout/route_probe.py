"""Does the engine hand over its routes? Asked once at start-up, before any trial is spent on finding out.

Two requests of one session, as an agent's first two turns make them: the second asks only for what is new. An engine
that was started without its flag returns nothing; one that ignores the delta returns rows from the beginning; both are
told by the count of rows.
"""

from collections.abc import Awaitable, Callable

import numpy as np

from t1core.records import Generation, SamplingParams
from t1core.routing import validate

SESSION = "route-probe"
_PROMPT, _NEW, _CONTEXT = 6, 3, 2


async def probe_routes(
    generate: Callable[..., Awaitable[Generation]],
    *,
    engine: str,
    vocab_size: int,
    num_layers: int,
    experts_per_token: int,
    num_experts: int,
) -> None:
    """Raise ValueError, naming `engine` and the way out, when its routes can't be replayed.

    generate: the engine's (`rollout.engine.Engine.generate`). The session it opens is `SESSION`; release it afterwards.
    """
    prompt = (np.arange(_PROMPT) % vocab_size).astype(np.int32)
    start = 0
    for turn in ("first", "second"):
        answer = await generate(
            prompt,
            sampling=SamplingParams(max_new_tokens=_NEW, sampling_seed=0),
            request_id=f"{SESSION}/{turn}",
            session_id=SESSION,
            routed_experts_start=start,
        )
        forwarded = len(prompt) + len(answer.output_ids) - 1
        what = f"{engine}, {turn} probe of {len(prompt)} + {len(answer.output_ids)} tokens from row {start}"
        _check(
            answer.routed_experts,
            num_rows=forwarded - answer.routed_experts_start,
            num_layers=num_layers,
            experts_per_token=experts_per_token,
            num_experts=num_experts,
            what=what,
        )
        if answer.routed_experts_start > start:
            raise ValueError(f"{what}: rows begin at {answer.routed_experts_start}, so some are lost")
        prompt = np.concatenate([prompt, answer.output_ids, prompt[:_CONTEXT]]).astype(np.int32)
        start = forwarded


def _check(
    routes: np.ndarray | None,
    *,
    num_rows: int,
    num_layers: int,
    experts_per_token: int,
    num_experts: int,
    what: str,
) -> None:
    if routes is None:
        raise ValueError(
            f"{what}: no routes came back, but train.use_rollout_routing_replay is on. Start the engine with routed "
            "experts returned (SGLang: --enable-return-routed-experts), or turn the replay off"
        )
    if routes.shape != (num_rows, num_layers, experts_per_token):
        raise ValueError(
            f"{what}: routes of shape {routes.shape}, expected {(num_rows, num_layers, experts_per_token)}; the engine "
            "returns stale, short or full-length rows, or serves another model"
        )
    if num_experts > 1:  # with one expert every true row is zero
        try:
            validate(routes, num_tokens=num_rows + 1, num_experts=num_experts)
        except ValueError as error:
            raise ValueError(f"{what}: {error}") from error
