"""Every key of task.toml: honoured, refused with the reason, or said to have no effect."""

import os
import warnings
from pathlib import Path

import pytest

from t1core.records import TaskEnvironment
from t1core.sandbox.request import box_spec, refuse_beyond_bubblewrap
from t1core.tasks.harbor import load_task
from t1core.tasks.task_toml import TaskToml

LIMITS = {"box_id": "b", "environment_dir": None, "memory_mb": 512, "storage_mb": 64, "max_processes": 32}
WHOLE = """
schema_version = "1.4"
artifacts = []
[task]
name = "org/greet"
description = "x"
[agent]
timeout_sec = 30
user = "root"
network_mode = "no-network"
[verifier]
timeout_sec = 45.5
environment_mode = "shared"
env = { MODE = "strict", LEVEL = 3, TOKEN = "${TOKEN:-none} ${OTHER:-}" }
[environment]
cpus = 0.5
memory_mb = 300
storage_mb = 30
workdir = "/app/work"
os = "linux"
gpus = 0
docker_image = "org/greet:1"
network_mode = "no-network"
mcp_servers = []
env = { COLOR = "blue" }
[solution]
env = { HINT = "yes" }
"""


def read(text: str) -> TaskToml:
    return TaskToml(text, directory=Path("greet"))


def test_what_a_task_asks_for_reaches_the_task_record(task_directory):
    (task_directory / "task.toml").write_text(WHOLE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task = load_task(task_directory)
    assert (task.agent_timeout_s, task.verifier_timeout_s) == (30.0, 45.5)
    assert task.verifier_env == {"MODE": "strict", "LEVEL": "3", "TOKEN": "none "}
    assert task.solution_env == {"HINT": "yes"}
    assert task.environment == TaskEnvironment(
        workdir="/app/work",
        env={"COLOR": "blue"},
        cpus=0.5,
        memory_mb=300,
        storage_mb=30,
        docker_image="org/greet:1",
        user="root",
    )


def test_older_sizes_are_read_as_megabytes():
    environment = read('[environment]\nmemory = "2G"\nstorage = "512MiB"\n').environment(has_compose=False)
    assert (environment.memory_mb, environment.storage_mb) == (2048, 512)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[environment]\nmemory = "lots"', r"environment.memory 'lots': must be a size"),
        ("[environment]\nmemory_mb = 0", r"environment.memory_mb 0: must be a number of megabytes above 0"),
        ('[environment]\ncpus = "2"', r"environment.cpus '2': must be a number of cores"),
        ("[environment]\ngpus = -1", r"environment.gpus -1: must be a whole number, 0 or more"),
        ("[environment]\nworkdir = true", r"environment.workdir True: must be text"),
        ('[environment]\nos = "windows"', r"environment.os 'windows': boxes are Linux"),
        ("[environment]\ntpu = { type = 'v5' }", r"boxes have no TPU"),
        ("[environment.healthcheck]\nretries = 2", r"environment.healthcheck.command None: is missing here"),
        (
            "[environment.healthcheck]\ncommand = 'x'\nretries = 0.5",
            r"healthcheck.retries 0.5: must be a whole",
        ),
        (
            "[environment.healthcheck]\ncommand = 'x'\ninterval_sec = -1",
            r"healthcheck.interval_sec -1: must be",
        ),
        ("[[environment.mcp_servers]]\nname = 'x'", r"environment.mcp_servers\[0\].url None: is missing"),
        (
            "[[environment.mcp_servers]]\nname = 'x'\nurl = 'http://db:80/sse'",
            r"environment.mcp_servers\[0\].url 'http://db:80/sse': boxes have no network",
        ),
        (
            "[[environment.mcp_servers]]\nname = 'x'\nurl = 'http://localhost'\nheaders = { A = 'b' }",
            r"headers .*told an address and no headers",
        ),
        (
            "[[environment.mcp_servers]]\nname = 'x'\ntransport = 'tcp'",
            r"must be stdio, sse or streamable-http",
        ),
        ("[environment]\nmcp_servers = 3", r"environment.mcp_servers 3: must be tables"),
        (
            "[environment]\nnetwork_mode = 'allowlist'",
            r"environment.network_mode 'allowlist': boxes have no network",
        ),
        ("[agent]\nallowed_hosts = ['a']", r"agent.allowed_hosts \['a'\]: boxes have no network"),
        ("[verifier]\nuser = 'bob'", r"verifier.user 'bob': tests run as root"),
        (
            "[verifier]\nenvironment_mode = 'apart'",
            r"verifier.environment_mode 'apart': must be \"shared\" or \"separate\"",
        ),
        (
            "[verifier]\nenvironment_mode = 'shared'\n[verifier.environment]\ncpus = 1",
            r"verifier.environment_mode 'shared': contradicts",
        ),
        ("[verifier.environment]\ntpu = { type = 'v5' }", r"verifier.environment.tpu .*boxes have no TPU"),
        ("[[verifier.collect]]\nservice = 'main'", r"verifier.collect\[0\].command None: is missing here"),
        (
            "[[verifier.collect]]\ncommand = 'x'\nservice = 'db'",
            r"verifier.collect\[0\].service 'db': a box is one container",
        ),
        (
            "[[verifier.collect]]\ncommand = 'x'\nuser = 'bob'",
            r"user 'bob': commands run as the box's one user",
        ),
        ("artifacts = ['/a/../b']", r"artifacts\[0\].source '/a/../b': must not lead upwards"),
        ("artifacts = [{ source = '/a', service = 'db' }]", r"artifacts\[0\].service 'db'"),
        ("artifacts = '/a'", r"artifacts '/a': must be a list of paths"),
        ("multi_step_reward_strategy = 'best'", r"strategy 'best': must be \"mean\" or \"final\""),
        ("[[steps]]\nmin_reward = 1", r"steps\[0\].name None: is missing here"),
        ("[[steps]]\nname = 'a/b'", r"steps\[0\].name 'a/b': must be usable as a directory's name"),
        ("[[steps]]\nname = 'a'\n[[steps]]\nname = 'A'", r"steps\[1\].name 'A': another step has it"),
        ("[[steps]]\nname = 'a'\nmin_reward = { speed = 1 }", r"a step has one reward"),
        (
            "[[steps]]\nname = 'a'\nmin_reward = nan",
            r"steps\[0\].min_reward nan: must be a number, and a finite one",
        ),
        ("[[steps]]\nname = 'a'\nmin_reward = 'all'", r"steps\[0\].min_reward 'all': must be a number"),
        (
            "[[steps]]\nname = 'a'\nagent = { user = 'bob' }",
            r"steps\[0\].agent.user 'bob': a box has one user",
        ),
        (
            "[[steps]]\nname = 'a'\nverifier = { user = 'bob' }",
            r"steps\[0\].verifier.user 'bob': tests run as",
        ),
        (
            "[environment]\nenv = { TOKEN = '${TOKEN}' }",
            r"environment.env.TOKEN .*write \$\{TOKEN:-default\}",
        ),
        ("[verifier]\nenv = 3", r"verifier.env 3: must be a table"),
        ("[verifier]\nenv = { A = [1] }", r"verifier.env.A \[1\]: must be text"),
    ],
)
def test_what_no_box_can_give_is_refused_with_the_key_and_the_reason(text, message):
    with pytest.raises(ValueError, match=f"task greet: .*{message}"):
        toml = read(text)
        toml.environment(has_compose=False)
        assert toml.verifier_env is not None
        assert toml.tests_environment is not None or toml.collect is not None
        assert toml.artifacts is not None and not toml.takes_final_reward
        toml.steps()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[environment]\nbuild_timeout_sec = 60\ngpu_types = ['x']",
            "no effect here: environment.build_timeout_sec, e",
        ),
        ("artifacts = ['/app/x']", "no effect here: artifacts"),
        ("[[steps]]\nname = 'a'\nartifacts = ['/app/x']", r"no effect here: steps\[0\].artifacts"),
        ("[verifier.environment]\nskills_dir = '/s'", "no effect here: verifier.environment.skills_dir"),
        ("[[steps]]\nname = 'a'\nagnet = {}", r"keys nobody reads: steps\[0\].agnet"),
        ("[verifier.environment]\nmemroy_mb = 3", "keys nobody reads: verifier.environment.memroy_mb"),
        ("[environment]\nnetwork_mode = 'public'", "environment.network_mode asks for one"),
        (
            "[environment]\nallow_internet = true",
            "boxes have no network, and environment.allow_internet asks",
        ),
        ("[environment]\nmemroy_mb = 3", "keys nobody reads: environment.memroy_mb"),
    ],
)
def test_what_has_no_effect_is_said(text, message):
    with pytest.warns(UserWarning, match=message):
        read(text)


