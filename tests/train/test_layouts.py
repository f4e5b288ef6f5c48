"""One batch, any parallel layout, the same losses, gradient norms and weights, with replay on.

The bar is a small multiple of what mere reordering gives in one process, with the same objective: the same rows in
other numbers of micro-batches, the same recurrence in chunks of other sizes. One pair of runs can be luckily close (the
norms of one objective lie between 9e-7 and 1.6e-5 apart), so the floor is the largest of several. Adam's epsilon is
large in these runs, so that a step is near linear in the gradient; the steps move the weights by a thousand times the
bar.
"""

import contextlib
import functools
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from forked_ranks import run_ranks
from ppo_scenario import OBJECTIVES, awkward_batch, pipelined_steps, trainer
from safetensors.numpy import load_file

from t1core.model import delta_rule

RANK = Path(__file__).with_name("ppo_rank.py")
IN_DEFAULT = ("histogram",)


@dataclass(frozen=True)
class Outcome:
    """Two steps: their metrics, the weights of each role in the end, the last step's per-token streams."""

    metrics: list
    weights: dict
    tokens: dict


def _run(
    directory,
    actor_path,
    *,
    world,
    objectives=("plain",),
    settings=None,
    layout=None,
    load=None,
    save=None,
    first_step=0,
):
    """The outcome of each objective on `world` processes."""
    directory.mkdir(parents=True)
    job = dict(
        world=world,
        out=str(directory),
        actor_path=str(actor_path),
        objectives=objectives,
        layout=layout or {},
        settings=settings or {},
        load=load and str(load),
        save=save and str(save),
        first_step=first_step,
    )
    run_ranks(RANK, job, directory)
    return {objective: _read(directory / objective) for objective in objectives}


def _read(directory):
    roles = [role for role in ("actor", "critic") if (directory / role).is_dir()]
    return Outcome(
        metrics=json.loads((directory / "metrics.json").read_text()),
        weights={role: load_file(directory / role / "model.safetensors") for role in roles},
        tokens=dict(np.load(directory / "tokens.npz")),
    )


def _run_here(directory, actor_path, *, objective="plain", load=None, first=0, **overrides):
    """The same run on one process: this one."""
    chosen = OBJECTIVES.get(objective, {})
    with trainer(actor_path, **overrides, **chosen) as made:
        if load:
            made.load_checkpoint(load)
        results = pipelined_steps(made, first=first, **({"batch": awkward_batch} if chosen else {}))
        weights = {}
        for role in made.learners:
            made.save_weights(directory / role, role)
            weights[role] = load_file(directory / role / "model.safetensors")
        return Outcome([result.metrics for result in results], weights, results[-1].per_token)


SLACK = 3
MICRO_BATCHES, CHUNKS = (20, 40), (4, 8, 16)
# A weight below 1 in fp32 moves by this or not at all.
LAST_PLACE = 2**-24


@pytest.fixture(scope="module")
def references(tmp_path_factory, actor_path):
    """One process, and how far its own reordering moves the result; by objective, each worked out when asked for."""
    root = tmp_path_factory.mktemp("reference")
    return functools.cache(lambda objective: _with_floor(root / objective, actor_path, objective=objective))


def _with_floor(root, actor_path, **how):
    """(run of one process, the largest difference that a reordering of it makes, by what is compared)."""
    alone = _run_here(root / "alone", actor_path, **how)
    reordered = [
        _run_here(root / f"rows{most}", actor_path, max_tokens_per_gpu=most, **how) for most in MICRO_BATCHES
    ]
    for size in CHUNKS:
        with _chunks_of(size):
            reordered.append(_run_here(root / f"chunks{size}", actor_path, **how))
    apart = [_apart(alone, other) for other in reordered]
    floor = {name: max(each[name] for each in apart) for name in apart[0]}
    return alone, floor | dict(weights=max(LAST_PLACE, floor["weights"]))


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
    roles = list(a.weights)
    assert roles == list(b.weights) and set(a.tokens) == set(b.tokens)
    pairs = list(zip(a.metrics, b.metrics, strict=True))
    return dict(
        losses=max(abs(x[f"{role}/loss"] - y[f"{role}/loss"]) for x, y in pairs for role in roles),
        norms=max(
            abs(x[f"{role}/grad_norm"] / y[f"{role}/grad_norm"] - 1) for x, y in pairs for role in roles
        ),
        weights=max(
            float(np.abs(a.weights[role][name] - b.weights[role][name]).max())
            for role in roles
            for name in a.weights[role]
        ),
        tokens=max(float(np.abs(a.tokens[name] - b.tokens[name]).max()) for name in a.tokens),
    )


def _check(outcome, reference, *, what=""):
    alone, floor = reference
    apart = _apart(alone, outcome)
    print(what, "apart", apart, "floor of reordering", floor)
    for name, difference in apart.items():
        assert difference <= SLACK * floor[name], (what, name, apart, floor)


def _check_all(outcomes, references):
    for objective, outcome in outcomes.items():
        _check(outcome, references(objective), what=objective)


@pytest.mark.parametrize(
    "objective",
    ["plain", *(pytest.param(name, marks=pytest.mark.slow) for name in OBJECTIVES)],
)
def test_the_steps_move_the_weights_by_far_more_than_the_bar(actor_path, references, objective):
    alone, floor = references(objective)
    start = load_file(Path(actor_path) / "model.safetensors")
    for name, weights in alone.weights.items():
        moved = max(float(np.abs(weights[key] - start[key]).max()) for key in start.keys() & weights.keys())
        print(f"{name} moved {moved:.1e}, bar {SLACK * floor['weights']:.1e}")
        assert moved > 1000 * SLACK * floor["weights"]


def test_two_data_parallel_ranks_train_as_one_process_does(tmp_path, actor_path, references):
    outcomes = _run(tmp_path / "dp2", actor_path, world=2, objectives=["plain", *IN_DEFAULT])
    _check_all(outcomes, references)


@pytest.mark.slow
@pytest.mark.parametrize(
    "layout", [{}, dict(tp=2), dict(cp=2), dict(pp=2), dict(ep=2)], ids=lambda x: str(x or "dp2")
)
def test_every_objective_trains_in_every_layout_as_on_one_process(tmp_path, actor_path, references, layout):
    objectives = list(OBJECTIVES)
    _check_all(_run(tmp_path / "run", actor_path, world=2, layout=layout, objectives=objectives), references)


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
def test_every_parallel_layout_trains_as_one_process_does(tmp_path, actor_path, references, world, layout):
    _check_all(_run(tmp_path / "run", actor_path, world=world, layout=layout), references)


@pytest.mark.slow
@pytest.mark.parametrize("layout", [{}, dict(ep=2), dict(pp=2), dict(tp=2)], ids=str)
def test_recomputation_of_activations_changes_nothing(tmp_path, actor_path, references, layout):
    outcomes = _run(tmp_path / "run", actor_path, world=2, layout=layout, settings={"recompute": True})
    _check_all(outcomes, references)


@pytest.mark.slow
def test_more_ranks_than_rows_keep_in_step(tmp_path, actor_path, references):
    _check_all(_run(tmp_path / "run", actor_path, world=6, layout=dict(ep=2)), references)


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
    _check(spread["plain"], resumed)


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
    _check(spread["plain"], resumed)
