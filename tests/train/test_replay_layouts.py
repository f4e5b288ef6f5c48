"""Routing replay under everything that happens to a token on its way to a router, against one process.

Packing, padding, sequence parallelism, zig-zag context parallelism, pipeline stages, expert parallelism,
recomputation, micro-batches, scoring and training. The bar is a small multiple of what mere reordering gives
in one process; planted faults show that it would be passed if a route missed its token.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from forked_ranks import run_ranks
from ppo_scenario import SHAPE, adam, make_batch, trainer
from replay_rank import plant, probe, replayed

from t1core.train import streams
from t1core.train.packing import pack_rows

RANK = Path(__file__).with_name("replay_rank.py")

TWO_RANKS = {
    "sequence": dict(layout=dict(tp=2)),
    "context": dict(layout=dict(cp=2)),
    "pipeline": dict(layout=dict(pp=2), max_tokens=40, recompute=True),
    "expert": dict(layout=dict(ep=2)),
}
FOUR_RANKS = {
    "sequence-context": dict(layout=dict(tp=2, cp=2), recompute=True),
    "context-pipeline": dict(layout=dict(cp=2, pp=2), max_tokens=40, recompute=True),
}
FOUR_RANKS_MORE = {
    "sequence-pipeline": dict(layout=dict(tp=2, pp=2), max_tokens=40, recompute=True),
    "sequence-expert": dict(layout=dict(tp=2, ep=2)),
    "context-expert": dict(layout=dict(cp=2, ep=2), recompute=True),
    "pipeline-expert": dict(layout=dict(pp=2, ep=2), max_tokens=40),
    "context-4": dict(layout=dict(cp=4)),
    "expert-4": dict(layout=dict(ep=4)),
}
FAULTS = {
    "zigzag": dict(layout=dict(cp=2), fault="routes not cut in zigzag"),
    "slice": dict(layout=dict(tp=2), fault="every tensor rank replays the first slice"),
    "stage": dict(layout=dict(pp=2), fault="each stage counts its layers from zero"),
}
FAULTS_ALONE = {
    "routes one position late": "tokens",
    "recomputation replays other rows": "weights",
}
# The floor of a single pair of runs can be luckily small; below these the comparison says nothing.
LEAST = dict(tokens=5e-6, losses=2e-7, norms=1e-5, weights=1e-7)


def _run(directory, actor_path, *, world, runs):
    job = dict(world=world, out=str(directory), actor_path=str(actor_path), runs=runs)
    run_ranks(RANK, job, directory)
    return {name: dict(np.load(directory / f"{name}.npz")) for name in runs}


def _probe_here(actor_path, **overrides):
    with trainer(actor_path, actor=adam(1e-3, weight_decay=0.0), **overrides) as made:
        return probe(made, make_batch(num_rows=5))


@pytest.fixture(scope="module")
def alone(actor_path):
    return _probe_here(actor_path)


@pytest.fixture(scope="module")
def bar(actor_path, alone):
    """Five times what reordering does in one process, where the same rows are cut into more micro-batches."""
    floor = _apart(alone, _probe_here(actor_path, max_tokens_per_gpu=40))
    return {name: 5 * max(floor[name], LEAST[name]) for name in LEAST}


def _apart(a, b):
    """Largest differences of log-probs, losses, gradient norms (relative) and the actor's step."""
    return dict(
        tokens=max(float(np.abs(a[name] - b[name]).max()) for name in ("replayed", "trained")),
        losses=float(np.abs(a["loss"] - b["loss"]).max()),
        norms=float(np.abs(a["norm"] / b["norm"] - 1).max()),
        weights=max(float(np.abs(a[name] - b[name]).max()) for name in a if name.startswith("moved/")),
    )


