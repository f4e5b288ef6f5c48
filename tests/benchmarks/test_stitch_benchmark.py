"""The benchmark's small form: the ways it compares make the same row, and its numbers are what they say."""

import json
import sys

import numpy as np
import pytest

from benchmarks import stitch


def test_every_way_makes_the_same_row_of_the_size_it_reports():
    found = stitch.measure(
        num_trials=2, num_list_trials=1, num_tokens=500, num_turns=4, num_layers=3, top_k=2
    )
    assert found["bytes_a_trial"] == 500 * (4 + 1 + 4 + 4) + 499 * 3 * 2
    assert set(found["ways"]) == {"stitch", "memcpy", "memcpy_allocating", "lists"}
    assert [way["num_trials"] for way in found["ways"].values()] == [2, 2, 2, 1]
    ways = found["ways"]
    assert found["speed_over"]["lists"] == pytest.approx(ways["lists"]["cpu_s"] / ways["stitch"]["cpu_s"])
    assert ways["stitch"]["tokens_per_s"] == pytest.approx(500 / ways["stitch"]["cpu_s"])


def test_a_way_that_makes_another_row_stops_the_benchmark(monkeypatch):
    honest = stitch.stitch_lists

    def forgetful(calls):
        made = honest(calls)
        return made | {"loss_mask": np.zeros_like(made["loss_mask"])}

    monkeypatch.setattr(stitch, "stitch_lists", forgetful)
    with pytest.raises(AssertionError, match="disagree about loss_mask"):
        stitch.measure(num_trials=1, num_list_trials=1, num_tokens=500, num_turns=4, num_layers=1, top_k=2)


def test_the_command_writes_its_numbers_with_the_machine(monkeypatch, tmp_path, capsys):
    options = ["--num-trials", "1", "--num-list-trials", "1", "--num-tokens", "300", "--num-turns", "3"]
    monkeypatch.setattr(sys, "argv", ["stitch.py", *options, "--output", str(tmp_path / "stitch.json")])
    stitch.main()
    written = json.loads((tmp_path / "stitch.json").read_text())
    assert written["parameters"]["num_tokens"] == 300 and written["machine"]["numpy"] == np.__version__
    assert "times the speed of memcpy" in capsys.readouterr().out
