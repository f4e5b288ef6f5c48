"""Converters: tasks of other forms come out readable, marked, and answer in a box; what cannot be held is refused."""

import asyncio
import json

import pandas as pd
import pytest
import yaml
from pool_directories import SOLUTION, TESTS, write_task
from typer.testing import CliRunner

from t1core.campaign.preflight import check_plan
from t1core.cli import app
from t1core.config import load_config
from t1core.pools.convert.conversion import convert
from t1core.pools.convert.directory import NotConverted
from t1core.pools.convert.registry import registry_tasks
from t1core.pools.convert.terminal_bench import convert_terminal_bench
from t1core.pools.convert.tmax import convert_tmax
from t1core.tasks.harbor import load_task
from t1core.tasks.pool import Pool


def converted(form, source, output, **options):
    return asyncio.run(convert(form, source, output, **options))


def terminal_bench_task(directory, **changes):
    settings = {
        "instruction": "Greet the moon in /app/out.txt.",
        "category": "greetings",
        "difficulty": "easy",
        "parser_name": "pytest",
        "max_agent_timeout_sec": 120.0,
        "max_test_timeout_sec": 30.0,
    } | changes
    for name, text in {
        "task.yaml": yaml.safe_dump(settings),
        "Dockerfile": "FROM scratch\nWORKDIR /app\nCOPY moon.txt /app/\n",
        "moon.txt": "moon\n",
        "docker-compose.yaml": "services:\n  client:\n    build: .\n",
        "run-tests.sh": "#!/bin/bash\nuv run pytest $TEST_DIR/test_outputs.py\n",
        "solution.sh": SOLUTION,
        "tests/test_outputs.py": TESTS,
    }.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return directory


def test_terminal_bench_tasks_become_tasks_that_answer_and_others_are_refused_by_name(tmp_path):
    terminal_bench_task(tmp_path / "source" / "greet")
    terminal_bench_task(tmp_path / "source" / "odd", parser_name="swe")
    done = converted("terminal-bench", tmp_path / "source", tmp_path / "pool", licence="Apache-2.0")
    assert (done.num_found, done.num_kept) == (2, 1)
    assert done.refused == {"odd": "parser_name 'swe': only pytest's tests can be counted"}
    assert done.tried == {"greet": "untouched 0 of 2, solution 2 of 2"}
    (entry,) = Pool.open(tmp_path / "pool").entries
    assert (entry.family, entry.verifier, entry.licence) == ("greetings", "counted", "Apache-2.0")
    assert (entry.agent_timeout_s, entry.verifier_timeout_s) == (120.0, 30.0)
    place = tmp_path / "pool" / "greet"
    assert (place / "environment" / "moon.txt").is_file() and not (
        place / "environment" / "task.yaml"
    ).exists()
    assert load_task(place).environment.has_compose is False


def test_a_task_of_two_services_is_refused(tmp_path):
    task = terminal_bench_task(tmp_path / "two")
    (task / "docker-compose.yaml").write_text("services:\n  client: {}\n  server: {}\n")
    with pytest.raises(NotConverted, match="2 services"):
        convert_terminal_bench(task, tmp_path / "out", about={})


def test_commands_of_a_solution_yaml_become_the_solution(tmp_path):
    task = terminal_bench_task(tmp_path / "listed")
    (task / "solution.sh").unlink()
    (task / "solution.yaml").write_text("- command: echo one\n  min_timeout_sec: 1\n- command: echo two\n")
    convert_terminal_bench(task, tmp_path / "out", about={})
    assert (tmp_path / "out/solution/solve.sh").read_text() == "#!/bin/bash\necho one\necho two\n"


DEFINITION = """Bootstrap: localimage
From: base.sif

%environment
    export GREETING=hello
%post
    apt-get update && apt-get install -y \\
        curl
    mkdir -p /home/user
    echo moon > /home/user/name
%files
"""
FINAL = """import os


def test_there():
    assert os.path.isfile("/home/user/out.txt")


def test_says_so():
    assert open("/home/user/out.txt").read() == "hello moon\\n"
"""
ROW = {
    "task_id": "task_0",
    "domain": "greetings",
    "description": "Greet the moon.",
    "truth": "",
    "container_def": DEFINITION,
    "test_final_state": FINAL,
}


@pytest.mark.parametrize("form", ["jsonl", "parquet", "directory"])
def test_tmax_records_stay_binary_and_are_marked_so(tmp_path, form):
    source = tmp_path / f"train.{form}"
    if form == "parquet":
        pd.DataFrame([ROW]).to_parquet(source)
    elif form == "jsonl":
        source.write_text(json.dumps(ROW) + "\n")
    else:
        (source / "task_0").mkdir(parents=True)
        (source / "task_0" / "task.json").write_text(
            json.dumps({k: ROW[k] for k in ("domain", "description")})
        )
        (source / "task_0" / "container.def").write_text(DEFINITION)
        (source / "task_0" / "test_final_state.py").write_text(FINAL)
    done = converted("tmax", source, tmp_path / "pool")
    assert done.tried == {"task_0": "untouched 0 of 1"}
    (entry,) = Pool.open(tmp_path / "pool").entries
    assert (entry.verifier, entry.test_names, entry.family) == ("binary", ("test.sh",), "greetings")
    task = load_task(tmp_path / "pool" / "task_0")
    assert task.metadata["not_fetched"] == "apt-get update && apt-get install -y curl"
    dockerfile = (task.path / "environment" / "Dockerfile").read_text()
    assert "ENV GREETING=hello" in dockerfile and "WORKDIR /home/user" in dockerfile


