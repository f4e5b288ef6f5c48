"""Variants that a model writes, over real HTTP; and `t1 pool synthesise` as it is typed, its gate in real boxes."""

import asyncio
import json

import pytest
from typer.testing import CliRunner

from t1core.cli import app
from t1core.pools.llm.endpoint import open_endpoint
from t1core.pools.synthesis.attempts import read_attempts
from t1core.pools.synthesis.candidate import Parent
from t1core.pools.synthesis.lineage import read_lineage
from t1core.pools.synthesis.table import Summary
from t1core.pools.synthesis.variant import VariantWriter
from t1core.tasks.harbor import load_task
from t1core.tasks.pool import Pool
from tests.pools.pool_directories import write_task
from tests.pools.scripted_endpoint import MODEL, Say, scripted
from tests.pools.test_pool_model_commands import served, small_pool

TESTS = """from pathlib import Path

ROOT = Path("/app")


def test_there():
    assert (ROOT / "sum.txt").is_file()


def test_total():
    lines = (ROOT / "sum.txt").read_text().splitlines()
    assert len(lines) == 2
    assert lines[0] == "total 12"


def test_longest():
    assert (ROOT / "sum.txt").read_text().splitlines()[1:] == ["longest pear"]
"""
GOOD = {
    "instruction": "Write to /app/sum.txt two lines: total and the sum of fruit.csv, longest and its longest name.",
    "files": [{"path": "fruit.csv", "text": "fig 5\npear 7\n"}],
    "solution": "cd /app\nawk '{s += $2} END {print \"total \" s}' fruit.csv > sum.txt\n"
    "awk '{if (length($1) > length(l)) l = $1} END {print \"longest \" l}' fruit.csv >> sum.txt\n",
    "tests": TESTS,
    "harder": "two results of one file",
}


def propose(script, parent, **settings):
    async def run():
        async with scripted(script) as server, open_endpoint(server.settings(**settings)) as endpoint:
            writer = VariantWriter(endpoint, seed=0, max_retries=2, max_chars=60_000)
            return await writer.propose([parent], round_number=2, index=0), server

    return asyncio.run(run())


@pytest.fixture
def parent(tmp_path):
    return Parent("greeting", write_task(tmp_path / "pool" / "greeting"))


def test_a_variant_is_a_harbor_task_that_names_its_parent_its_model_and_its_question(parent, tmp_path):
    candidate, server = propose([Say(json.dumps(GOOD))], parent)
    assert candidate.problem == "" and candidate.parents == ("greeting",)
    rules, shown = (message["content"] for message in server.asked[0]["messages"])
    assert "more commands than 1" in rules and "more than 2 asserts" in rules
    assert "hello moon" in shown
    candidate.files.write(tmp_path / "variant")
    task = load_task(tmp_path / "variant")
    assert task.num_tests == 3 and task.instruction.strip() == GOOD["instruction"]
    lineage = task.metadata["lineage"]
    assert lineage["model"] == MODEL and lineage["prompt_hash"] == candidate.origin["prompt_hash"]
    assert (lineage["round"], lineage["parents"], lineage["operator"]) == (2, ["greeting"], "variant")
    assert (tmp_path / "variant/environment/files/fruit.csv").read_text() == "fig 5\npear 7\n"
    assert candidate.origin["harder"] == "two results of one file" and candidate.cost.num_calls == 1


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"files": [{"path": "../x", "text": ""}]}, "not a plain path"),
        ({"files": [{"path": "/etc/x", "text": ""}]}, "not a plain path"),
        ({"files": [{"path": "a", "text": ""}, {"path": "a", "text": "b"}]}, "same path"),
        ({"tests": "def test_a(:\n"}, "do not parse"),
        ({"tests": "def check():\n    assert 1 and 2\n"}, "no function named test_"),
        ({"tests": "def test_a():\n    assert 1\n"}, "1 asserts; more than 2"),
        ({"tests": "import requests\n" + TESTS}, "import requests"),
        ({"solution": "#!/bin/bash\n# nothing\ntrue\n"}, "1 commands; more than 1"),
    ],
)
def test_what_cannot_be_tried_is_asked_for_again(parent, change, complaint):
    candidate, server = propose([Say(json.dumps(GOOD | change)), Say(json.dumps(GOOD))], parent)
    assert complaint in server.asked[1]["messages"][-1]["content"]
    assert candidate.problem == "" and candidate.cost.failures == {"invalid": 1}


def test_no_variant_is_a_candidate_with_a_problem_and_its_cost(parent):
    candidate, _ = propose([Say("Once upon a time")] * 3, parent)
    assert candidate.files is None and candidate.problem.startswith("no variant: no valid answer in 3")
    assert candidate.cost.num_calls == 3 and candidate.cost.failures == {"no_json": 3}


def test_a_models_variants_are_gated_in_boxes(tmp_path):
    """Of three, one is sound, one has a test that passes untouched, and one is no answer."""
    pool, output = tmp_path / "pool", tmp_path / "new"
    write_task(pool / "greeting")
    loose = GOOD | {"tests": TESTS + "\n\ndef test_free():\n    assert True\n"}
    answers = iter([Say(json.dumps(GOOD)), Say(json.dumps(loose)), Say("no")])
    with served(lambda body: next(answers)) as url:
        words = f"pool synthesise {pool} --rounds 1 --per-round 3 --output {output} --endpoint {url} --model {MODEL}"
        words += " --mutants 2 --repeats 0 --attempts 0 --max-retries 0"
        told = CliRunner().invoke(app, words.split())
    assert told.exit_code == 0, told.output
    _, steps = read_lineage(output / "lineage.jsonl")
    assert [step.is_kept for step in steps] == [True, False, False], [step.reason for step in steps]
    assert steps[1].failed_checks == ("untouched",)
    assert steps[2].reason.startswith("no variant: ") and steps[2].size is None
    assert [entry.task_id for entry in Pool.open(output).entries] == ["r01-0000-variant"]
    assert "cost       3 calls" in told.output and "failures: 1 no_json" in told.output


def test_composed_tasks_are_gated_attempted_and_told_in_a_table(tmp_path):
    pool, output = small_pool(tmp_path / "pool"), tmp_path / "new"
    words = f"pool synthesise {pool} --rounds 1 --per-round 2 --output {output} --mutants 2 --repeats 0"
    words += " --attempts 1 --policy-tasks 1 --error-rate 1"
    told = CliRunner().invoke(app, words.split())
    assert told.exit_code == 0, told.output
    kept = Pool.open(output).entries
    assert len(kept) >= 1 and all(entry.family.startswith("composed-") for entry in kept)
    _, attempts = read_attempts(output / "attempts.jsonl")
    assert {attempt.round for attempt in attempts} == {0, 1}
    assert all(
        attempt.num_passed == 0 and attempt.num_left_out == attempt.num_commands for attempt in attempts
    )
    summary = Summary.from_json((output / "summary.json").read_text())
    assert summary.table["round"].tolist() == [0, 1] and summary.table["pass_at_1"].tolist() == [0, 0]
    assert summary.policy["error_rate"] == 1 and summary.settings["per_round"] == 2
    assert summary.settings["audit"]["num_mutants"] == 2


def test_an_endpoint_without_a_model_is_refused(tmp_path):
    words = f"pool synthesise {small_pool(tmp_path / 'pool')} --rounds 1 --output {tmp_path / 'new'} --endpoint http://x/v1"
    told = CliRunner().invoke(app, words.split())
    assert isinstance(told.exception, ValueError) and "belong together" in str(told.exception)
