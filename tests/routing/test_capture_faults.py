"""Captures an engine should never give: each is caught by its count of rows, whatever the rows hold, and named."""

from dataclasses import replace

import numpy as np
import pytest

from t1core.records import ModelCall, RowStatus
from t1core.routing import MissingRoutes
from t1core.tito import assemble

LAYERS, TOPK, EXPERTS = 2, 2, 8


def rows(count, *, seed):
    scores = np.random.default_rng(seed).random((count, LAYERS, EXPERTS))
    return np.sort(scores.argsort(-1)[..., :TOPK], -1).astype(np.uint8)


def call(name, prompt, sampled, *, start):
    n = len(sampled)
    return ModelCall(
        model_call_id=name, rollout_id="r", parent_call_id=None, prompt_token_ids=np.array(prompt, np.int32),
        completion_token_ids=np.array(sampled, np.int32), logprobs=np.zeros(n, np.float32), finish_reason="stop",
        weight_version=0, output_versions=np.zeros(n, np.int32),
        routed_experts=rows(len(prompt) + n - 1 - start, seed=len(prompt)), routed_experts_start=start,
    )  # fmt: skip


FIRST = call("first", [1, 2, 3, 4], [5, 6], start=0)  # forwards 5 tokens
SECOND = call("second", [1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11], start=5)  # forwards 10, so its delta is 5 rows


def stitched(*calls):
    (row,) = assemble(calls, reward=0.0, status=RowStatus.COMPLETED)
    return row.rollout_routed_experts


def test_whole_first_record_and_delta_make_one_record():
    assert np.array_equal(
        stitched(FIRST, SECOND), np.concatenate([FIRST.routed_experts, SECOND.routed_experts])
    )


def test_rows_from_the_beginning_that_say_so_are_as_good_as_the_delta():
    whole = replace(SECOND, routed_experts=rows(10, seed=1), routed_experts_start=0)
    assert np.array_equal(
        stitched(FIRST, whole), np.concatenate([FIRST.routed_experts, whole.routed_experts[5:]])
    )


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (dict(routed_experts=rows(10, seed=1)), 10),  # the whole record, labelled as the delta
        (dict(routed_experts=FIRST.routed_experts[1:]), 4),  # the last call's once more
        (dict(routed_experts=SECOND.routed_experts[:-1]), 4),  # the last forwarded token is missing
        (dict(routed_experts=rows(6, seed=1)), 6),  # one for the sampled token that was never forwarded
        (dict(routed_experts=SECOND.routed_experts[:0]), 0),
    ],
    ids=["full-length", "stale", "short", "one-too-many", "empty"],
)
def test_a_wrong_number_of_rows_names_the_call_and_both_counts(fault, found):
    with pytest.raises(
        MissingRoutes, match=rf"call second of rollout r: {found} routing rows from 5, expected 5"
    ):
        stitched(FIRST, replace(SECOND, **fault))


def test_a_call_without_capture_is_never_dropped():
    with pytest.raises(MissingRoutes, match="call second of rollout r: no routes were captured"):
        stitched(FIRST, replace(SECOND, routed_experts=None))


def test_a_delta_that_begins_late_is_filled_only_under_tokens_that_carry_no_loss():
    # Row 5 predicts token 6, a context token; row 6 predicts token 7, context too; row 7 predicts a sampled one.
    late = replace(SECOND, routed_experts=SECOND.routed_experts[2:], routed_experts_start=7)
    record = stitched(FIRST, late)
    assert np.array_equal(record[5], FIRST.routed_experts[4]) and np.array_equal(
        record[6], FIRST.routed_experts[4]
    )
    later = replace(SECOND, routed_experts=SECOND.routed_experts[3:], routed_experts_start=8)
    with pytest.raises(MissingRoutes, match=r"routing row 7 .*trained token"):
        stitched(FIRST, later)
