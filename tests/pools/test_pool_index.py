"""The index: what it says of a task, what is kept of what was measured, and that it is read line by line."""

import json
from dataclasses import replace

import pytest
from pool_directories import write_task
from typer.testing import CliRunner

from t1core.cli import app
from t1core.pools.verdict import Check, Outcome, Standing, Verdict, standing_of
from t1core.tasks.index import INDEX_NAME, Entry, content_hash, open_index, write_index
from t1core.tasks.pool import Pool

SCRIPT = "#!/bin/bash\npython3 /tests/look.py && echo 1 > /logs/verifier/reward.txt\n"


def entry_of(directory):
    write_index(directory)
    (entry,) = Pool.open(directory).entries
    return entry


def test_an_entry_says_what_the_task_declares(tmp_path):
    toml = """
[metadata]
family = "greetings"
source = "made up"
licence = "MIT"
[agent]
timeout_sec = 90.0
[verifier]
timeout_sec = 20.0
[environment]
memory_mb = 256
storage_mb = 64
"""
    write_task(tmp_path / "greet", toml=toml)
    entry = entry_of(tmp_path)
    assert (entry.task_id, entry.path, entry.family, entry.num_tests) == ("greet", "greet", "greetings", 2)
    assert (entry.agent_timeout_s, entry.verifier_timeout_s) == (90.0, 20.0)
    assert (entry.memory_mb, entry.storage_mb) == (256, 64)
    assert (entry.source, entry.licence) == ("made up", "MIT")
    assert (entry.nop_passed, entry.quality_rank) == (None, None)


@pytest.mark.parametrize(
    ("fields", "verifier"),
    [
        ({}, "counted"),
        ({"tests": "def test_a(): pass\n"}, "binary"),
        ({"tests": "", "script": SCRIPT}, "declared"),
        ({"toml": '[metadata]\nverifier_kind = "binary"\n'}, "binary"),
    ],
)
def test_what_a_verifier_can_say_is_read_from_the_tests_unless_it_is_marked(tmp_path, fields, verifier):
    write_task(tmp_path / "greet", **fields)
    assert entry_of(tmp_path).verifier == verifier


def test_a_mark_that_is_none_is_refused_with_those_there_are(tmp_path):
    write_task(tmp_path / "greet", toml='[metadata]\nverifier_kind = "partial"\n')
    with pytest.raises(ValueError, match=r"verifier_kind 'partial' is none of counted, declared, binary"):
        write_index(tmp_path)


def test_what_was_measured_is_kept_for_as_long_as_the_task_is_the_same(tmp_path):
    for name in ("same", "changed", "moved"):
        write_task(tmp_path / name, instruction=f"{name}\n")
    names = ("test_outputs.py::test_there",)
    write_index(
        tmp_path, nop_passed=dict.fromkeys(("same", "changed", "moved"), names), quality_ranks={"same": 4}
    )
    (tmp_path / "changed" / "instruction.md").write_text("other\n")
    (tmp_path / "moved").rename(tmp_path / "renamed")
    write_index(tmp_path)
    found = {entry.task_id: (entry.nop_passed, entry.quality_rank) for entry in Pool.open(tmp_path).entries}
    assert found == {"changed": (None, None), "renamed": (names, None), "same": (names, 4)}


def test_what_lies_in_a_task_is_no_task_of_the_pool(tmp_path):
    write_task(write_task(tmp_path / "greet") / "environment" / "files" / "example")
    assert entry_of(tmp_path).task_id == "greet"


def lines_of(count):
    yield json.dumps({"kind": "t1core task index", "schema_version": 2})
    for i in range(count):
        split = "heldout" if i % 3 == 0 else "train"
        row = Entry(f"task-{i}", f"task-{i}", "f", split, None, ("a::test_x",), f"{i:064d}")
        yield json.dumps(row.__dict__)


def test_entries_are_parsed_when_asked_for_and_only_those(tmp_path, monkeypatch):
    index = tmp_path / INDEX_NAME
    index.write_text("\n".join(lines_of(300)) + "\n")
    opened = open_index(index)
    parsed = []
    monkeypatch.setattr(
        "t1core.tasks.index._entry", lambda line: parsed.append(line) or json.loads(line)["task_id"]
    )
    assert opened.splits["heldout"][7] == "task-21"
    assert list(opened.splits["train"][2:4]) == ["task-4", "task-5"]
    assert opened.entries[-1] == "task-299"
    assert len(parsed) == 4
    assert (len(opened.entries), len(opened.splits["heldout"]), opened.families) == (300, 100, ("f",))


