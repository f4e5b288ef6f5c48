"""Every way of spreading the network over ranks trains the same network as one process does.

The yardstick is reordering: cutting the recurrence into chunks of another size changes but the order of sums.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

WORKER = Path(__file__).with_name("layout_worker.py")
DEADLINE_S = 150


@dataclass(frozen=True)
class Outcome:
    losses: list[float]
    grad_norms: list[float]
    state: dict[str, torch.Tensor]
    before: dict[str, torch.Tensor]

    def distance(self, other: "Outcome") -> tuple[float, float, float]:
        """Largest difference of losses, relative of gradient norms, and of parameters."""
        loss = max(abs(a - b) for a, b in zip(self.losses, other.losses, strict=True))
        norm = max(abs(a / b - 1) for a, b in zip(self.grad_norms, other.grad_norms, strict=True))
        assert self.state.keys() == other.state.keys()
        params = max(float((self.state[k] - other.state[k]).abs().max()) for k in other.state)
        return loss, norm, params


Run = Callable[..., Outcome]


@pytest.fixture(scope="module")
def run(hf_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Train in a world of its own; results are kept, so that a reference runs once."""
    kept: dict[str, Outcome] = {}

    def start(world: int, *, replay: bool = True, role: str = "actor", **job: Any) -> Outcome:
        layout = {key: job.pop(key) for key in ("tp", "pp", "cp", "ep") if key in job}
        key = json.dumps([world, replay, role, layout, job])
        if key not in kept:
            out = tmp_path_factory.mktemp("run")
            job |= {
                "layout": layout,
                "replay": replay,
                "role": role,
                "out": str(out),
                "store": str(out / "store"),
            }
            job["checkpoint"] = str(hf_directory)
            kept[key] = _train(job, world, out)
        return kept[key]

    return start


def _train(job: dict[str, Any], world: int, out: Path) -> Outcome:
    environment = os.environ | {"WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(WORKER), json.dumps(job)],
            env=environment | {"RANK": str(rank)},
            stdout=(out / f"rank_{rank}.log").open("w"),
            stderr=subprocess.STDOUT,
        )
        for rank in range(world)
    ]
    try:
        codes = [rank.wait(DEADLINE_S) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    logs = "\n".join((out / f"rank_{rank}.log").read_text()[-3000:] for rank in range(world))
    assert codes == [0] * world, logs
    result = json.loads((out / "result.json").read_text())
    state, before = (load_file(out / f"{name}.safetensors") for name in ("model", "before"))
    return Outcome(result["losses"], result["grad_norms"], state, before)


def _assert_close(found: Outcome, reference: Outcome, *, what: str) -> None:
    loss, norm, params = found.distance(reference)
    print(f"{what}: loss {loss:.1e}, gradient norm {norm:.1e} relative, parameters {params:.1e}")
    assert loss < 2e-5
    assert norm < 3e-4
    assert params < 5e-6


@pytest.mark.slow  # the default set has the same layouts with the trainer on top: tests/train/test_replay_layouts.py
@pytest.mark.parametrize("layout", [{"tp": 2}, {"cp": 2}, {"ep": 2}], ids=str)
def test_two_ranks_train_the_network_that_one_rank_trains(run: Run, layout: dict[str, int]) -> None:
    _assert_close(run(2, **layout), run(1), what=str(layout))


@pytest.mark.slow
def test_reordering_alone_moves_results_by_as_much_as_a_layout_may(run: Run) -> None:
    reference = run(1)
    assert run(1, chunk=16).distance(reference) != (0, 0, 0)
    _assert_close(run(1, chunk=16), reference, what="chunks of 16")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "layout"),
    [
        (2, {}),
        (2, {"pp": 2}),
        (2, {"tp": 2, "ep": 2}),
        (2, {"cp": 2, "ep": 2}),
        (4, {"ep": 4}),
        (4, {"ep": 2}),
        (4, {"pp": 2, "ep": 2}),
        (4, {"tp": 2, "pp": 2}),
        (4, {"cp": 2, "pp": 2}),
    ],
    ids=str,
)
def test_the_whole_matrix_of_layouts_agrees(run: Run, world: int, layout: dict[str, int]) -> None:
    _assert_close(run(world, **layout), run(1), what=f"{world} ranks {layout}")


@pytest.mark.slow
@pytest.mark.parametrize("layout", [{"tp": 2}, {"cp": 2}, {"pp": 2}, {"ep": 2}], ids=str)
def test_a_critic_is_trained_alike_in_every_layout(run: Run, layout: dict[str, int]) -> None:
    found, reference = (run(n, role="critic", **how) for n, how in ((2, layout), (1, {})))
    _assert_close(found, reference, what=f"critic {layout}")
    assert "value_head.weight" in found.state
    assert found.state["value_head.weight"].abs().max() > 0


@pytest.mark.slow
@pytest.mark.parametrize("layout", [{}, {"tp": 2}, {"pp": 2}], ids=str)
def test_recomputation_replays_the_same_routes_in_backward(run: Run, layout: dict[str, int]) -> None:
    world = 2 if layout else 1
    _assert_close(run(world, recompute=True, **layout), run(1), what=f"recompute {layout}")


@pytest.mark.slow
@pytest.mark.parametrize("layout", [{}, {"tp": 2}, {"pp": 2}], ids=str)
def test_tokens_scored_in_blocks_train_the_same_network(run: Run, layout: dict[str, int]) -> None:
    """Blocks of 10 tokens and, with tp 2, of 20."""
    found = run(2 if layout else 1, logits_a_block=10 * 512, **layout)
    _assert_close(found, run(1), what=f"blocks {layout}")
    if not layout:
        assert found.distance(run(1)) != (0, 0, 0)


@pytest.mark.slow
def test_bf16_tensor_parallel_deviates_by_the_rounding_of_its_partial_sums_and_nothing_else(run: Run) -> None:
    """One process that rounds its row-parallel products, and the input gradients of its column-parallel ones, as two
    ranks do gives what two ranks give, layer by layer; and two ranks are no farther from fp32 than one process is.
    """
    exact, alone, spread, rounded = (
        run(1, observed=True),
        run(1, observed=True, bf16=True),
        run(2, observed=True, bf16=True, tp=2),
        run(1, observed=True, bf16=True, partial_sums=True),
    )

    def apart(a: Outcome, b: Outcome, name: str) -> float:
        return float((a.before[name] - b.before[name]).norm() / b.before[name].norm())

    for name in spread.before:
        table = [
            apart(a, b, name)
            for a, b in ((spread, rounded), (spread, alone), (spread, exact), (alone, exact))
        ]
        print(f"{name}: to rounded {table[0]:.1e}, to one process {table[1]:.1e}, "
              f"to fp32 {table[2]:.2e}, one process to fp32 {table[3]:.2e}")  # fmt: skip
        assert table[0] < 1e-5 < 1e-3 < table[1]
        assert table[2] < 1.2 * table[3]
    norms = [outcome.grad_norms[0] for outcome in (spread, rounded, alone)]
    print("first gradient norms: spread, rounded, alone", norms)
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    assert abs(norms[0] / norms[2] - 1) > 1e-4
