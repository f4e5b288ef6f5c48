"""Turn spans and weight versions of a row that came from elsewhere."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t1core.records import PrefixRelation, TurnSpan


def spans_to_lists(spans: Sequence[TurnSpan]) -> list[list[Any]]:
    return [[span.model_call_id, span.start, span.end, str(span.relation)] for span in spans]


def spans_from(
    free: Mapping[str, Any], *, loss_mask: np.ndarray, rollout_id: str, chunk: int
) -> tuple[TurnSpan, ...]:
    """The spans in a format's free field; without them, the trained stretches one by one."""
    if "spans" in free:
        return tuple(
            TurnSpan(name, start, end, PrefixRelation(relation))
            for name, start, end, relation in free["spans"]
        )
    edges = np.flatnonzero(np.diff(np.concatenate([[0], loss_mask, [0]]).astype(np.int8)))
    stretches = edges.reshape(-1, 2).tolist()
    return tuple(
        TurnSpan(
            f"{rollout_id}/{chunk}.{index}",
            start,
            end,
            PrefixRelation.SPLIT if chunk and not index else PrefixRelation.STRICT,
        )
        for index, (start, end) in enumerate(stretches)
    )


def versions_from(
    free: Mapping[str, Any], given: Sequence[Any], *, loss_mask: np.ndarray, spans: Sequence[TurnSpan]
) -> np.ndarray:
    """int32 [N], -1 where the mask is 0: as the free field has them, else one version for all or one a span."""
    if "token_weight_versions" in free:
        return np.array(free["token_weight_versions"], dtype=np.int32)
    versions = np.full(len(loss_mask), -1, dtype=np.int32)
    if len(given) not in (1, len(spans)):
        raise ValueError(f"{len(given)} weight versions for {len(spans)} turns; give one, or one a turn")
    for index, span in enumerate(spans):
        versions[span.start : span.end] = int(given[index if len(given) > 1 else 0])
    return np.where(loss_mask == 1, versions, -1).astype(np.int32)
