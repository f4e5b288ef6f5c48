"""Branches of one trial: rollbacks, retries, aborted turns, with the ids written out."""

import dataclasses

import numpy as np
import pytest

from t1core.records import PrefixRelation
from t1core.routing import MissingRoutes
from t1core.tito import UnresolvedRetry, audit
from tests.tito.calls_by_hand import call, routes, rows_of, text_of

STRICT, NORMALIZED, RETOKENIZED, SPLIT = PrefixRelation


def test_after_a_rollback_to_the_empty_history_both_beginnings_are_trained():
    a = call("a", [1, 3], [10, 2])
    b = call("b", [1, 3, 10, 2, 4], [12, 2], start=3)
    again = call("again", [1, 3], [11, 2])
    c = call("c", [1, 3, 11, 2, 5], [13, 2], start=3)
    first, second = rows_of(a, b, again, c)
    assert first.tokens.tolist() == [1, 3, 10, 2, 4, 12, 2]
    assert second.tokens.tolist() == [1, 3, 11, 2, 5, 13, 2]
    assert [s.relation for s in second.spans] == [SPLIT, STRICT]
    found = audit([a, b, again, c], [first, second])
    assert found.problems == () and found.delivered_token_frac == 1
    # it need not be continued: what came after the first beginning was is no retry of it
    assert len(rows_of(a, b, again)) == 2


def test_a_branch_off_a_history_takes_the_rows_that_its_engine_left_out():
    a = call("a", [1, 3], [10, 11, 2])
    b = call("b", [1, 3, 10, 11, 2, 4], [12, 2], start=4)
    c = call("c", [1, 3, 10, 11, 2, 5], [13, 2], start=4)  # the engine had forwarded the first four before
    rows = rows_of(a, b, c)
    np.testing.assert_array_equal(
        rows[1].rollout_routed_experts,
        routes(("a", 0), ("a", 1), ("a", 2), ("a", 3), ("c", 4), ("c", 5), ("c", 6)),
    )
    assert audit([a, b, c], rows).problems == ()
    for position in range(7):
        changed = rows[1].rollout_routed_experts.copy()
        changed[position, 0, 0] ^= 1
        wrong = dataclasses.replace(rows[1], rollout_routed_experts=changed)
        assert audit([a, b, c], [rows[0], wrong]).problems, position
    with pytest.raises(MissingRoutes, match="row 0 was not recorded"):
        rows_of(a, b, call("c", [1, 9, 10, 11, 2, 5], [13, 2], start=4))


def test_a_retry_after_a_rollback_is_resolved_within_its_own_round():
    a, b = call("a", [1, 3], [10, 2]), call("b", [1, 3, 10, 2, 4], [12, 2])
    lost, again = call("lost", [1, 3], [11, 2]), call("again", [1, 3], [14, 2])
    c = call("c", [1, 3, 14, 2, 5], [13, 2])
    _, second = rows_of(a, b, lost, again, c)
    assert second.tokens.tolist() == [1, 3, 14, 2, 5, 13, 2]
    with pytest.raises(UnresolvedRetry, match=r"lost.*again"):
        rows_of(a, b, lost, again)


def test_two_answers_that_were_both_continued_are_two_branches():
    a, fork = call("a", [1, 3], [10, 2]), call("fork", [1, 3], [11, 2])
    b, c = call("b", [1, 3, 10, 2, 4], [12, 2]), call("c", [1, 3, 11, 2, 4], [13, 2])
    first, second = rows_of(a, fork, b, c)
    assert first.tokens.tolist() == [1, 3, 10, 2, 4, 12, 2] and second.tokens.tolist() == [
        1,
        3,
        11,
        2,
        4,
        13,
        2,
    ]


def test_the_continued_answer_is_found_under_every_relation():
    a, retry = call("a", [1, 3], [14, 2]), call("retry", [1, 3], [21, 22, 2])
    b = call("b", [1, 3, 23, 24, 2, 4], [13])  # retry's text in other tokens
    (row,) = rows_of(a, retry, b, text_of=text_of)
    assert row.tokens.tolist() == [1, 3, 21, 22, 2, 4, 13]
    cut = call("c", [1, 3, 14, 4], [13])  # a without its stop token
    (row,) = rows_of(a, retry, cut)
    assert row.tokens.tolist() == [1, 3, 14, 2, 4, 13] and row.spans[1].relation is NORMALIZED


