"""The mechanisms of the cases that are sums over tokens, turns and trials: numbers worked by hand."""

import numpy as np
import pytest

from t1core.failures import length_farming, skim_counter, summary_room, wrong_reducer
from t1core.rollout.skim import StepRollout
from t1core.verifier.shaping import LengthShaping


def test_a_summary_fails_where_its_prompt_lies_between_what_is_unwound_and_what_fits():
    """A window of 100, an answer of 30, asked for below 20 free, unwound to 5: above 80, and it fits up to 70."""
    rule = summary_room.SummaryRule(window=100, trigger_free=20, unwound_free=5, answer=30)
    pairs = [np.array(sizes + [100] * 3) for sizes in ([40, 41], [60, 38], [69, 32])]
    found = summary_room.asked_summaries(pairs, rule=rule)
    assert found["prompt"].tolist() == [81, 98, 101]
    assert found["asked"].tolist() == [81, 60, 69]
    assert found["needs"].tolist() == [111, 90, 99]
    assert found["fits"].tolist() == [False, True, True]
    before = summary_room.asked_before_sending(pairs, trigger=70, rule=rule)
    assert before["asked"].tolist() == [40, 60, 69] and before["fits"].all()


def test_the_wrong_mean_is_the_true_one_times_the_tokens_of_a_micro_batch():
    """Four rows of 100 tokens, gaps of 0.5: two rows a micro-batch make 100, one makes 50."""
    lengths = np.full(4, 100)
    found = wrong_reducer.by_micro_batches(np.full(400, 0.5), lengths=lengths, caps=[200, 100])
    assert found["micro_batches"].tolist() == [2, 4]
    assert found["reported"].tolist() == [100.0, 50.0]


def test_tests_come_with_turns():
    assert length_farming.tests_at(np.array([5, 25, 50, 100])).tolist() == [0.8, 4.0, 5.0, 7.0]


@pytest.mark.parametrize(("kind", "low", "high"), [("additive", 60, 100), ("multiplicative", 15, 40)])
def test_a_policy_follows_what_its_reward_pays(kind, low, high):
    curve = length_farming.mean_turns(LengthShaping(kind=kind), steps=200, batch=256, lr=4.0, seed=1)
    assert 25 < curve["turns"].iloc[0] < 40
    assert low < curve["turns"].tail(40).mean() < high


def _step() -> StepRollout:
    planned = skim_counter.planned_trials({"quick": (9, 0.02, 0.5), "slow": (3, 5.0, 0.5)}, seed=0)
    return skim_counter.run_step(planned, accept=9)


def test_the_faulty_counter_knows_only_the_batch(tmp_path):
    rollout = _step()
    assert rollout.launched == 12 and len(rollout.cut) == 3
    assert {trial.trajectory.family for trial in rollout.cut} == {"slow"}
    assert skim_counter.counted_at_the_end(rollout.accepted) == {"trials": 9, "lost": 0}
    true = {"launched": 12, "accepted": 9, "cut": 3}
    assert skim_counter.stored_accounting(tmp_path / "true", rollout, counted=true).holds
    for wrong in ({"launched": 9, "accepted": 9}, {"launched": 12, "accepted": 12}, {"launched": 12}):
        folder = tmp_path / "-".join(map(str, wrong.values()))
        assert not skim_counter.stored_accounting(folder, rollout, counted=wrong).holds
