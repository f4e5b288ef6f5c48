"""Model calls written by hand. Routes are made from a call's name and position, so that a row that stands anywhere but
where it was recorded shows.
"""

import zlib

import numpy as np

from t1core.records import CopiedTurn, ModelCall, RowStatus
from t1core.tito import assemble

TEXT = {21: "ec", 22: "ho hi", 23: "echo", 24: " hi", 2: "<e>"}


def text_of(ids):
    return "".join(TEXT.get(int(i), f"[{int(i)}]") for i in ids)


def route(name, position):
    low = zlib.crc32(f"{name}{position}".encode()) % 199
    return [[low, low + 1 + position % 50]] * 2


def routes_from(name, positions):
    return np.array([route(name, j) for j in positions], dtype=np.uint8).reshape(-1, 2, 2)


def call(name, prompt, sampled, *, start=0, routes=True, version=4, finish_reason="stop", copied=()):
    n = len(prompt) + len(sampled) - 1
    return ModelCall(
        model_call_id=name,
        rollout_id="r",
        parent_call_id=None,
        prompt_token_ids=np.array(prompt, dtype=np.int32),
        completion_token_ids=np.array(sampled, dtype=np.int32),
        logprobs=-np.array(sampled, dtype=np.float32) / 100,
        finish_reason=finish_reason,
        weight_version=version,
        output_versions=np.full(len(sampled), version, dtype=np.int32),
        routed_experts=routes_from(name, range(start, n)) if routes else None,
        routed_experts_start=start,
        copied_turns=tuple(CopiedTurn(*one) for one in copied),
    )


def rows_of(*calls, **options):
    return assemble(calls, reward=0.5, status=RowStatus.COMPLETED, **options)


def routes(*places):
    return np.array([route(name, position) for name, position in places], dtype=np.uint8)
