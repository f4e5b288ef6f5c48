"""Assembling and auditing with the ids written out. Tokens 1..9 are template and context, 10.. are sampled."""

import dataclasses
import math

import numpy as np
import pytest

from t1core.records import PrefixRelation
from t1core.routing import MissingRoutes
from t1core.tito import UnresolvedRetry, audit
from tests.tito.calls_by_hand import call, routes, rows_of, text_of

STRICT, NORMALIZED, RETOKENIZED, SPLIT = PrefixRelation


def test_strict_turns_become_one_row_with_every_stream_at_the_same_offsets():
    a = call("a", [1, 3], [10, 11, 2])
    b = call("b", [1, 3, 10, 11, 2, 4, 5], [12, 2], start=4, version=5)
    (row,) = rows_of(a, b)
    assert row.tokens.tolist() == [1, 3, 10, 11, 2, 4, 5, 12, 2]
    assert row.loss_mask.tolist() == [0, 0, 1, 1, 1, 0, 0, 1, 1]
    np.testing.assert_allclose(row.rollout_log_probs, [0, 0, -0.10, -0.11, -0.02, 0, 0, -0.12, -0.02])
    assert row.weight_versions.tolist() == [-1, -1, 4, 4, 4, -1, -1, 5, 5]
    assert (row.response_length, row.chunk, row.reward) == (7, 0, 0.5)
    assert [(s.model_call_id, s.start, s.end, s.relation) for s in row.spans] == [
        ("a", 2, 5, STRICT),
        ("b", 7, 9, STRICT),
    ]
    expected = routes(("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 4), ("b", 5), ("b", 6), ("b", 7))
    np.testing.assert_array_equal(row.rollout_routed_experts, expected)
    found = audit([a, b], [row])
    assert found.problems == () and found.drift_frac == 0 and found.delivered_token_frac == 1
    assert (found.num_aligned, found.num_retokenised, found.num_placeholder) == (9, 0, 0)
    assert found.relations == {STRICT: 1}


def test_full_length_captures_give_the_rows_of_the_call_that_forwarded_a_token_first():
    a = call("a", [1, 3], [10, 2])
    b = call("b", [1, 3, 10, 2, 4], [12])
    (row,) = rows_of(a, b)
    np.testing.assert_array_equal(
        row.rollout_routed_experts, routes(("a", 0), ("a", 1), ("a", 2), ("b", 3), ("b", 4))
    )
    assert audit([a, b], [row]).problems == ()


def test_a_call_that_goes_on_without_new_context_joins_the_trained_stretch():
    a = call("a", [1, 3], [10, 11], finish_reason="abort")
    b = call("b", [1, 3, 10, 11], [12, 2], start=3)
    (row,) = rows_of(a, b)
    assert row.tokens.tolist() == [1, 3, 10, 11, 12, 2] and row.loss_mask.tolist() == [0, 0, 1, 1, 1, 1]
    np.testing.assert_array_equal(
        row.rollout_routed_experts, routes(("a", 0), ("a", 1), ("a", 2), ("b", 3), ("b", 4))
    )
    assert audit([a, b], [row]).problems == ()


def test_trimmed_template_and_stop_tokens_are_normalized_and_the_sampled_ids_stay_whole():
    a = call("a", [1, 3, 7, 8], [10, 11, 12, 2, 9])  # generation prompt 7 8; stop 2 and glue 9
    b = call("b", [1, 3, 10, 11, 12, 4, 5, 7, 8], [13, 2])  # rendered again without 7 8 and without 2 9
    (row,) = rows_of(a, b)
    assert row.tokens.tolist() == [1, 3, 7, 8, 10, 11, 12, 2, 9, 4, 5, 7, 8, 13, 2]
    assert row.loss_mask.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1]
    assert [s.relation for s in row.spans] == [STRICT, NORMALIZED]
    # the row of token 9 was recorded by nobody: it copies its neighbour, and predicts context
    expected = [("a", j) for j in range(8)] + [("a", 7)] + [("b", j) for j in range(5, 10)]
    np.testing.assert_array_equal(row.rollout_routed_experts, routes(*expected))
    found = audit([a, b], [row])
    assert found.problems == () and found.relations == {NORMALIZED: 1} and found.drift_frac == 0


def test_the_smallest_trim_wins_and_a_tie_keeps_the_sampled_token():
    # dropping s=1 and u=0, or s=0 and u=1, both give a prefix: the prompt's token goes
    a = call("a", [1, 7], [7, 7])
    b = call("b", [1, 7, 7, 4], [13])
    (row,) = rows_of(a, b)
    assert row.tokens.tolist() == [1, 7, 7, 7, 4, 13] and row.spans[1].relation is NORMALIZED
    np.testing.assert_array_equal(row.rollout_routed_experts[3:], routes(("b", 2), ("b", 3)))


@pytest.mark.parametrize(
    ("s", "u", "is_one_row"), [(96, 0, True), (97, 0, False), (0, 16, True), (0, 17, False)]
)
def test_trims_reach_96_and_16_and_no_further(s, u, is_one_row):
    prompt, sampled = [1] + [300 + i for i in range(s)], [400 + i for i in range(40)]
    a = call("a", prompt, sampled, routes=False)
    b = call("b", prompt[: len(prompt) - s] + sampled[: 40 - u] + [5, 6], [13], routes=False)
    assert len(rows_of(a, b)) == (1 if is_one_row else 2)


def test_a_retokenised_turn_trains_the_sampled_ids_and_the_copy_never_enters():
    a = call("a", [1, 3], [21, 22, 2])  # "ec" "ho hi"
    b = call("b", [1, 3, 23, 24, 2, 4], [13])  # "echo" " hi"
    (row,) = rows_of(a, b, text_of=text_of)
    assert row.tokens.tolist() == [1, 3, 21, 22, 2, 4, 13] and row.spans[1].relation is RETOKENIZED
    found = audit([a, b], [row], text_of=text_of)
    assert found.problems == () and (found.num_retokenised, found.drift_frac) == (0, 0)
    first, second = rows_of(a, b)  # without text there is no telling
    assert second.spans[0].relation is SPLIT and (first.chunk, second.chunk) == (0, 1)


def test_an_unrelated_prompt_opens_a_chunk_and_a_later_call_returns_to_its_own_branch():
    a = call("a", [1, 3], [10, 2])
    side = call("side", [1, 6, 6, 6], [14, 2])
    b = call("b", [1, 3, 10, 2, 4], [12, 2], start=3)
    first, second = rows_of(a, side, b)
    assert first.tokens.tolist() == [1, 3, 10, 2, 4, 12, 2] and second.tokens.tolist() == [1, 6, 6, 6, 14, 2]
    found = audit([a, side, b], [first, second])
    assert found.problems == () and found.relations == {SPLIT: 1, STRICT: 1}


def test_after_a_rollback_the_shared_turn_is_trained_once():
    a = call("a", [1, 3], [10, 11, 2])
    b = call("b", [1, 3, 10, 11, 2, 4], [12, 2])
    c = call("c", [1, 3, 10, 11, 2, 5], [13, 2])  # b was rolled back
    first, second = rows_of(a, b, c)
    assert first.loss_mask.tolist() == [0, 0, 1, 1, 1, 0, 1, 1]
    assert second.tokens.tolist() == [1, 3, 10, 11, 2, 5, 13, 2] and second.loss_mask.tolist() == [0] * 6 + [
        1,
        1,
    ]
    assert audit([a, b, c], [first, second]).delivered_token_frac == 1


def test_of_two_answers_to_one_prompt_the_continued_one_is_trained():
    a, retry = call("a", [1, 3], [10, 2]), call("retry", [1, 3], [11, 2])
    b = call("b", [1, 3, 11, 2, 4], [12, 2])
    (row,) = rows_of(a, retry, b)
    assert row.tokens.tolist() == [1, 3, 11, 2, 4, 12, 2]
    assert audit([a, retry, b], [row]).delivered_token_frac == 4 / 6
    (row,) = rows_of(call("a", [1, 3], [10], finish_reason="abort"), retry)
    assert row.tokens.tolist() == [1, 3, 11, 2]
    with pytest.raises(UnresolvedRetry, match="retry"):
        rows_of(a, retry)


def test_captures_that_cannot_be_trained_are_refused_by_name():
    good = call("a", [1, 3], [10, 2])
    bare = call("b", [1, 3, 10, 2, 4], [12], routes=False)
    with pytest.raises(MissingRoutes, match="call b of rollout r"):
        rows_of(good, bare)
    stale = dataclasses.replace(call("b", [1, 3, 10, 2, 4], [12]), routed_experts_start=3)
    with pytest.raises(MissingRoutes, match="5 routing rows from 3, expected 2"):
        rows_of(good, stale)
    with pytest.raises(MissingRoutes, match="trained token"):
        rows_of(good, call("b", [1, 3, 10, 2, 4], [12], start=5))
    with pytest.raises(ValueError, match="several trials"):
        rows_of(good, dataclasses.replace(good, rollout_id="q"))
    with pytest.raises(ValueError, match="1 log-probs"):
        rows_of(dataclasses.replace(good, logprobs=good.logprobs[:1]))
    assert rows_of(call("none", [1, 3], [], routes=False)) == ()


@pytest.fixture
def honest():
    calls = [call("a", [1, 3], [10, 11, 2]), call("b", [1, 3, 10, 11, 2, 4, 5], [12, 13, 2], start=4)]
    return calls, rows_of(*calls)[0]


def changed(array, position, value):
    out = array.copy()
    out[position] = value
    return out


def test_the_auditor_catches_one_sampled_id_changed(honest):
    calls, row = honest
    found = audit(calls, [dataclasses.replace(row, tokens=changed(row.tokens, 8, 14))])
    assert found.drift_frac == 3 / 6 and found.num_placeholder == 3 and found.delivered_token_frac == 3 / 6
    assert any("call b are not trained as they are" in p for p in found.problems)


def test_the_auditor_catches_one_context_id_changed(honest):
    calls, row = honest
    found = audit(calls, [dataclasses.replace(row, tokens=changed(row.tokens, 6, 4))])
    assert found.drift_frac == 0 and found.num_placeholder == 1 and len(found.problems) == 1


def test_the_auditor_catches_a_retokenised_copy_in_training():
    a, b = call("a", [1, 3], [21, 22, 2]), call("b", [1, 3, 23, 24, 2, 4], [13])
    (row,) = rows_of(a, b, text_of=text_of)
    copied = dataclasses.replace(row, tokens=changed(row.tokens, [2, 3], [23, 24]))
    found = audit([a, b], [copied], text_of=text_of)
    assert found.num_retokenised == 3 and found.drift_frac == 3 / 4 and found.problems


@pytest.mark.parametrize("shift", [1, -1])
@pytest.mark.parametrize(
    "field", ["loss_mask", "rollout_log_probs", "weight_versions", "rollout_routed_experts"]
)
def test_the_auditor_catches_a_stream_shifted_by_one(honest, field, shift):
    calls, row = honest
    shifted = dataclasses.replace(row, **{field: np.roll(getattr(row, field), shift, axis=0)})
    assert audit(calls, [shifted]).problems


def test_the_auditor_catches_every_single_routing_row_that_is_not_the_recorded_one(honest):
    calls, row = honest
    for position in range(len(row.tokens) - 1):
        routes_ = row.rollout_routed_experts.copy()
        routes_[position, 0, 0] ^= 1
        assert audit(calls, [dataclasses.replace(row, rollout_routed_experts=routes_)]).problems, position


def test_the_auditor_catches_a_turn_trained_twice(honest):
    calls, row = honest
    (again,) = rows_of(call("b", [1, 3, 10, 11, 2, 4, 5], [12, 13, 2]))
    assert any("call b is trained 2 times" in p for p in audit(calls, [row, again]).problems)
    in_context = dataclasses.replace(again, loss_mask=changed(again.loss_mask, slice(2, 5), 1))
    assert any("outside every sampled span are trained" in p for p in audit(calls, [in_context]).problems)


def test_the_auditor_catches_a_trained_token_whose_routing_row_was_filled_in(honest):
    (a, b), row = honest
    late = dataclasses.replace(b, routed_experts=b.routed_experts[3:], routed_experts_start=7)
    found = audit([a, late], [row])  # row 6 predicts the first of b's sampled tokens
    assert any("1 trained tokens have a routing row that no call recorded" in p for p in found.problems)


def test_the_auditor_catches_a_span_of_a_call_that_was_never_made(honest):
    (a, _), row = honest
    assert any("span of unknown call b" in p for p in audit([a], [row]).problems)


def test_audits_add_up_and_shares_of_nothing_are_nan(honest):
    calls, row = honest
    total = audit(calls, [row]) + audit(calls[:1], [])
    assert total.delivered_token_frac == 6 / 9 and total.relation_fracs[STRICT] == 1
    assert math.isnan(audit([], []).drift_frac) and math.isnan(audit([], []).relation_fracs[SPLIT])
