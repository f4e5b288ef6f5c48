"""Splitting GPUs over rollout and training: the formula, the straggler, and trial by trial."""

import itertools

import pytest

from t1core.capacity.throughput import Trials, best_split, rollout_time, simulate, split


def test_the_best_split_gives_each_half_its_share_of_the_work() -> None:
    # n* = G R / (R + C) = 90 x 1 / 3
    best = best_split(rollout=100, train=200, num_gpus=90)
    assert best.num_rollout == 30
    assert best.rollout == best.train == best.step == pytest.approx(100 / 30)
    assert split(10, rollout=100, train=200, num_gpus=90).step == 10


def test_engines_of_several_gpus_are_not_divided() -> None:
    best = best_split(rollout=100, train=200, num_gpus=90, multiple=8)
    assert best.num_rollout == 32 and best.step == pytest.approx(200 / 58)
    with pytest.raises(ValueError, match="8 GPUs cannot be split into two halves with engines of 8"):
        best_split(rollout=1, train=1, num_gpus=8, multiple=8)


def test_beyond_the_straggler_more_sampling_buys_nothing() -> None:
    free = best_split(rollout=1024, train=2624, num_gpus=1024)
    tailed = best_split(rollout=1024, train=2624, num_gpus=1024, tail=10.0)
    assert free.step < 4 < 10 == tailed.step
    # Of all splits that the tail makes equal, the one that samples least: 1024 / 10 GPUs.
    assert tailed.num_rollout == 103


def test_a_slot_takes_the_next_trial_when_it_is_free() -> None:
    # Two slots: 3 and 1 start; 1 ends, 4 runs until 5; 3 ends, 2 runs until 5. Ends: 1, 3, 5, 5.
    durations = [3.0, 1.0, 4.0, 2.0]
    assert rollout_time(durations, num_gpus=2, slots=1, accepted=4) == 5
    assert rollout_time(durations, num_gpus=1, slots=2, accepted=2) == 3
    assert rollout_time(durations, num_gpus=9, slots=9, accepted=3) == 3
    with pytest.raises(ValueError, match="accepted=5"):
        rollout_time(durations, num_gpus=1, slots=1, accepted=5)


def test_equal_trials_follow_the_formula_and_uneven_ones_do_not() -> None:
    even = Trials(median=2.0, sigma=0.0, launched=512, accepted=512, slots=8)
    assert even.gpu_time == 128
    for found in simulate(even, train=512, num_gpus=96, multiple=16, num_seeds=1):
        # whole waves of 8 trials a GPU
        assert found.rollout == 2.0 * -(-512 // (8 * found.num_rollout))
    uneven = simulate(Trials(median=2.0, sigma=1.0, slots=8), train=512, num_gpus=1024, num_seeds=2)
    assert len(uneven) == 70  # a slot for each of 560 trials; no GPU beyond that makes rollout shorter
    assert min(each.rollout for each in uneven) > 3.5 * 2.0
    dropped = Trials(median=2.0, sigma=1.0, slots=8, accepted=560)
    whole = simulate(dropped, train=512, num_gpus=1024, num_seeds=2)
    assert min(each.rollout for each in whole) > 1.5 * min(each.rollout for each in uneven)


def test_a_thousand_gpus_are_simulated() -> None:
    found = simulate(
        Trials(median=16.0, sigma=0.6, launched=2240, accepted=2048, slots=4),
        train=8 * 41 * 64,
        num_gpus=1024,
        multiple=8,
        num_seeds=1,
    )
    assert found[-1].num_rollout == 560
    steps = [each.step for each in found]
    best = steps.index(min(steps))
    assert 0 < best < len(steps) - 1
    assert all(b <= a * 1.001 for a, b in itertools.pairwise(steps[: best + 1]))