def test_a_box_gets_what_the_task_asks_for_within_the_campaigns_limits():
    spec = box_spec(TaskEnvironment(memory_mb=300, workdir="/root", env={"A": "1"}), **LIMITS)
    assert (spec.memory_mb, spec.storage_mb, spec.workdir, spec.env) == (300, 64, "/root", {"A": "1"})
    with pytest.warns(UserWarning, match=r"asks for memory_mb 4096 and gets .* sandbox\.memory_mb=512"):
        assert box_spec(TaskEnvironment(memory_mb=4096), **LIMITS).memory_mb == 512
    with pytest.raises(ValueError, match="docker-compose needs several containers"):
        box_spec(TaskEnvironment(has_compose=True), **LIMITS)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (TaskEnvironment(num_gpus=1), "environment.gpus 1: boxes see no GPU"),
        (TaskEnvironment(user="bob"), "agent.user 'bob': boxes have one user"),
        (TaskEnvironment(cpus=4096), f"this machine has {len(os.sched_getaffinity(0))}"),
        (TaskEnvironment(docker_image="a/b"), "environment.docker_image 'a/b': boxes over the host's /usr"),
    ],
)
def test_bubblewrap_refuses_what_it_cannot_honour(asked, message):
    with pytest.raises(ValueError, match=message):
        refuse_beyond_bubblewrap(box_spec(asked, **LIMITS), has_image=False)


def test_an_image_is_no_obstacle_where_a_dockerfile_stands_beside_it(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM a/b\n")
    spec = box_spec(TaskEnvironment(docker_image="a/b"), **(LIMITS | {"environment_dir": tmp_path}))
    refuse_beyond_bubblewrap(spec, has_image=False)
