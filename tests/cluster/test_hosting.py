"""What a trial host takes from the configuration."""

import asyncio

import pytest

from t1core.campaign.preflight import check_machine
from t1core.cluster.hosting import make_boxes
from t1core.config import load_config
from t1core.sandbox.docker import DockerSandbox


def test_a_grades_limits_and_the_image_come_from_the_configuration(tmp_path):
    for name in ("bash", "tmux"):
        program = tmp_path / "usr/bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch(mode=0o755)
    limits = ["verifier.memory_mb=300", "verifier.max_processes=9", "verifier.max_parallel=3"]
    sandbox, grader = make_boxes(load_config("quickstart", [*limits, f"sandbox.image_dir={tmp_path}"]))
    try:
        assert (grader._memory_mb, grader._max_processes, grader._turns._value) == (300, 9, 3)
        assert sandbox._system == grader._system == tmp_path
    finally:
        asyncio.run(sandbox.close())


def test_an_image_that_is_not_there_stops_the_host(tmp_path):
    with pytest.raises(ValueError, match="no such directory; unpack the image there"):
        make_boxes(load_config("quickstart", [f"sandbox.image_dir={tmp_path}/none"]))


def test_the_kind_of_boxes_comes_from_the_configuration(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    sandbox, _ = make_boxes(load_config("quickstart", ["sandbox.kind=docker"]))
    assert isinstance(sandbox, DockerSandbox)
    asyncio.run(sandbox.close())
    config = load_config("quickstart", ["sandbox.kind=docker"])
    with pytest.raises(ValueError, match=r"no Docker daemon answers at /nowhere/docker\.sock"):
        check_machine(config)


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (["sandbox.kind=harbor"], "needs sandbox.harbor_environment"),
        (
            ["sandbox.kind=harbor", "sandbox.harbor_environment=e2b", "sandbox.harbor_options={"],
            "harbor_options='{' is no",
        ),
        (["sandbox.harbor_environment=modal"], "have no effect with sandbox.kind='bubblewrap'"),
    ],
)
def test_settings_of_another_kind_are_refused(overrides, why):
    with pytest.raises(ValueError, match=why):
        load_config("quickstart", overrides)