def test_an_index_that_is_replaced_is_still_read_as_it_was_opened(tmp_path):
    for name in ("a", "b"):
        write_task(tmp_path / name)
    write_index(tmp_path)
    opened = Pool.open(tmp_path)
    write_task(tmp_path / "0", instruction="comes first\n")
    write_index(tmp_path)
    assert [entry.task_id for entry in opened.entries] == ["a", "b"]
    assert [entry.task_id for entry in Pool.open(tmp_path).entries] == ["0", "a", "b"]


def verdict(task_id, *failed, **numbers):
    checks = tuple(Check(name, Outcome.FAILED, "seen") for name in failed)
    return Verdict(task_id, f"hash of {task_id}", "f", standing_of(checks), checks, numbers=numbers)


def test_a_verdict_follows_from_the_checks_that_failed():
    assert verdict("a").standing is Standing.ACCEPT
    assert verdict("a", "mutants", "untouched").standing is Standing.BORDERLINE
    assert verdict("a", "mutants", "solution").standing is Standing.REJECT


def test_a_verdict_comes_back_from_its_line():
    one = verdict("a", "mutants", survivors=2.0)
    assert Verdict.from_line(one.to_line()) == one


def test_indexing_by_an_audit_ranks_the_tasks_and_says_what_is_there(tmp_path):
    for name in ("a", "b", "c", "d"):
        write_task(tmp_path / "pool" / name, instruction=f"{name}\n")
    verdicts = [
        verdict("a", "solution"),
        verdict("b", mutants=4.0, survivors=2.0),
        verdict("c", "mutants"),
        verdict("d", mutants=4.0, survivors=1.0),
    ]
    verdicts = [replace(one, content_hash=content_hash(tmp_path / "pool" / one.task_id)) for one in verdicts]
    (tmp_path / "audit.jsonl").write_text("".join(f"{one.to_line()}\n" for one in verdicts))
    done = CliRunner().invoke(
        app, ["pool", "index", str(tmp_path / "pool"), "--audit", str(tmp_path / "audit.jsonl")]
    )
    assert done.exit_code == 0, done.output
    assert done.output == "indexed  4 tasks of 1 families\n    train 4\n"
    ranks = {entry.task_id: entry.quality_rank for entry in Pool.open(tmp_path / "pool").entries}
    assert ranks == {"d": 1, "b": 2, "c": 3, "a": 4}


def test_a_verdict_on_what_a_task_was_before_is_left_out_and_said(tmp_path):
    write_task(tmp_path / "pool" / "a")
    audited = content_hash(tmp_path / "pool" / "a")
    one = replace(verdict("a"), content_hash=audited, nop_passed=("test_outputs.py::test_there",))
    (tmp_path / "audit.jsonl").write_text(one.to_line() + "\n")
    command = ["pool", "index", str(tmp_path / "pool"), "--audit", str(tmp_path / "audit.jsonl")]
    CliRunner().invoke(app, command)
    (entry,) = Pool.open(tmp_path / "pool").entries
    assert (entry.nop_passed, entry.quality_rank) == (("test_outputs.py::test_there",), 1)
    (tmp_path / "pool" / "a" / "instruction.md").write_text("Something else.\n")
    done = CliRunner().invoke(app, command)
    assert "1 verdicts are of other contents and left out (a): audit the pool again" in done.output
    (entry,) = Pool.open(tmp_path / "pool").entries
    assert (entry.nop_passed, entry.quality_rank) == (None, None)


def test_a_file_that_holds_no_verdicts_is_refused_by_its_line(tmp_path):
    write_task(tmp_path / "pool" / "a")
    (tmp_path / "audit.jsonl").write_text(f"{verdict('a').to_line()}\n{{}}\n")
    done = CliRunner().invoke(
        app, ["pool", "index", str(tmp_path / "pool"), "--audit", str(tmp_path / "audit.jsonl")]
    )
    assert isinstance(done.exception, ValueError) and "line 2 is no verdict" in str(done.exception)