def test_a_binary_verifier_gives_one_for_the_whole_and_nothing_for_a_part(tmp_path):
    for name, script in (("whole", "echo $GREETING $(cat name) > out.txt"), ("part", "echo other > out.txt")):
        convert_tmax((ROW, None), tmp_path / "source" / name, about={})
        (tmp_path / "source" / name / "solution").mkdir()
        (tmp_path / "source" / name / "solution" / "solve.sh").write_text(f"cd /home/user && {script}\n")
    listed = [{"name": "d", "version": "1", "tasks": [{"name": n, "path": n} for n in ("whole", "part")]}]
    (tmp_path / "source" / "registry.json").write_text(json.dumps(listed))
    done = converted("harbor-registry", tmp_path / "source" / "registry.json", tmp_path / "pool")
    assert done.tried == {
        "part": "untouched 0 of 1, solution 0 of 1",
        "whole": "untouched 0 of 1, solution 1 of 1",
    }
    assert {entry.verifier for entry in Pool.open(tmp_path / "pool").entries} == {"binary"}
    with pytest.raises(ValueError, match=r"verifiers are binary.*use reward\.kind='binary'"):
        check_plan(load_config("smoke"), Pool.open(tmp_path / "pool"), say=print)
    check_plan(load_config("smoke", ["reward.kind=binary"]), Pool.open(tmp_path / "pool"), say=print)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"description": " "}, "no description"),
        ({"test_final_state": None}, "no test_final_state"),
        ({"container_def": DEFINITION + "    photo.png /app/photo.png\n"}, "%files wants photo.png"),
    ],
)
def test_a_record_that_lacks_something_is_refused(tmp_path, changes, reason):
    with pytest.raises(NotConverted, match=reason):
        convert_tmax((ROW | changes, None), tmp_path / "out", about={})


def test_a_registry_names_its_data_set_and_finds_checkouts_beside_it(tmp_path):
    write_task(tmp_path / "cookbook" / "tasks" / "greet", toml='[metadata]\ncategory = "greetings"\n')
    listed = [
        {
            "name": name,
            "version": "1.0",
            "tasks": [
                {
                    "name": "greet",
                    "git_url": "https://host/a/cookbook.git",
                    "git_commit_id": "abc",
                    "path": "tasks/greet",
                },
                {"name": "gone", "path": "tasks/gone"},
            ],
        }
        for name in ("one", "two")
    ]
    (tmp_path / "registry.json").write_text(json.dumps(listed))
    with pytest.raises(ValueError, match=r"names 2 of one@1\.0, two@1\.0"):
        converted("harbor-registry", tmp_path / "registry.json", tmp_path / "pool")
    done = converted(
        "harbor-registry", tmp_path / "registry.json", tmp_path / "pool", dataset="two", licence="Apache-2.0"
    )
    assert list(done.refused) == ["gone"] and "check its repository out" in done.refused["gone"]
    (entry,) = Pool.open(tmp_path / "pool").entries
    assert (entry.source, entry.licence) == ("two@1.0 https://host/a/cookbook.git abc", "Apache-2.0")
    assert entry.family == "greetings"


def test_a_registry_does_not_lead_out_of_its_directory(tmp_path):
    listed = [{"name": "d", "tasks": [{"name": "x", "path": "../../etc"}]}]
    (tmp_path / "registry.json").write_text(json.dumps(listed))
    with pytest.raises(ValueError, match="leads out"):
        list(registry_tasks(tmp_path / "registry.json"))


@pytest.fixture
def package(tmp_path):
    """A package in icalfa's form, with requests of our own."""
    root = tmp_path / "icalfa"
    for place in ("datasets", "docker"):
        (root / "assets" / place).mkdir(parents=True)
    for system in range(1, 6):
        rows = []
        if system == 1:
            rows = [
                {
                    "query": "count the words of /testbed/a",
                    "gold": "wc -w < /testbed/a",
                    "gold2": "wc -w < /testbed/a",
                    "difficulty": 0,
                },
                {
                    "query": "remove /testbed/a",
                    "gold": "rm /testbed/a",
                    "gold2": "unlink /testbed/a",
                    "difficulty": 2,
                },
            ]
        (root / "assets" / "datasets" / f"nl2bash_fs_{system}.json").write_text(json.dumps(rows))
        script = "#!/bin/bash\nrm -rf /testbed/\nmkdir -p /testbed\necho one two > /testbed/a\n"
        (root / "assets" / "docker" / f"setup_nl2b_fs_{system}.sh").write_text(script)
    return root


