"""Every field of Harbor's task schema: honoured, said to have no effect, or refused with the reason."""

import json
import os
import re
import subprocess
import tomllib
import warnings

import pytest

from t1core.sandbox.request import box_spec, refuse_beyond_bubblewrap
from t1core.tasks import task_toml
from t1core.tasks.harbor import load_task
from tests.tasks.conformance import CASES

# Run by a Python that has harbor: what it makes of each text on stdin, and the names of all its fields.
HARBOR = """
import json, sys
from typing import get_args
from pydantic import BaseModel
from harbor.models.task.config import TaskConfig

def fields(model, above=""):
    for name, field in model.model_fields.items():
        yield above + name
        pending, seen = [field.annotation], []
        while pending:
            kind = pending.pop()
            seen.append(kind)
            pending += get_args(kind)
        for kind in seen:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from fields(kind, above + name + ".")

def verdict(text):
    try:
        TaskConfig.model_validate_toml(text)
    except ValueError as error:
        return str(error)[:300]
    return ""

json.dump({"fields": list(fields(TaskConfig)), "verdicts": [verdict(t) for t in json.load(sys.stdin)]}, sys.stdout)
"""


def asked(task):
    """The box that is opened for a task, within small limits."""
    environment_dir = task.path / "environment"
    limits = {"memory_mb": 512, "storage_mb": 64, "max_processes": 32}
    spec = box_spec(task.environment, box_id="b", environment_dir=environment_dir, **limits)
    refuse_beyond_bubblewrap(spec, has_image=False)
    return spec


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_task_directory_is_honoured_said_or_refused(case, tmp_path):
    directory = case.write(tmp_path)
    kind, expected = case.outcome
    if kind == "refused":
        with pytest.raises(ValueError, match=expected):
            asked(load_task(directory))
        return
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        task = load_task(directory)
        spec = asked(task)
    if kind == "said":
        assert any(re.search(expected, str(warning.message)) for warning in heard)
    else:
        assert [str(warning.message) for warning in heard] == []
        found = {name: read(task if hasattr(task, name.split("__")[0]) else spec, name) for name in expected}
        assert found == expected
    if not task.steps:
        assert task.test_names == ("test_outputs.py::test_a", "test_outputs.py::test_b")


def read(record, path):
    """What stands at `a__0__b`: attribute a, its first item, that one's attribute b."""
    for name in path.split("__"):
        record = record[int(name)] if name.isdigit() else getattr(record, name)
    return record


def leaves(schema, above=""):
    for name, below in schema.items():
        yield above + name
        if below is not None:
            yield from leaves(below, f"{above}{name}.")


def keys(table, above=""):
    for name, value in table.items():
        yield above + name
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, dict):
                yield from keys(inner, f"{above}{name}.")


def test_every_key_that_is_read_has_a_case():
    tried = {key for case in CASES for key in keys(tomllib.loads(case.toml))}
    known = set(leaves(task_toml.SCHEMA))
    # The tables of a step, and of the tests' own environment, are read as those of the task are.
    again = ("verifier.environment.", "steps.verifier.", "steps.agent.", "steps.artifacts.")
    assert {key for key in known - tried if not key.startswith(again)} == set()


def test_conflicting_sizes_are_refused(tmp_path):
    case = next(case for case in CASES if case.name == "older_sizes")
    directory = case.write(tmp_path)
    (directory / "task.toml").write_text('[environment]\nmemory = "1G"\nmemory_mb = 512\n')
    with pytest.raises(ValueError, match="memory '1G': contradicts memory_mb 512"):
        load_task(directory)


@pytest.mark.slow
def test_the_set_is_harbors_schema_and_leaves_no_field_of_it_out():
    python = os.environ.get("T1CORE_HARBOR_PYTHON")
    if not python:
        pytest.skip("T1CORE_HARBOR_PYTHON is not set: it names a Python that has harbor")
    texts = [case.toml for case in CASES]
    done = subprocess.run(
        [python, "-c", HARBOR], input=json.dumps(texts), capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert {case.name: why for case, why in zip(CASES, found["verdicts"], strict=True) if why} == {}
    tried = {key for text in texts for key in keys(tomllib.loads(text))}
    # What is refused as a whole needs no case for each of its parts.
    whole = (
        "verifier.environment.",
        "steps.",
        "environment.mcp_servers.",
        "verifier.collect.",
        "environment.tpu.",
    )
    assert {name for name in found["fields"] if name not in tried and not name.startswith(whole)} == set()