def _check(found, *, alone, bar, what):
    apart = _apart(alone, found)
    print(what, apart, "bar", bar)
    assert all(apart[name] <= bar[name] for name in bar), (what, apart, bar)
    assert np.array_equal(found["own"], found["free"]), f"{what}: the same experts, other bits"
    # From a batch's record padding and last tokens go elsewhere than they would freely, and the sizes of the
    # expert's products may pick another order of sums: equal to reordering, not to the bit.
    assert np.abs(found["record"] - found["free"]).max() <= bar["tokens"], what
    for layer in range(SHAPE.num_layers):
        assert found[f"moved/model.layers.{layer}.mlp.gate.weight"].any(), (
            f"{what}: router {layer} stood still"
        )
    _check_load(found, what=what)


def _check_load(found, *, what):
    """The record's choices reach their experts, and what has no record is spread over all experts alike."""
    routes = make_batch(num_rows=5).routed_experts
    recorded = np.stack(
        [np.bincount(layer.ravel(), minlength=SHAPE.num_experts) for layer in routes.swapaxes(0, 1)]
    )
    rest = found["load"] - recorded
    unrecorded = int(found["positions"]) - len(routes)
    assert (rest.sum(axis=1) == unrecorded * SHAPE.num_experts_per_tok).all(), what
    assert (rest >= 0).all(), (what, rest)
    if unrecorded * SHAPE.num_experts_per_tok >= 2 * SHAPE.num_experts:
        assert (rest[:, 0] <= 2 * rest.mean(axis=1)).all(), (what, rest)


def test_one_process_replays_its_own_choices_to_the_bit(alone, bar):
    _check(alone, alone=alone, bar=bar, what="one process")


def test_a_record_that_is_not_placed_whole_stops_the_step(actor_path, monkeypatch):
    def forgetful(*arguments, **how):
        micro = pack_rows(*arguments, **how)
        routed = np.flatnonzero(micro.route_source >= 0)
        source = micro.route_source.copy()
        source[routed[-1]] = -1
        return replace(micro, route_source=source)

    batch = make_batch(num_rows=2)
    monkeypatch.setattr(streams, "pack_rows", forgetful)
    with trainer(actor_path) as made:
        whole = len(batch.routed_experts)
        with pytest.raises(AssertionError, match=rf"\d+ of the record's {whole} routing rows were placed"):
            made.score(batch)


def test_two_processes_replay_as_one_does(tmp_path, actor_path, alone, bar):
    for what, found in _run(tmp_path, actor_path, world=2, runs=TWO_RANKS).items():
        _check(found, alone=alone, bar=bar, what=what)


@pytest.mark.slow
def test_four_processes_replay_as_one_does(tmp_path, actor_path, alone, bar):
    for what, found in _run(tmp_path, actor_path, world=4, runs=FOUR_RANKS).items():
        _check(found, alone=alone, bar=bar, what=what)


@pytest.mark.slow
def test_four_processes_replay_as_one_does_in_every_pair_of_dimensions(tmp_path, actor_path, alone, bar):
    for what, found in _run(tmp_path, actor_path, world=4, runs=FOUR_RANKS_MORE).items():
        _check(found, alone=alone, bar=bar, what=what)


@pytest.mark.parametrize(("fault", "seen_in"), FAULTS_ALONE.items(), ids=list(FAULTS_ALONE))
def test_a_planted_fault_passes_the_bar_in_one_process(actor_path, alone, bar, fault, seen_in):
    repair = plant(fault)
    try:
        with trainer(actor_path, actor=adam(1e-3, weight_decay=0.0), recompute=True) as made:
            apart = _apart(alone, replayed(made, make_batch(num_rows=5)))
    finally:
        repair()
    assert apart[seen_in] > 20 * bar[seen_in], (apart, bar)


@pytest.mark.slow
def test_a_planted_fault_passes_the_bar_between_processes(tmp_path, actor_path, alone, bar):
    for what, found in _run(tmp_path, actor_path, world=2, runs=FAULTS).items():
        apart = _apart(alone, found)
        print(what, apart)
        assert apart["tokens"] > 20 * bar["tokens"], (what, apart, bar)