def test_requests_for_one_command_become_tasks_whose_gold_commands_pass(tmp_path, package):
    done = CliRunner().invoke(
        app,
        ["pool", "convert", "intercode-alfa", "--source", str(package), "--output", str(tmp_path / "pool")],
    )
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[1:] == [
        "tried    icalfa-1-000: untouched 0 of 2, solution 2 of 2",
        "tried    icalfa-1-001: untouched 0 of 2, solution 2 of 2",
    ]
    entries = list(Pool.open(tmp_path / "pool").entries)
    assert {(entry.split, entry.licence) for entry in entries} == {("heldout", "MIT")}
    assert [entry.level for entry in entries] == [1, 3]


def test_what_is_converted_must_be_there_and_what_is_written_must_not(tmp_path):
    with pytest.raises(ValueError, match=r"not the package icalfa: assets/datasets/nl2bash_fs_1\.json"):
        converted("intercode-alfa", tmp_path, tmp_path / "pool")
    with pytest.raises(ValueError, match="no such file or directory"):
        converted("tmax", tmp_path / "none.jsonl", tmp_path / "pool")
    with pytest.raises(ValueError, match="never written over"):
        converted("tmax", tmp_path, tmp_path)
    with pytest.raises(ValueError, match="form 'zip' is none of"):
        converted("zip", tmp_path, tmp_path / "pool")
    with pytest.raises(ValueError, match="none of 0 tasks"):
        converted("terminal-bench", tmp_path, tmp_path / "pool")
    assert not (tmp_path / "pool").exists()


def test_a_pool_of_which_no_tried_task_answers_is_not_kept(tmp_path):
    terminal_bench_task(tmp_path / "source" / "mute")
    (tmp_path / "source" / "mute" / "Dockerfile").write_text("FROM scratch\nRUN exit 3\n")
    with pytest.raises(ValueError, match="not one answers: mute: ValueError"):
        converted("terminal-bench", tmp_path / "source", tmp_path / "pool")
    assert not (tmp_path / "pool").exists()


@pytest.mark.parametrize("name", ["", ".", "..", "../beside", "ABSOLUTE", "a/b"])
def test_a_name_that_leads_elsewhere_is_refused_and_nothing_there_is_touched(tmp_path, name):
    beside = tmp_path / "out" / "beside"
    beside.mkdir(parents=True)
    (beside / "kept").write_text("kept")
    rows = [ROW, ROW | {"task_id": str(beside) if name == "ABSOLUTE" else name}]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = converted("tmax", tmp_path / "train.jsonl", tmp_path / "out" / "pool")
    assert (done.num_found, done.num_kept) == (2, 1)
    assert list(done.reasons) == [f"name {rows[1]['task_id']!r} is taken or is no directory's"]
    assert (beside / "kept").read_text() == "kept"


def test_the_second_task_of_a_name_does_not_take_the_first_away(tmp_path):
    (tmp_path / "train.jsonl").write_text((json.dumps(ROW) + "\n") * 2)
    done = converted("tmax", tmp_path / "train.jsonl", tmp_path / "pool")
    assert (done.num_found, done.num_kept, list(done.refused)) == (2, 1, ["task_0"])


@pytest.mark.parametrize("wanted", ["{secret}", "../secret", "link", "."])
def test_files_of_a_record_are_those_beside_it(tmp_path, wanted):
    (tmp_path / "secret").write_text("of the host")
    record = tmp_path / "record"
    record.mkdir()
    (record / "link").symlink_to(tmp_path / "secret")
    wanted = wanted.format(secret=tmp_path / "secret")
    row = ROW | {"container_def": f"%files\n    {wanted} /home/user/x\n"}
    with pytest.raises(NotConverted, match="not beside the record"):
        convert_tmax((row, record), tmp_path / "out", about={})


def test_a_linked_task_toml_of_a_registry_is_read_and_not_written_through(tmp_path):
    write_task(tmp_path / "tasks" / "greet")
    (tmp_path / "common.toml").write_text('[metadata]\nfamily = "greetings"\n')
    (tmp_path / "tasks" / "greet" / "task.toml").unlink()
    (tmp_path / "tasks" / "greet" / "task.toml").symlink_to("../../common.toml")
    listed = [{"name": "d", "tasks": [{"name": "greet", "path": "tasks/greet"}]}]
    (tmp_path / "registry.json").write_text(json.dumps(listed))
    converted("harbor-registry", tmp_path / "registry.json", tmp_path / "pool", licence="MIT")
    (entry,) = Pool.open(tmp_path / "pool").entries
    assert (entry.family, entry.licence) == ("greetings", "MIT")
    assert (tmp_path / "common.toml").read_text() == '[metadata]\nfamily = "greetings"\n'


def test_a_link_beside_a_terminal_bench_task_is_not_followed(tmp_path):
    (tmp_path / "secret").write_text("of the host")
    task = terminal_bench_task(tmp_path / "greet")
    (task / "file").symlink_to(tmp_path / "secret")
    (task / "folder").symlink_to(tmp_path)
    convert_terminal_bench(task, tmp_path / "out", about={})
    environment = tmp_path / "out" / "environment"
    assert (environment / "file").is_symlink() and (environment / "folder").is_symlink()
