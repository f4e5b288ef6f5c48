"""The mechanisms of the cases that are about processes, loops, clocks and files."""

from t1core.agent.context import capped_line
from t1core.failures import halved_budget, one_loop, open_files, trial_names


def test_tasks_beyond_the_limit_are_lost_to_the_loop_of_the_first_that_waits():
    found = one_loop.under_a_semaphore(9, at_once=3)
    assert found == {"done": 3, "gave up waiting": 1, "RuntimeError: is bound to a different event loop": 5}
    assert one_loop.under_a_semaphore(3, at_once=3) == {"done": 3}
    assert one_loop.under_a_pacer(9, rate_per_s=1000) == {"done": 9}


def test_a_process_opens_as_many_boxes_as_its_descriptors_allow():
    stuck = open_files.open_boxes(16, soft=40, hard=40, check=False)
    assert 0 < stuck.opened < 10 and stuck.polls == 5 and "Too many open files" in stuck.error
    refused = open_files.open_boxes(16, soft=40, hard=40, check=True)
    assert refused.opened == 0 and "16 boxes x 4 descriptors + 64 = 128" in refused.refused
    raised = open_files.open_boxes(16, soft=40, hard=4096, check=True)
    assert (raised.opened, raised.polls, raised.error) == (16, 0, "")


def test_a_trial_that_needs_more_than_half_its_time_ends_by_the_clock_under_half_of_it():
    how = dict(cap_s=7200.0, unit_s=3e-4, seed=3)
    halved = halved_budget.run_trials([3600.0, 7200.0], divisor=2, **how)
    assert halved["stop"].tolist() == ["agent timeout"] * 2
    assert halved["budget_s"].tolist() == [1800.0, 3600.0]
    whole = halved_budget.run_trials([3600.0, 7200.0], divisor=1, **how)
    assert whole["stop"].tolist() == ["completed"] * 2


def test_only_a_cap_that_takes_time_is_mentioned():
    told = dict(what="agent", asked_s=[None, 60.0, 120.0], setting="agent.agent_timeout_s")
    assert capped_line(**told, cap_s=120.0) is None
    assert capped_line(**told, cap_s=90.0) == (
        "1 of 3 tasks ask for more agent time (120 to 120 s) than agent.agent_timeout_s=90 allows: they get 90 s"
    )


def test_a_report_of_another_model_is_read_where_this_one_wrote_none(tmp_path):
    tasks = [f"task-{number}" for number in range(20)]
    first = trial_names.Evaluated("first", passes=1.0, verifier_dies=0.0)
    second = trial_names.Evaluated("second", passes=0.0, verifier_dies=0.5)
    assert trial_names.evaluate(first, tasks=tasks, jobs=tmp_path, seed=0)["reward"].tolist() == [0.2] * 20
    shared = trial_names.evaluate(second, tasks=tasks, jobs=tmp_path, seed=0)
    stale = shared[~shared["wrote"]]
    assert 0 < len(stale) < 20
    assert set(stale["read_from"]) == {"first"} and set(stale["reward"]) == {0.2}
    assert set(shared[shared["wrote"]]["reward"]) == {0.0}
    apart = trial_names.evaluate(second, tasks=tasks, jobs=tmp_path / "own", seed=0)
    assert apart["reward"].isna().tolist() == (~apart["wrote"]).tolist()
