"""The probe at start-up: an engine whose routes can't be replayed is refused before any trial, and says why."""

import asyncio

import numpy as np
import pytest

from t1core.records import Generation
from t1core.rollout.faults import FullLengthRoutesEngine, RoutelessEngine
from t1core.rollout.route_probe import SESSION, probe_routes

SHAPE = dict(engine="engine 3", vocab_size=50, num_layers=2, experts_per_token=2, num_experts=4)


class PlainEngine:
    """Routes [forwarded, 2, 2] from the row asked for on; notes what it was asked."""

    def __init__(self, *, skip=0, layers=2, top=1, declared=0):
        self.skip, self.layers, self.top, self.declared, self.asked = skip, layers, top, declared, []

    async def generate(self, input_ids, *, sampling, request_id, session_id, routed_experts_start):
        self.asked.append((len(input_ids), routed_experts_start, session_id))
        n = sampling.max_new_tokens
        rows = len(input_ids) + n - 1 - routed_experts_start - self.skip
        routes = np.tile(np.array([0, self.top], np.uint8), (rows, self.layers, 1))
        zeros = np.zeros(n, np.int32)
        start = routed_experts_start + self.declared
        return Generation(zeros, zeros.astype(np.float32), routes, start, "length", 0, zeros, 0)


def probe(engine):
    asyncio.run(probe_routes(engine.generate, **SHAPE))


def test_a_sound_engine_is_asked_for_a_whole_record_and_then_for_a_delta():
    engine = PlainEngine()
    probe(engine)
    # 6 prompt tokens and 3 sampled ones forward 8; the next prompt adds 2, and only what is new is asked for.
    assert engine.asked == [(6, 0, SESSION), (11, 8, SESSION)]


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        (
            RoutelessEngine(PlainEngine()),
            r"engine 3, first probe .*no routes came back.*use_rollout_routing_replay",
        ),
        (FullLengthRoutesEngine(PlainEngine()), r"second probe .*shape \(13, 2, 2\), expected \(5, 2, 2\)"),
        (PlainEngine(skip=1), r"first probe .*shape \(7, 2, 2\), expected \(8, 2, 2\).*stale, short"),
        (PlainEngine(layers=3), r"shape \(8, 3, 2\), expected \(8, 2, 2\).*another model"),
        (PlainEngine(top=7), r"first probe .*experts are 0\.\.3"),
        (PlainEngine(top=0), r"first probe .*zero"),
        (PlainEngine(skip=1, declared=1), r"rows begin at 1, so some are lost"),
    ],
    ids=["routeless", "full-length", "short", "other-model", "unknown-expert", "zeros", "late"],
)
def test_an_engine_whose_routes_cannot_be_replayed_is_named(engine, why):
    with pytest.raises(ValueError, match=why):
        probe(engine)
