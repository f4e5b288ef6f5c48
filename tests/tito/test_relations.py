"""The search for a relation against trying everything, and places in a prompt that its renderer told."""

import numpy as np
import pytest

from t1core.records import PrefixRelation
from t1core.tito import audit, relation
from t1core.tito.relation import match_normalized, match_strict
from tests.tito.calls_by_hand import call, routes, rows_of, text_of

STRICT, NORMALIZED, RETOKENIZED, SPLIT = PrefixRelation


def brute_force(prompt, sampled, later):
    best = None
    for s in range(min(96, len(prompt)) + 1):
        for u in range(min(16, len(sampled) // 2) + 1):
            kept = prompt[: len(prompt) - s] + sampled[: len(sampled) - u]
            if kept == later[: len(kept)] and (best is None or (s + u, u) < best[:2]):
                best = (s + u, u, len(kept))
    return best


@pytest.mark.parametrize(("longest", "num_symbols"), [(30, 2), (130, 2), (130, 3)])
def test_the_search_over_trims_equals_trying_all_1649_of_them(longest, num_symbols):
    rng, num_matches = np.random.default_rng(longest + num_symbols), 0
    for _ in range(250):
        prompt, sampled = (rng.integers(0, num_symbols, rng.integers(1, longest)).tolist() for _ in range(2))
        # half of the prompts end periodically, where many columns of the grid look alike
        if rng.integers(2):
            prompt, sampled = prompt + sampled[: rng.integers(1, 40)] * 2, sampled[:2] * 20 + sampled
        s, u = rng.integers(0, min(100, len(prompt)) + 1), rng.integers(0, min(20, len(sampled)) + 1)
        kept = prompt[: len(prompt) - s] + sampled[: len(sampled) - u]
        later = kept + rng.integers(0, num_symbols, 5).tolist()
        arrays = [np.array(x, dtype=np.int32) for x in (prompt, sampled, later)]
        if match_strict(*arrays[:2], later=arrays[2]):
            continue
        found, expected = match_normalized(*arrays[:2], later=arrays[2]), brute_force(prompt, sampled, later)
        assert (found is None) == (expected is None)
        if found:
            num_matches += 1
            assert (found.prompt_trim + found.output_trim, found.output_trim, found.matched) == expected
    assert num_matches > 100


def test_the_search_compares_once_where_the_brute_force_compares_1649_times(monkeypatch):
    rng = np.random.default_rng(0)
    prompt, sampled = rng.integers(0, 50_000, 20_000), rng.integers(0, 50_000, 400)
    later = np.concatenate([prompt[:-9], sampled[:-3], rng.integers(0, 50_000, 100)])
    compared = []
    counted = relation.common_prefix
    monkeypatch.setattr(
        relation, "common_prefix", lambda a, b: compared.append(min(len(a), len(b))) or counted(a, b)
    )
    found = match_normalized(prompt, sampled, later=later)
    assert found is not None and (found.prompt_trim, found.output_trim) == (9, 3)
    assert compared == [20_000, 400]  # the prompts once, the sampled ids once


def test_the_offsets_of_the_rendering_tell_where_a_retokenised_turn_stands():
    # "ec" "ho hi" <e> was sampled behind the generation prompt 7 8; history renders it as "echo" " hi" <e> behind 7 9
    a = call("a", [1, 3, 7, 8], [21, 22, 2])
    b = call("b", [1, 3, 7, 9, 23, 24, 2, 4, 7, 8], [13], copied=[("a", 4, 6)])
    (row,) = rows_of(a, b, text_of=text_of)
    assert row.tokens.tolist() == [1, 3, 7, 8, 21, 22, 2, 4, 7, 8, 13]
    assert row.loss_mask.tolist() == [0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1]
    assert [s.relation for s in row.spans] == [STRICT, RETOKENIZED]
    # row 6 (token 2, never forwarded as sampled) copies its neighbour; b forwarded its context from position 7 on
    expected = [("a", j) for j in range(6)] + [("a", 5)] + [("b", j) for j in range(7, 10)]
    np.testing.assert_array_equal(row.rollout_routed_experts, routes(*expected))
    found = audit([a, b], [row], text_of=text_of)
    assert found.problems == () and found.relations == {RETOKENIZED: 1} and found.delivered_token_frac == 1
    assert len(rows_of(a, call("b", [1, 3, 7, 9, 23, 24, 2, 4, 7, 8], [13]), text_of=text_of)) == 2


@pytest.mark.parametrize(
    "copied", [("a", 4, 5), ("a", 5, 6), ("other", 4, 6)], ids=["too short", "too late", "another call"]
)
def test_a_place_that_does_not_hold_the_text_is_not_believed(copied):
    a = call("a", [1, 3, 7, 8], [21, 22, 2])
    b = call("b", [1, 3, 7, 9, 23, 24, 2, 4, 7, 8], [13], copied=[copied])
    assert [row.spans[0].relation for row in rows_of(a, b, text_of=text_of)] == [STRICT, SPLIT]


def test_the_same_text_in_another_place_of_the_history_is_not_the_turn():
    a = call("a", [1] * 120, [21, 22])
    later = [1] * 120 + [5] * 100 + [23, 24, 4]
    b = call("b", later, [13], copied=[("a", 220, 222)])
    assert len(rows_of(a, b, text_of=text_of)) == 2
