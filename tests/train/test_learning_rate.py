"""The learning rate of an update: worked values of each style, and what is refused."""

import pytest
from ppo_scenario import adam, make_batch, trainer

from t1core.config import OptimizerSettings
from t1core.train.adam import Adam
from t1core.train.learning_rate import LearningRate


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (LearningRate(8.0), [8, 8, 8, 8]),
        (LearningRate(8.0, warmup_steps=4), [2, 4, 6, 8, 8, 8]),
        (LearningRate(8.0, style="linear", decay_steps=4), [8, 6, 4, 2, 0, 0]),
        (LearningRate(8.0, style="linear", warmup_steps=2, decay_steps=4, floor=4.0), [4, 8, 8, 6, 4, 4]),
        (LearningRate(8.0, style="cosine", decay_steps=4, floor=4.0), [8, 7.41421356, 6, 4.58578644, 4, 4]),
    ],
)
def test_each_style_gives_its_worked_values(rate, expected):
    assert [rate.at(step) for step in range(len(expected))] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": 1e-3, "lr_decay_style": "cosine"}, "lr_decay_steps above lr_warmup_steps=0, not 0"),
        ({"lr": 1e-3, "lr_decay_style": "linear", "lr_warmup_steps": 9, "lr_decay_steps": 9}, "not 9"),
        ({"lr": 1e-3, "min_lr": 1e-2, "lr_decay_style": "linear", "lr_decay_steps": 9}, "min_lr=0.01"),
        ({"lr": 1e-3, "lr_decay_steps": 9}, "no effect on a constant rate"),
        ({"lr": 1e-3, "lr_decay_style": "step"}, "lr_decay_style"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused_by_name(settings, message):
    with pytest.raises(ValueError, match=message):
        OptimizerSettings(**settings)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"peak": 0.0}, "lr=0.0"),
        ({"peak": 1.0, "floor": 2.0}, "min_lr=2.0"),
        ({"peak": 1.0, "style": "linear"}, "lr_decay_steps"),
        ({"peak": 1.0, "style": "step"}, "lr_decay_style='step'"),
    ],
)
def test_the_schedule_itself_refuses_the_same(values, message):
    with pytest.raises(ValueError, match=message):
        LearningRate(**values)


def test_each_update_uses_the_rate_of_its_own_number(actor_path):
    falling = Adam(LearningRate(4e-3, style="linear", decay_steps=4))
    with trainer(actor_path, actor=falling, critic=adam(1e-3), critic_steps=2) as made:
        rates = []
        for step in range(3):
            batch = make_batch(num_rows=3, seed=step, version=max(0, step - 1))
            result = made.train_batch(batch, update_actor=step > 0, expected_version_lag=min(step, 1))
            made.rotate(step + 1)
            rates.append(result.metrics.get("actor/lr"))
        assert made.critic.num_steps == 6
    assert rates == pytest.approx([None, 4e-3, 3e-3])
