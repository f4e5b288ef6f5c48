"""Metrics for other programs: each value once under its names, and a sink that breaks breaks nothing else."""

import asyncio
import logging
import types

import pytest

from t1core.campaign import sinks
from t1core.campaign.preflight import check_machine
from t1core.campaign.sinks import feeding
from t1core.config import load_config
from t1core.store import Run


@pytest.fixture
def run(tmp_path):
    run = Run.create(tmp_path, campaign="demo", run_name="r", config={"name": "demo"}, provenance={})
    run.record_metrics({"critic/explained_variance": 0.5}, step=0)
    return run


class _Heard:
    """A sink that keeps what it is given."""

    def __init__(self, run):
        self.rows, self.closed = [], 0
        _Heard.last = self

    def write(self, row):
        self.rows.append((row.step, row.kind, dict(row.values)))

    def close(self):
        self.closed += 1


def test_a_sink_gets_what_was_there_what_comes_and_what_came_at_the_very_end(run, monkeypatch):
    monkeypatch.setitem(sinks.SINKS, "wandb", _Heard)

    async def campaign():
        async with feeding(run, ("wandb",), period_s=0.01):
            while not getattr(_Heard, "last", None) or not _Heard.last.rows:
                await asyncio.sleep(0.01)
            run.record_metrics({"reward/mean": 0.1}, step=0)
            run.record_metrics({"eval/heldout/count": 8}, step=0, kind="eval")

    asyncio.run(campaign())
    assert _Heard.last.rows == [
        (0, "train", {"critic/explained_variance": 0.5}),
        (0, "train", {"reward/mean": 0.1}),
        (0, "eval", {"eval/heldout/count": 8.0}),
    ]
    assert _Heard.last.closed == 1


def test_a_sink_that_breaks_is_said_and_the_campaign_goes_on(run, monkeypatch, caplog):
    class Broken(_Heard):
        def write(self, row):
            raise ConnectionError("no network")

    monkeypatch.setitem(sinks.SINKS, "wandb", Broken)

    async def campaign():
        async with feeding(run, ("wandb",), period_s=0.01):
            await asyncio.sleep(0.2)
            return "done"

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(campaign()) == "done"
    assert "nothing more goes to wandb: ConnectionError: no network" in caplog.text


def test_wandb_is_told_its_steps_and_the_names_that_others_use(run, monkeypatch):
    told = []
    stand_in = types.SimpleNamespace(
        define_metric=lambda *names, **options: told.append((names, options)),
        log=told.append,
        finish=lambda: told.append("finished"),
    )
    options = {}
    module = types.SimpleNamespace(init=lambda **given: options.update(given) or stand_in)
    monkeypatch.setitem(__import__("sys").modules, "wandb", module)
    sink = sinks.WandB(run)
    ((row, _),) = run.metric_rows()
    sink.write(row)
    sink.close()
    assert (options["project"], options["name"]) == ("demo", "r")
    assert told == [
        (("*",), {"step_metric": "step"}),
        {"step": 0, "critic/explained_variance": 0.5, "critic/vf_explained_var": 0.5},
        "finished",
    ]


def test_tensorboards_files_hold_the_values(run):
    pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = sinks.TensorBoard(run)
    ((row, _),) = run.metric_rows()
    sink.write(row)
    sink.close()
    events = EventAccumulator(str(run.path / "tensorboard" / "train"), size_guidance={"tensors": 0})
    events.Reload()
    assert set(events.Tags()["tensors"]) == {"critic/explained_variance", "critic/vf_explained_var"}
    (event,) = events.Tensors("critic/explained_variance")
    assert (event.step, event.tensor_proto.float_val[0]) == (0, pytest.approx(0.5))


def test_a_sink_whose_package_is_missing_is_refused_by_name(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    config = load_config("smoke", ['sinks=["wandb"]', "cluster.min_free_memory_mb=0"])
    with pytest.raises(ValueError, match=r"sinks names 'wandb' .* pip install 't1core\[wandb\]'"):
        check_machine(config)
    with pytest.raises(ValueError, match="sinks"):
        load_config("smoke", ['sinks=["mlflow"]'])
