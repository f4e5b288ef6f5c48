"""Reading Harbor-layout task directories."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from t1core.tasks.harbor import load_task


def rewrite(directory: Path, name: str, text: str) -> None:
    (directory / name).write_text(text)


def test_a_task_is_read_with_its_tests_in_file_order_and_harbors_defaults(task_directory):
    task = load_task(task_directory)
    assert task.instruction.strip() == "Write hello to a.txt."
    assert task.test_names == ("test_outputs.py::test_b", "test_outputs.py::test_a")
    assert (task.task_id, task.family, task.split) == ("greet", "unknown", "train")
    assert (task.agent_timeout_s, task.verifier_timeout_s) == (30.0, 600.0)


def test_family_and_split_come_from_metadata_and_category_stands_in_for_family(task_directory):
    rewrite(task_directory, "task.toml", '[metadata]\ncategory = "files"\nsplit = "heldout"\n')
    assert (load_task(task_directory).family, load_task(task_directory).split) == ("files", "heldout")
    rewrite(task_directory, "task.toml", '[metadata]\ncategory = "files"\nfamily = "greet"\n')
    assert load_task(task_directory).family == "greet"


def test_names_read_from_the_source_are_those_the_ctrf_reporter_writes(task_directory):
    source = """
class TestK:
    def test_m(self): assert True
    def helper(self): pass
class TestBuilt:
    def __init__(self): pass
    def test_never(self): pass
class Other:
    def test_never(self): pass
def helper(): pass
def test_z(): assert True
async def test_async(): pass
def testing_counts_too(): pass
"""
    rewrite(task_directory, "tests/test_outputs.py", source)
    report, tests = task_directory / "ctrf.json", task_directory / "tests"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    subprocess.run(
        [*command, "--rootdir", str(tests), "--ctrf", str(report), str(tests / "test_outputs.py")],
        env=os.environ | {"PYTEST_ADDOPTS": ""},
        check=False,
        capture_output=True,
    )
    reported = [test["name"] for test in json.loads(report.read_text())["results"]["tests"]]
    assert list(load_task(task_directory).test_names) == reported
    assert len(reported) == 4


@pytest.mark.parametrize(
    "source",
    [
        "import pytest\n@pytest.mark.parametrize('x', [1, 2])\ndef test_a(x): pass\n",
        "import pytest\n@pytest.mark.parametrize('x', [1])\nclass TestA:\n    def test_a(self, x): pass\n",
        "import pytest\n@pytest.fixture(params=[1, 2])\ndef x(request): pass\ndef test_a(x): pass\n",
        "def pytest_generate_tests(metafunc): pass\ndef test_a(): pass\n",
        "class TestA(Base):\n    pass\n",
    ],
)
def test_tests_whose_names_the_source_does_not_show_must_be_listed(task_directory, source):
    rewrite(task_directory, "tests/test_outputs.py", source)
    with pytest.raises(ValueError, match=r"greet.*metadata\.test_names"):
        load_task(task_directory)
    rewrite(task_directory, "task.toml", '[metadata]\ntest_names = ["test_outputs.py::test_a[1]"]\n')
    assert load_task(task_directory).test_names == ("test_outputs.py::test_a[1]",)


def test_unknown_keys_are_warned_of_by_their_full_name(task_directory):
    rewrite(
        task_directory, "task.toml", "tiemout = 1\n[verifier]\ntimeout = 30\n[environment]\nmemory_mb = 5\n"
    )
    with pytest.warns(UserWarning, match=r"greet.*: tiemout, verifier\.timeout$"):
        load_task(task_directory)


def test_a_task_with_known_keys_only_warns_of_nothing(pool):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_task(pool.directory / pool.entries[0].path)


@pytest.mark.parametrize("name", ["instruction.md", "task.toml", "tests/test_outputs.py"])
def test_a_missing_file_is_named_with_the_directory(task_directory, name):
    (task_directory / name).unlink()
    with pytest.raises(ValueError, match=rf"greet: {name} is missing; "):
        load_task(task_directory)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("instruction.md", " \n", "instruction.md is empty"),
        ("task.toml", "a = ", "not TOML"),
        ("task.toml", "agent = 3", "agent 3: must be a table"),
        ("task.toml", "[agent]\ntimeout_sec = -1.0", "agent.timeout_sec -1.0"),
        ("task.toml", '[verifier]\ntimeout_sec = "60"', "verifier.timeout_sec '60'"),
        ("task.toml", "[agent]\ntimeout_sec = true", "agent.timeout_sec True"),
        ("task.toml", "[agent]\ntimeout_sec = inf", "agent.timeout_sec inf"),
        ("task.toml", '[[steps]]\nname = "a"', "steps/a/instruction.md is missing"),
        ("task.toml", "[metadata]\ntest_names = []", "metadata.test_names"),
        ("task.toml", '[metadata]\ntest_names = ["a", "a"]', "a name twice"),
        ("tests/test_outputs.py", "def test_a(:\n", "line 1 does not parse"),
        ("tests/test_outputs.py", "def check(): pass\n", "has no test"),
    ],
)
def test_a_wrong_file_is_refused_with_the_field_and_the_task(task_directory, name, text, message):
    rewrite(task_directory, name, text)
    with pytest.raises(ValueError, match="greet") as refusal:
        load_task(task_directory)
    assert message in str(refusal.value)


def test_a_missing_directory_is_refused(tmp_path):
    with pytest.raises(ValueError, match="absent: no such directory"):
        load_task(tmp_path / "absent")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Do it.\n", "Do it.\n"),
        ("<!-- canary GUID 1 -->\n# Canary string 2\n\n\nDo it.\n", "Do it.\n"),
        ("Do it.\n# canary\n", "Do it.\n# canary\n"),
        ("# Title\nDo it.", "# Title\nDo it."),
    ],
)
def test_an_agent_is_not_shown_the_canary_at_the_head_of_its_instruction(task_directory, text, shown):
    rewrite(task_directory, "instruction.md", text)
    assert load_task(task_directory).instruction == shown
