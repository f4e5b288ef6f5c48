"""The benchmark's small form: slices of one process give what the whole gives, and a fault shows in its numbers."""

import json
import sys

import pytest
import torch

from benchmarks import gdn_context_parallel as benchmark
from t1core.model import cpu_shim

SIZES = dict(key_heads=1, value_heads=2, head_dim=8, chunk=16)


@pytest.fixture(scope="module")
def case() -> benchmark.Operator:
    cpu_shim.install()
    return benchmark.make_operator(128, **SIZES, device="cpu")


def test_slices_in_turn_are_the_whole_and_composed_ones_nearly(case: benchmark.Operator) -> None:
    found = benchmark.operator_report(case, num_slices=[2, 4], repeats=1)
    for count in ("2 slices", "4 slices"):
        in_turn, composed = found[count]["state"], found[count]["state_scan"]
        assert (
            in_turn["forward_is_bit_exact"] and max(in_turn[name] for name in ("qkv", "g", "beta")) < 1.2e-7
        )
        assert max(composed[name] for name in ("forward", "qkv", "g", "beta")) < 1e-6
        assert found[count]["slice_seconds"] > 0 and found[count]["slice_peak_bytes"] is None


def test_a_state_that_is_not_handed_on_shows(
    case: benchmark.Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark.InTurn, "arrive", lambda self, own_map: None)
    found = benchmark.operator_report(case, num_slices=[2], repeats=1)["2 slices"]["state"]
    assert not found["forward_is_bit_exact"] and found["forward"] > 1e-3


def test_cuts_off_the_chunk_grid_are_refused(case: benchmark.Operator) -> None:
    with pytest.raises(AssertionError, match="chunk grid"):
        benchmark.operator_report(case, num_slices=[16], repeats=1)


def test_the_command_writes_what_it_measured(tmp_path, monkeypatch, capsys) -> None:
    sizes = {
        "tokens": 64,
        "slices": 2,
        "chunk": 16,
        "key-heads": 1,
        "value-heads": 1,
        "head-dim": 8,
        "repeats": 1,
    }
    options = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    monkeypatch.setattr(sys, "argv", ["gdn.py", *options, "--output", str(tmp_path / "gdn.json")])
    benchmark.main()
    written = json.loads((tmp_path / "gdn.json").read_text())
    assert written["operator"][0]["tokens"] == 64 and written["torch"] == torch.__version__
    assert written["layer"] == written["fla"] == []
    assert '"forward_is_bit_exact": true' in capsys.readouterr().out


@pytest.mark.slow
def test_ranks_compare_every_way_with_one_rank() -> None:
    job = dict(SIZES, key_heads=2, value_heads=2, hidden=32, tokens=64, repeats=1, device="cpu", world=2)
    found = benchmark.layers(job)
    assert set(benchmark.WAYS) < set(found)
    for way in benchmark.WAYS:
        assert found[way]["forward"] < 1e-5 * max(1.0, found[way]["scale"]), way
        assert found[way]["gradient"] < 1e-4, way
