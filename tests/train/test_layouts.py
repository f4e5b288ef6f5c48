"""One batch, any parallel layout, the same losses, gradient norms and weights, with replay on.

The bar is a small multiple of what mere reordering gives in one process: the same rows in another number of
micro-batches, the same recurrence in chunks of another size. Adam's epsilon is large in these runs, so that a step is
near linear in the gradient; the steps move the weights by a thousand times the bar.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from ppo_scenario import pipelined_steps, trainer
from safetensors.numpy import load_file

from t1core.model import delta_rule

RANK = Path(__file__).with_name("ppo_rank.py")
DEADLINE_S = 150


def _run(directory, actor_path, *, world, settings=None, layout=None, load=None, save=None, first_step=0):
    directory.mkdir(parents=True)
    job = dict(
        world=world,
        store=str(directory / "store"),
        out=str(directory),
        actor_path=str(actor_path),
        layout=layout or {},
        settings=settings or {},
        load=load and str(load),
        save=save and str(save),
        first_step=first_step,
    )
    (directory / "job.json").write_text(json.dumps(job))
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    logs = [open(directory / f"rank_{rank}.log", "w") for rank in range(world)]  # noqa: SIM115 - closed below
    ranks = [
        subprocess.Popen(
            [sys.executable, str(RANK), str(directory / "job.json"), str(rank)],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        for rank, log in enumerate(logs)
    ]
    deadline = time.monotonic() + DEADLINE_S
    try:
        for rank, process in enumerate(ranks):
            code = process.wait(timeout=max(1.0, deadline - time.monotonic()))
            assert code == 0, (
                f"rank {rank} of {layout}:\n" + (directory / f"rank_{rank}.log").read_text()[-3000:]
            )
    finally:
        for process in ranks:
            process.kill()
            process.wait()
        for log in logs:
            log.close()
    return (
        json.loads((directory / "metrics.json").read_text()),
        dict(np.load(directory / "actor.npz")),
        load_file(directory / "critic" / "model.safetensors"),
        dict(np.load(directory / "tokens.npz")),
    )


def _run_here(directory, actor_path, *, load=None, first=0, **overrides):
    """The same run on one process: this one."""
    with trainer(actor_path, **overrides) as made:
        if load:
            made.load_checkpoint(load)
        results = pipelined_steps(made, first=first)
        made.save_weights(directory / "critic", "critic")
        critic = load_file(directory / "critic" / "model.safetensors")
        return [result.metrics for result in results], made.export_actor(), critic, results[-1].per_token


SLACK = 5


@pytest.fixture(scope="module")
def reference(tmp_path_factory, actor_path):
    """One process, and how far its own reordering moves the result."""
    return _with_floor(tmp_path_factory.mktemp("reference"), actor_path)


def _with_floor(root, actor_path, **how):
    """(run of one process, the largest difference that a reordering of it makes, by what is compared)."""
    alone = _run_here(root / "alone", actor_path, **how)
    reordered = [
        _run_here(root / f"rows_{tokens}", actor_path, max_tokens_per_gpu=tokens, **how)
        for tokens in (40, 80)
    ]
    with _chunks_of(16):
        reordered.append(_run_here(root / "chunks", actor_path, **how))
    apart = [_apart(alone, other) for other in reordered]
    return alone, {name: max(each[name] for each in apart) for name in apart[0]}


@contextlib.contextmanager
def _chunks_of(size):
    """The delta rule in chunks of `size` tokens."""
    defaults = delta_rule.chunk_gated_delta_rule.__kwdefaults__
    before = defaults["chunk_size"]
    defaults["chunk_size"] = size
    try:
        yield
    finally:
        defaults["chunk_size"] = before


def _apart(a, b):
    """Largest difference of losses, relative gradient norms, weights and per-token streams of two runs."""
    losses = max(
        abs(x[name] - y[name])
        for x, y in zip(a[0], b[0], strict=True)
        for name in ("actor/loss", "critic/loss")
    )
    norms = max(
        abs(x[name] / y[name] - 1)
        for x, y in zip(a[0], b[0], strict=True)
        for name in ("actor/grad_norm", "critic/grad_norm")
    )
    weights = max(
        float(np.abs(x[name] - y[name]).max()) for x, y in zip(a[1:3], b[1:3], strict=True) for name in x
    )
    tokens = max(float(np.abs(a[3][name] - b[3][name]).max()) for name in a[3])
    return dict(losses=losses, norms=norms, weights=weights, tokens=tokens)


def _check(run, reference):
    alone, floor = reference
    apart = _apart(alone, run)
    print("apart", apart, "floor of reordering", floor)
    for name, difference in apart.items():
        assert difference <= SLACK * floor[name], (name, apart, floor)


def test_the_steps_move_the_weights_by_far_more_than_the_bar(actor_path, reference):
    (_, actor, critic, _), floor = reference
    start = load_file(Path(actor_path) / "model.safetensors")
    for name, weights in (("actor", actor), ("critic", critic)):
        moved = max(float(np.abs(weights[key] - start[key]).max()) for key in start.keys() & weights.keys())
        print(f"{name} moved {moved:.1e}, bar {SLACK * floor['weights']:.1e}")
        assert moved > 1000 * SLACK * floor["weights"]


def test_two_data_parallel_ranks_train_as_one_process_does(tmp_path, actor_path, reference):
    _check(_run(tmp_path / "dp2", actor_path, world=2), reference)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "layout"),
    [
        (2, dict(ep=2)),
        (2, dict(tp=2)),
        (2, dict(cp=2)),
        (2, dict(pp=2)),
        (4, dict(ep=2)),
        (4, dict(tp=2)),
        (4, dict(cp=2)),
        (4, dict(pp=2)),
        (4, dict(tp=2, ep=2)),
        (4, dict(tp=2, cp=2)),
        (4, dict(tp=2, pp=2)),
        (4, dict(cp=2, pp=2)),
        (4, dict(cp=2, ep=2)),
        (4, dict(pp=2, ep=2)),
    ],
    ids=lambda x: "-".join(f"{k}{v}" for k, v in x.items()) if isinstance(x, dict) else f"{x}ranks",
)
def test_every_parallel_layout_trains_as_one_process_does(tmp_path, actor_path, reference, world, layout):
    _check(_run(tmp_path / "run", actor_path, world=world, layout=layout), reference)


@pytest.mark.slow
@pytest.mark.parametrize("layout", [{}, dict(ep=2), dict(pp=2), dict(tp=2)], ids=str)
def test_recomputation_of_activations_changes_nothing(tmp_path, actor_path, reference, layout):
    run = _run(tmp_path / "run", actor_path, world=2, layout=layout, settings={"recompute": True})
    _check(run, reference)


@pytest.mark.slow
def test_more_ranks_than_rows_keep_in_step(tmp_path, actor_path, reference):
    _check(_run(tmp_path / "run", actor_path, world=6, layout=dict(ep=2)), reference)


@pytest.mark.slow
@pytest.mark.parametrize("layout", [{}, dict(ep=2), dict(tp=2), dict(pp=2)], ids=str)
def test_a_checkpoint_of_one_process_goes_on_in_another_layout(tmp_path, actor_path, layout):
    with trainer(actor_path) as made:
        pipelined_steps(made)
        made.save_checkpoint(tmp_path / "checkpoint")
    resumed = _with_floor(tmp_path / "alone", actor_path, load=tmp_path / "checkpoint", first=2)
    spread = _run(
        tmp_path / "spread", actor_path, world=2, layout=layout, load=tmp_path / "checkpoint", first_step=2
    )
    _check(spread, resumed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("written", "read"),
    [(dict(tp=2), dict(ep=2)), (dict(pp=2), dict(tp=2)), (dict(cp=2), {}), (dict(ep=2), dict(pp=2))],
    ids=str,
)
def test_a_checkpoint_of_one_layout_goes_on_in_another(tmp_path, actor_path, written, read):
    """Against one process that reads the same checkpoint."""
    _run(tmp_path / "first", actor_path, world=2, layout=written, save=tmp_path / "checkpoint")
    spread = _run(
        tmp_path / "spread", actor_path, world=2, layout=read, load=tmp_path / "checkpoint", first_step=2
    )
    resumed = _with_floor(tmp_path / "alone", actor_path, load=tmp_path / "checkpoint", first=2)
    _check(spread, resumed)