def test_of_two_identical_answers_the_later_one_is_trained():
    a, retry = call("a", [1, 3], [10, 2], version=4), call("retry", [1, 3], [10, 2], version=5)
    (row,) = rows_of(a, retry, call("b", [1, 3, 10, 2, 4], [12]))
    assert [s.model_call_id for s in row.spans] == ["retry", "b"]
    assert row.weight_versions.tolist() == [-1, -1, 5, 5, -1, 4]


def test_the_longest_branch_that_matches_is_continued():
    a = call("a", [1, 3], [10, 2])
    short = call("short", [1, 3, 10, 2, 4], [11, 2], start=3)
    split = call("split", [1, 3, 10, 2, 4, 11, 2, 6], [15], start=6)  # on top of short
    other = call("other", [1, 3, 10], [2, 4, 11, 2], routes=True)  # a branch that stops earlier
    c = call("c", [1, 3, 10, 2, 4, 11, 2, 6, 15, 7], [16], start=8)
    rows = rows_of(a, short, split, other, c)
    assert [s.model_call_id for s in rows[0].spans] == ["a", "short", "split", "c"]
    assert [s.model_call_id for s in rows[1].spans] == ["other"]
    assert audit([a, short, split, other, c], rows).problems == ()


def test_a_prompt_never_continues_itself():
    # without 3's last token and with all of the sampled ids the prompt is its own prefix
    a, again = call("a", [1, 7, 7, 7], [7]), call("again", [1, 7, 7, 7], [7])
    with pytest.raises(UnresolvedRetry):
        rows_of(a, again)


@pytest.mark.parametrize(
    "shortest", ["completion_token_ids", "logprobs", "output_versions", "routed_experts"]
)
def test_an_aborted_turn_is_cut_in_one_place_wherever_it_was_torn(shortest):
    whole = call("a", [1, 3], [10, 11, 12, 13], finish_reason="abort")  # 5 rows
    kept = {"completion_token_ids": 2, "logprobs": 2, "output_versions": 2, "routed_experts": 3}
    torn = dataclasses.replace(whole, **{shortest: getattr(whole, shortest)[: kept[shortest]]})
    if shortest == "completion_token_ids":
        torn = dataclasses.replace(torn, routed_experts=torn.routed_experts[:3])
    (row,) = rows_of(torn)
    assert row.tokens.tolist() == [1, 3, 10, 11] and row.loss_mask.tolist() == [0, 0, 1, 1]
    np.testing.assert_array_equal(row.rollout_log_probs, -np.array([0, 0, 10, 11], dtype=np.float32) / 100)
    np.testing.assert_array_equal(row.rollout_routed_experts, routes(("a", 0), ("a", 1), ("a", 2)))
    assert row.weight_versions.tolist() == [-1, -1, 4, 4]
    found = audit([torn], [row])
    assert found.problems == () and found.delivered_token_frac == 1
    longer = dataclasses.replace(row, spans=(dataclasses.replace(row.spans[0], end=3),))
    assert audit([torn], [longer]).problems


def test_a_torn_turn_that_was_not_aborted_is_refused_and_rows_in_excess_always():
    whole = call("a", [1, 3], [10, 11, 12])
    with pytest.raises(ValueError, match="2 log-probs"):
        rows_of(dataclasses.replace(whole, logprobs=whole.logprobs[:2]))
    with pytest.raises(MissingRoutes, match="3 routing rows from 0, expected 4"):
        rows_of(dataclasses.replace(whole, routed_experts=whole.routed_experts[:3]))
    stale = call("a", [1, 3], [10, 11, 12], finish_reason="abort")
    with pytest.raises(MissingRoutes, match="4 routing rows from 1, expected 3"):
        rows_of(dataclasses.replace(stale, routed_experts_start=1))


def test_an_aborted_turn_with_nothing_whole_leaves_no_trace():
    torn = dataclasses.replace(
        call("a", [1, 3], [10], finish_reason="abort"), logprobs=np.zeros(0, np.float32)
    )
    (row,) = rows_of(torn, call("b", [1, 3], [11, 2]))
    assert row.tokens.tolist() == [1, 3, 11, 2]


def test_a_claim_to_continue_strictly_is_checked():
    a, b = call("a", [1, 3, 8], [10, 2]), call("b", [1, 3, 10, 4], [12])
    (row,) = rows_of(a, b)
    assert row.spans[1].relation is NORMALIZED and audit([a, b], [row]).problems == ()
    claims = dataclasses.replace(
        row, spans=(row.spans[0], dataclasses.replace(row.spans[1], relation=STRICT))
    )
    assert any("continue call a strictly" in p for p in audit([a, b], [claims]).problems)
