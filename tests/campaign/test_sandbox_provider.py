"""A provider of boxes that refuses, is slow, or lies: the real loop over a Docker daemon of our own with one fault.

The daemon speaks the Engine API over its socket and its containers are real boxes. The trial that meets the fault is
the sandbox's failure and is launched again; nothing is counted twice, and the step completes. A provider that keeps
refusing ends the run with its own words.
"""

import asyncio
import contextlib
import tempfile
import threading
from pathlib import Path

import pytest
from one_process import run_here

from t1core.records import Boundary
from t1core.sandbox import docker_api
from t1core.store import Run
from tests.sandbox.docker_server import DockerServer, Refused

OVERRIDES = (
    "sandbox.kind=docker", "num_steps=1", "train.num_critic_only_steps=0", "agent.max_turns=1",
    "agent.max_new_tokens=16", "rollout.rollout_batch_size=2", "rollout.over_sampling_batch_size=2",
    "rollout.max_live_trials=2",
    "tasks.startup_sample=0",  # the faults are for the step
)  # fmt: skip


class FaultyServer(DockerServer):
    """`fault` meets the first `times` requests of its kind."""

    def __init__(self, path, *, fault, times):
        super().__init__(path)
        self._fault, self._left, self.lied_about = fault, times, []

    async def _answer(self, method, path, query, body):
        request, _, how = self._fault.partition(" ")
        last = path.rpartition("/")[2] if method == "POST" else method
        if self._left and path.startswith("/containers/") and last == request:
            self._left -= 1
            if how == "refused":
                raise Refused(500, "no space left on device")
            if how == "lied":
                self.lied_about.append(path.split("/")[2])
                return 204, "text/plain", b""
            await asyncio.sleep(4.0)
        return await super()._answer(method, path, query, body)


@contextlib.contextmanager
def serving(*, fault, times):
    """The daemon at work in a loop of its own, as one of another process would be."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    with tempfile.TemporaryDirectory(prefix="t1-sock-") as place:
        server = FaultyServer(Path(place, "docker.sock"), fault=fault, times=times)
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(30)
        try:
            yield server
        finally:
            asyncio.run_coroutine_threadsafe(server.close(), loop).result(60)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(30)
            loop.close()


@pytest.fixture
def campaign(settings, actor, pool, tmp_path, monkeypatch):
    def run(server):
        monkeypatch.setenv("DOCKER_HOST", f"unix://{server.path}")
        monkeypatch.setattr(docker_api, "CALL_DEADLINE_S", 2.0)
        with contextlib.suppress(RuntimeError):
            run_here([*settings, *OVERRIDES], actor=actor, pool=pool, name="r", monkeypatch=monkeypatch)
        return Run.open(tmp_path / "runs" / "smoke" / "r")

    return run


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        pytest.param("create refused", "no space left on device (500)", marks=pytest.mark.slow),
        pytest.param("start slow", "did not answer within 2 s", marks=pytest.mark.slow),
        ("start lied", "said that it started container"),
        pytest.param("kill lied", "said that it killed container", marks=pytest.mark.slow),
        pytest.param("DELETE lied", "said that it removed container", marks=pytest.mark.slow),
    ],
)
def test_a_provider_with_one_fault_costs_one_launch_and_no_trial(campaign, fault, words):
    with serving(fault=fault, times=1) as server:
        run = campaign(server)
        assert list(server.containers) == (server.lied_about if fault == "DELETE lied" else [])
    assert run.status().state == "finished", run.status().error
    trials = run.trials("train").set_index("trial_id")
    assert trials.index.is_unique and sorted(trials["outcome"]) == ["accepted", "accepted", "failed"]
    (failed,) = run.failures().to_dict("records")
    assert (failed["boundary"], bool(failed["retryable"])) == (Boundary.SANDBOX, True)
    assert words in failed["message"]
    assert trials.loc[failed["trial_id"], "outcome"] == "failed"
    assert sorted(run.batch(0)[0].rollout_ids) == sorted(trials.index[trials["outcome"] == "accepted"])
    metrics = run.metrics("train").loc[0]
    assert (metrics["rollout/launched"], metrics["rollout/retried"], metrics["rollout/failed"]) == (3, 1, 1)


@pytest.mark.slow
def test_a_provider_that_keeps_refusing_ends_the_run_in_its_own_words(campaign):
    with serving(fault="create refused", times=1000) as server:
        run = campaign(server)
        assert server.containers == {}
    status = run.status()
    assert status.state == "failed"
    assert "0 of 4 trials are usable" in status.error and "no space left on device (500)" in status.error
    assert sorted(run.trials("train")["outcome"]) == ["failed"] * 4
