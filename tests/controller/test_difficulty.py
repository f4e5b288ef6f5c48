"""Scheduling by predicted duration and by difficulty, by hand, and what is said of it."""

from types import SimpleNamespace

import pytest

from t1core.config import load_config
from t1core.controller.schedule import draw_tasks, schedule_metrics, step_specs
from t1core.metrics import check_names
from t1core.rollout.estimates import TaskEstimates

TASKS = [
    SimpleNamespace(task_id=f"t{i}", family="easy" if i < 50 else "open", split="train") for i in range(100)
]
# The policy solves every easy task, and half of each open one.
ESTIMATES = TaskEstimates(progress={task.task_id: 1.0 if task.family == "easy" else 0.5 for task in TASKS})


class Pool:
    def split(self, name):
        return TASKS

    def task(self, entry):
        return entry

    def stretch(self, split, *, seed, start, count, shuffle):
        return TASKS[start : start + count]


def config(*overrides):
    return load_config("smoke", overrides)


def test_tasks_that_teach_nothing_are_launched_at_the_floors_rate_and_every_task_in_turn():
    settings = config("schedule.by_difficulty=true", "schedule.weight_floor=0.25")
    draw = draw_tasks(settings, Pool(), start=0, count=6000, estimates=ESTIMATES)
    counts = {task.task_id: 0 for task in TASKS}
    for task in draw.tasks:
        counts[task.task_id] += 1
    epochs = draw.position / len(TASKS)
    # 0.25 / 1.25 of the epochs, and all of them; about 100 epochs are walked for 6,000 tasks.
    assert epochs == pytest.approx(100, rel=0.05)
    easy = sum(counts[f"t{i}"] for i in range(50)) / 50 / epochs
    assert easy == pytest.approx(0.2, abs=0.02) and min(counts.values()) > 5
    assert all(epochs - 1 <= counts[f"t{i}"] <= epochs + 1 for i in range(50, 100))
    again = draw_tasks(settings, Pool(), start=0, count=6000, estimates=ESTIMATES)
    assert [task.task_id for task in again.tasks] == [task.task_id for task in draw.tasks]


def test_the_walk_goes_on_where_it_was():
    settings = config("schedule.by_difficulty=true")
    whole = draw_tasks(settings, Pool(), start=0, count=40, estimates=ESTIMATES)
    first = draw_tasks(settings, Pool(), start=0, count=15, estimates=ESTIMATES)
    rest = draw_tasks(settings, Pool(), start=first.position, count=25, estimates=ESTIMATES)
    assert [*first.tasks, *rest.tasks] == whole.tasks and rest.position == whole.position


def test_its_effect_is_said_also_when_it_is_off():
    estimates = ESTIMATES
    plain = draw_tasks(config(), Pool(), start=0, count=100, estimates=estimates)
    specs = step_specs(config(), plain.tasks, step=0, estimates=estimates)
    told = schedule_metrics(plain, specs, estimates=estimates)
    assert told == {
        "schedule/passed_over": 0, "schedule/family_distance": 0, "schedule/uncertainty_mean": 0.5,
        "schedule/uncertainty_walked_mean": 0.5, "schedule/moved_frac": 0,
    }  # fmt: skip
    check_names(told)
    on = config("schedule.by_difficulty=true")
    drawn = draw_tasks(on, Pool(), start=0, count=600, estimates=estimates)
    told = schedule_metrics(
        drawn, step_specs(on, drawn.tasks, step=0, estimates=estimates), estimates=estimates
    )
    # Of 1,000 walked, half of each family, 100 easy and 500 open ones are launched: 5/6 - 1/2.
    assert told["schedule/family_distance"] == pytest.approx(1 / 3, abs=0.03)
    assert told["schedule/uncertainty_mean"] == pytest.approx(5 / 6, abs=0.03)
    assert told["schedule/passed_over"] == pytest.approx(400, abs=60)


def test_the_longest_are_launched_first_and_keep_their_names_and_seeds():
    estimates = TaskEstimates(task_s={"t0": 5.0, "t1": 20.0, "t2": 10.0})
    plain = step_specs(config(), TASKS[:4], step=0, estimates=estimates)
    ordered = step_specs(config("schedule.longest_first=true"), TASKS[:4], step=0, estimates=estimates)
    assert [spec.task.task_id for spec in ordered] == ["t3", "t1", "t2", "t0"]
    assert sorted(ordered, key=lambda spec: spec.trial_id) == plain
    draw = draw_tasks(config(), Pool(), start=0, count=4, estimates=estimates)
    assert schedule_metrics(draw, ordered, estimates=estimates)["schedule/moved_frac"] == 0.5


def test_groups_move_as_a_whole():
    estimates = TaskEstimates(task_s={"t0": 5.0, "t1": 20.0})
    settings = config(
        *("schedule.longest_first=true", "rollout.samples_per_task=2"),
        *("rollout.over_sampling_batch_size=4", "rollout.max_live_trials=4"),
    )
    specs = step_specs(settings, TASKS[:2], step=0, estimates=estimates)
    assert [(spec.task.task_id, spec.group) for spec in specs] == [("t1", 1)] * 2 + [("t0", 0)] * 2


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["schedule.weight_floor=0.5"], "has no effect with by_difficulty=false"),
        (["rollout.deterministic=true", "rollout.tail=wait", "schedule.longest_first=true"], "come from the clock"),
        (["rollout.deterministic=true"], "set tail='wait'"),
        (["rollout.tail=continue"], "max_staleness=1"),
        (["rollout.max_staleness=2"], "has no effect with tail='cut'"),
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other_are_refused(overrides, told):
    with pytest.raises(ValueError, match=told):
        load_config("smoke", overrides)
