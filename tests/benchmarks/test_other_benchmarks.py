"""Small forms of the benchmarks that need real parts: what they count is what they say."""

import asyncio

import pytest

from benchmarks import box_open, coordinator, cpu_step, embedded, grading, overlap, store_step
from tests.notebooks.run_by_hand import write_run


def test_a_steps_record_has_all_bytes_of_its_batch_and_both_ways_are_timed():
    found = store_step.measure(num_trials=2, num_tokens=200, num_turns=3, num_rounds=1)
    assert found["num_bytes"] > 2 * (199 * 48 * 8 + 200 * 4 * 5)
    assert all(found[f"{way}_{kind}_s"] > 0 for way in ("record", "parquet") for kind in ("cpu", "wall"))


def test_a_live_box_holds_memory_and_opening_one_takes_longer_than_a_bare_bwrap():
    found = asyncio.run(box_open.measure(num_pairs=1, num_live=1))
    assert found["bytes_a_live_box"] > 2**18
    assert found["box_cpu_s"] >= 0 and found["box_wall_s"] > 0 and found["bare_wall_s"] > 0


def test_a_bare_command_that_fails_is_no_measurement(monkeypatch):
    monkeypatch.setattr(box_open, "_BARE", ("--ro-bind", "/", "/", "false"))
    with pytest.raises(AssertionError):
        asyncio.run(box_open.bare())


def test_a_grade_and_bare_pytest_pass_the_same_tests():
    found = asyncio.run(grading.measure(num_pairs=1))
    assert found["num_tests"] >= 3 and found["grade_cpu_s"] > 0 and found["bare_cpu_s"] > 0


def test_the_engine_and_generate_sample_as_many_tokens_over_all_turns():
    found = embedded.measure(num_trials=2, num_turns=2, num_prompt=8, num_context=3, num_new=2, num_rounds=1)
    assert found["engine_tokens_per_s"] > 0 and found["generate_tokens_per_s"] > 0


def test_the_exponent_of_a_square_is_two_whatever_its_unit():
    assert coordinator.exponent({10: 3e-6 * 10**2, 70: 3e-6 * 70**2, 900: 3e-6 * 900**2}) == pytest.approx(
        2.0
    )


def test_coordinating_is_measured_at_each_size_and_loses_no_trial():
    found = coordinator.measure(sizes=(10, 20), num_steps=2)
    for size, step in found["by_size"].items():
        assert step["launched"] == step["accepted"] + step["cut"] + step["surplus"] == size
        assert step["accepted"] == 0.9 * size and step["coordinator_cpu_s"] > 0


def test_a_training_step_holds_its_products_and_more():
    found = cpu_step.measure(num_rows=2, length=16, num_steps=1)
    assert found["num_products"] > 100 and 0 < found["products_alone_s"] < found["step_s"]
    assert "aten::mm" in {one["name"] for one in found["largest"]}


def test_a_step_is_set_beside_its_longer_side_and_the_cores_beside_what_was_used(tmp_path):
    # By hand: 4 s a step, rollout 3 and training 2; 1 + 0.5 + 2 + 1.5 + 0.1 CPU s of the 8 that two cores have.
    found = overlap.measure(write_run(tmp_path), num_cpus=2)
    assert found["num_steps"] == 4 and found["step_s"] == 4.0 and found["longer_side_s"] == 3.0
    assert found["ratio_by_step"] == pytest.approx([4 / 3] * 4)
    assert found["processors_used"] == pytest.approx(5.1 / 8)
