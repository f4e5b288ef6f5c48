"""GatedDeltaNet over two and four ranks of gloo gives what one rank gives: one launch, looked at from several sides."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gdn_ranks
import pytest
import torch

from t1core.model import forward
from t1core.model.checkpoint import init_hf
from t1core.model.context_slices import cut, slice_bounds

DEADLINE_S = 900
OPERATOR_GRADIENT = 1.2e-7
# A weight's gradient is summed over ranks, in another order than over positions.
WEIGHT_GRADIENT = 1e-6
# What reordering does to so few numbers can be luckily small.
LEAST = {"logprobs": 1e-6, "gradients": 5e-5}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("gdn")
    init_hf(gdn_ranks.SHAPE, directory / "checkpoint", seed=3)
    job = {
        "checkpoint": str(directory / "checkpoint"),
        "store": str(directory / "store"),
        "out": str(directory / "found.json"),
    }
    (directory / "job.json").write_text(json.dumps(job))
    done = subprocess.run(
        [sys.executable, str(Path(gdn_ranks.__file__)), str(directory / "job.json")],
        env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads((directory / "found.json").read_text())


def test_handing_the_state_on_gives_the_bits_of_one_rank(found: dict[str, Any]) -> None:
    for what, apart in found["operator"].items():
        if what.endswith(", state"):
            print(what, apart)
            assert apart["forward"] == 0.0, what
            assert max(apart[name] for name in ("qkv", "g", "beta")) <= OPERATOR_GRADIENT, (what, apart)
            assert apart["conv"] <= WEIGHT_GRADIENT, (what, apart)


def test_composing_states_agrees_up_to_reassociation(found: dict[str, Any]) -> None:
    scans = {what: apart for what, apart in found["operator"].items() if what.endswith("state_scan")}
    for what, apart in scans.items():
        assert max(apart.values()) < 1e-6, (what, apart)
    assert max(apart["forward"] for apart in scans.values()) > 0, "a scan that reassociates nothing"


def test_a_fault_in_the_handover_shows(found: dict[str, Any]) -> None:
    rounded, forgotten = found["fault"]["state in bf16"], found["fault"]["no gradient of the state"]
    assert rounded["forward"] > 1e-5
    assert forgotten["forward"] == 0.0
    assert min(forgotten[name] for name in ("qkv", "g", "beta", "conv")) > 1e-3


def test_networks_agree_within_what_reordering_does_to_one_rank(found: dict[str, Any]) -> None:
    bar = {name: 5 * max(found["floor"][name], LEAST[name]) for name in LEAST}
    ways = {f"network, {way}": apart for way, apart in found["network"].items()}
    for what, apart in (ways | {"masked": found["masked"], "filler": found["filler"]}).items():
        print(what, apart, "bar", bar)
        assert all(apart[name] <= bar[name] for name in bar), (what, apart, bar)


def test_slices_are_cut_on_the_chunk_grid_of_their_rows() -> None:
    # Ideal bounds 128, 256, 384: the second lies 112 = 7 * 16 tokens into the row that starts at 144.
    assert slice_bounds([136, 8, 264, 40, 64], cp=4, chunk=16) == [0, 128, 256, 384, 512]
    # 10 and 20 are nearest to 16 tokens into the row, 30 to 32.
    assert slice_bounds([40], cp=4, chunk=16) == [0, 16, 16, 32, 40]
    # A bound nearer to the row's end than to its grid falls on the end: 30 of 31.
    assert slice_bounds([31, 29], cp=2, chunk=16) == [0, 31, 60]


def test_a_slice_knows_whose_state_it_takes_and_who_takes_its_own() -> None:
    rows = forward.packed(torch.tensor([0, 24, 64]))
    ranks = [cut(rows, cp=4, rank=rank, chunk=16) for rank in range(4)]
    # bounds 0, 16, 24 (32 lies half-way between 24 and 40: the even multiple), 56, 64
    assert [each.rows.lengths for each in ranks] == [[16], [8], [32], [8]]
    assert [(each.before, each.after) for each in ranks] == [(None, 1), (0, None), (None, 3), (2, None)]
    assert [each.is_one_piece for each in ranks] == [False] * 4
    for each in ranks:
        assert sum(each.sends) == 16 and sum(each.receives) == sum(each.rows.lengths)
