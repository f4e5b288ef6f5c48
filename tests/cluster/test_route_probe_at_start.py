"""What a crew's set-up asks of its engine before the first trial: its routes, if they are to be replayed."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from t1core.cluster.crew import _set_up
from t1core.config import load_config
from t1core.model.shape import ModelShape
from t1core.records import Generation


class ActorCalls:
    """A part of the crew: notes what is called, and answers a generation without routes."""

    def __init__(self, name):
        self.name, self.actor, self.called = name, None, []

    async def call(self, method, *arguments, deadline_s, **options):
        self.called.append(method)
        if method != "generate":
            return None
        n = options["sampling"].max_new_tokens
        zeros = np.zeros(n, np.int32)
        return Generation(zeros, zeros.astype(np.float32), None, 0, "length", 0, zeros, 0)


def set_up(*overrides):
    engine, others = ActorCalls("engine 0"), ActorCalls("another part")
    crew = SimpleNamespace(engine=engine, hosts=[others], trainers=[others])
    config = load_config("quickstart", overrides)
    shape = ModelShape.nano(vocab_size=64)
    try:
        asyncio.run(
            _set_up(crew, config, shape=shape, actor_path="actor", critic_path=None, logs=Path("logs"))
        )
    finally:
        assert "setup" in others.called
    return engine.called


def test_a_flag_that_is_set_while_the_engine_returns_no_routes_fails_at_start_up():
    with pytest.raises(
        ValueError, match=r"engine 0, first probe .*no routes came back.*return-routed-experts"
    ):
        set_up()


def test_what_each_trainer_says_is_told_apart_from_what_several_hosts_answer():
    class Warm(ActorCalls):
        async def call(self, method, *arguments, deadline_s, **options):
            return {"kernels": "plain"} if method == "setup" else None

    hosts = [ActorCalls("host 0"), ActorCalls("host 1")]
    crew = SimpleNamespace(
        engine=ActorCalls("engine 0"), hosts=hosts, trainers=[Warm("rank 0"), Warm("rank 1")]
    )
    config = load_config(
        "quickstart", ["train.use_rollout_routing_replay=false", "train.measure_free_routing=false"]
    )
    shape = ModelShape.nano(vocab_size=64)
    asyncio.run(_set_up(crew, config, shape=shape, actor_path="actor", critic_path=None, logs=Path("logs")))
    assert crew.trainer_health == [{"kernels": "plain"}] * 2 and crew.engine_health is None


def test_without_the_flag_no_routes_are_asked_for():
    assert set_up("train.use_rollout_routing_replay=false", "train.measure_free_routing=false") == ["setup"]
