"""The benchmark's small form: the ways it compares make the same row, and its numbers are what they say."""

import json
import sys

import numpy as np
import pytest

from benchmarks import kept, stitch
from benchmarks.kept import Comparison
from benchmarks.regression import table


def test_every_way_makes_the_same_row_of_the_size_it_reports():
    found = stitch.measure(
        num_trials=2, num_list_trials=1, num_tokens=500, num_turns=4, num_layers=3, top_k=2
    )
    assert found["bytes_a_trial"] == 500 * (4 + 1 + 4 + 4) + 499 * 3 * 2
    ways = found["ways"]
    assert {name: way["num_trials"] for name, way in ways.items()} == {
        "stitch": 2, "memcpy": 2, "memcpy_allocating": 2, "memcpy_in_pieces": 2, "turns_alone": 2, "lists": 1,
    }  # fmt: skip
    assert ways["stitch"]["tokens_per_s"] == pytest.approx(500 / ways["stitch"]["cpu_s"])
    assert ways["memcpy_in_pieces"]["bytes_per_s"] * ways["memcpy_in_pieces"]["cpu_s"] == pytest.approx(
        499 * 3 * 2
    )
    by_against = {one.against: one for one in stitch.comparisons(found)}
    beside_lists = by_against["per-token lists"]
    assert beside_lists.ratio == pytest.approx(ways["lists"]["cpu_s"] / ways["stitch"]["cpu_s"])
    assert (
        list(by_against)[-1] == "memcpy of the same bytes"
        and by_against["memcpy of the same bytes"].target == 0.3
    )


def test_a_way_that_makes_another_row_stops_the_benchmark(monkeypatch):
    honest = stitch.stitch_lists

    def forgetful(calls):
        made = honest(calls)
        return made | {"loss_mask": np.zeros_like(made["loss_mask"])}

    monkeypatch.setattr(stitch, "stitch_lists", forgetful)
    with pytest.raises(AssertionError, match="disagree about loss_mask"):
        stitch.measure(num_trials=1, num_list_trials=1, num_tokens=500, num_turns=4, num_layers=1, top_k=2)


def test_the_command_ends_with_ratio_and_limit_and_keeps_them_when_asked(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(kept, "FRESH", tmp_path / "fresh")
    monkeypatch.setattr(kept, "KEPT", tmp_path / "kept")
    options = ["--num-trials", "1", "--num-list-trials", "1", "--num-tokens", "300", "--num-turns", "3"]
    for more in ([], ["--keep"]):
        monkeypatch.setattr(sys, "argv", ["stitch.py", *options, *more])
        stitch.main()
    written = json.loads((tmp_path / "kept" / "stitch.json").read_text())
    assert written["parameters"]["num_tokens"] == 300 and written["machine"]["numpy"] == np.__version__
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("stitching with routes against memcpy of the same bytes: ") and "limit" in last
    lines = list(table(tmp_path / "kept", tmp_path / "fresh"))
    assert len(lines) == 5 and all(line.split()[0] == "stitch" for line in lines[1:])


def test_a_ratio_is_held_against_its_target_from_the_right_side():
    speed = Comparison("copying", "memcpy", "GB/s", 4.0, 10.0, is_more_better=True, target=0.3)
    size = Comparison("packing", "the least", "B", 12.0, 10.0, is_more_better=False, target=1.1)
    assert (speed.ratio, speed.holds, size.ratio, size.holds) == (0.4, True, 1.2, False)
    assert size.line() == (
        "packing against the least: 12 B, limit 10 B, ratio 1.200; target at most 1.1: missed"
    )
    assert Comparison("a", "b", "s", 1.0, 2.0, is_more_better=False).holds is None


def test_the_regression_table_counts_better_as_plus_in_both_directions(tmp_path):
    def write(name, *ratios, size=1):
        told = [
            {"what": w, "against": "x", "ratio": r, "is_more_better": m, "target": None, "holds": None}
            for (w, m), r in zip((("speed", True), ("time", False)), ratios, strict=False)
        ]
        (tmp_path / name).mkdir()
        (tmp_path / name / "b.json").write_text(
            json.dumps({"parameters": {"size": size}, "comparisons": told})
        )

    write("kept", 0.5, 2.0)
    write("fresh", 0.6, 2.2)
    _, speed, time = table(tmp_path / "kept", tmp_path / "fresh")
    assert speed.split()[:4] == ["b", "0.500", "0.600", "+20.0%"]
    assert time.split()[:4] == ["b", "2.000", "2.200", "-10.0%"]
    write("larger", 0.6, 2.2, size=2)
    _, speed, time = table(tmp_path / "kept", tmp_path / "larger")
    assert speed.split()[3] == time.split()[3] == "other"
    write("other", 0.5)
    _, speed, time = table(tmp_path / "kept", tmp_path / "other")
    assert time.split()[:4] == ["b", "2.000", "-", "-"]
