"""The executable audit, in real boxes: each planted defect is found, and a killed audit is gone on with."""

import asyncio
import json

import pytest
from pool_directories import SOLUTION, TESTS, write_task
from typer.testing import CliRunner

from t1core.cli import app
from t1core.pools.audit import audit_pool
from t1core.pools.audit_task import AuditSettings
from t1core.pools.table import summary_lines, verdict_frame
from t1core.pools.verdict import Standing, latest_verdicts
from t1core.tasks.pool import Pool

QUICK = AuditSettings(num_repeats=1, num_mutants=5, with_attacks=False)
ORDERED = """SEEN = []


def test_first():
    SEEN.append(1)
    assert open("/app/out.txt").read() == "hello moon\\n"


def test_second():
    assert SEEN and open("/app/out.txt").read() == "hello moon\\n"
"""
CHANCY = """import os


def test_odd():
    assert open("/app/out.txt").read() and os.urandom(8)[0:4] > os.urandom(8)[0:4]


def test_there():
    assert open("/app/out.txt").read() == "hello moon\\n"
"""
WEAK = """import os


def test_there():
    assert os.path.exists("/app/out.txt")


def test_is_a_file():
    assert os.path.isfile("/app/out.txt")
"""


def verdicts_of(pool, output, settings=QUICK, parallel=2):
    async def run():
        opened = Pool.open(pool)
        return [
            verdict
            async for verdict in audit_pool(
                opened.directory, opened.entries, output=output, settings=settings, num_parallel=parallel
            )
        ]

    return {verdict.task_id: verdict for verdict in asyncio.run(run())}


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """The verdicts on a pool of planted defects, and the file they are in."""
    root = tmp_path_factory.mktemp("audited")
    pool = root / "pool"
    write_task(pool / "sound")
    write_task(pool / "ordered", tests=ORDERED)
    write_task(pool / "weak", tests=WEAK)
    write_task(pool / "wrong", solution="curl -s example.invalid\necho hello sun > /app/out.txt\n")
    write_task(pool / "done", tests=TESTS + "\n\ndef test_app():\n    assert ROOT.is_dir()\n")
    write_task(pool / "unproven", solution=None)
    write_task(pool / "leaky", files={"check.py": TESTS})
    write_task(pool / "unfit", toml="[environment]\ngpus = 1\n")
    return verdicts_of(pool, root / "audit.jsonl"), root / "audit.jsonl"


def outcomes(verdict):
    return {check.name: str(check.outcome) for check in verdict.checks}


def evidence(verdict, name):
    (found,) = [check.evidence for check in verdict.checks if check.name == name]
    return found


def test_a_sound_task_passes_every_check_and_is_accepted(audited):
    verdict = audited[0]["sound"]
    assert verdict.standing is Standing.ACCEPT
    assert outcomes(verdict) == dict.fromkeys(
        (
            "opens",
            "solution",
            "budget",
            "repeats",
            "order",
            "mutants",
            "untouched",
            "trivial",
            "network",
            "leakage",
        ),
        "passed",
    ) | {"attacks": "skipped"}
    numbers = verdict.numbers
    assert (numbers["num_tests"], numbers["nop_passed"], numbers["survivors"]) == (2, 0, 0)
    # Of five faults one, appending to a file that is not there, leaves what the solution leaves.
    assert numbers["mutants"] == 4 and numbers["peak_mb"] > 1 and verdict.nop_passed == ()
    assert evidence(verdict, "solution") == "2 of 2"


def test_tests_that_need_each_other_are_found_by_their_order(audited):
    verdict = audited[0]["ordered"]
    assert {name for name, outcome in outcomes(verdict).items() if outcome == "failed"} == {"order"}
    assert "test_second" in evidence(verdict, "order")
    assert verdict.standing is Standing.BORDERLINE


def test_tests_that_look_at_nothing_let_empty_files_and_mutants_through(audited):
    verdict = audited[0]["weak"]
    assert outcomes(verdict)["trivial"] == outcomes(verdict)["mutants"] == "failed"
    assert evidence(verdict, "trivial") == "solved by empty files, files that hold '0'"
    assert "survives: " in evidence(verdict, "mutants")
    assert verdict.standing is Standing.REJECT


def test_a_solution_that_fails_is_a_reason_to_reject_and_its_test_is_named(audited):
    verdict = audited[0]["wrong"]
    assert outcomes(verdict)["solution"] == "failed" and verdict.standing is Standing.REJECT
    assert evidence(verdict, "solution").startswith("1 of 2; test_says_so: AssertionError")
    assert outcomes(verdict)["mutants"] == outcomes(verdict)["repeats"] == "skipped"
    assert evidence(verdict, "network") == "solution/solve.sh: curl -s example.invalid"


def test_a_test_that_passes_with_nothing_done_is_named(audited):
    verdict = audited[0]["done"]
    assert evidence(verdict, "untouched") == "1 of 3; test_app"
    assert verdict.nop_passed == ("test_outputs.py::test_app",)
    assert verdict.standing is Standing.BORDERLINE


def test_a_task_without_a_solution_is_not_accepted(audited):
    verdict = audited[0]["unproven"]
    assert outcomes(verdict)["solution"] == "skipped" and verdict.standing is Standing.BORDERLINE


def test_tests_in_the_workspace_are_a_reason_to_reject(audited):
    verdict = audited[0]["leaky"]
    assert evidence(verdict, "leakage") == "environment/files/check.py holds tests/test_outputs.py"
    assert verdict.standing is Standing.REJECT


def test_a_box_that_cannot_be_opened_is_a_verdict_and_no_end(audited):
    verdict = audited[0]["unfit"]
    assert outcomes(verdict) == {"opens": "failed"}
    assert "environment.gpus 1" in evidence(verdict, "opens")


def test_the_table_has_a_row_a_task_and_the_summary_counts_them(audited):
    verdicts, output = audited
    frame = verdict_frame(output).set_index("task_id")
    assert (
        len(frame) == 8 and frame.loc["weak", "trivial"] == "failed" and frame.loc["sound", "evidence"] == ""
    )
    lines = list(summary_lines(verdicts.values()))
    assert lines[0] == "8 tasks: 1 accept, 3 borderline, 4 reject"
    assert any(line.split()[:5] == ["solution", "1", "of", "6", "fail:"] for line in lines)


def test_a_chance_in_a_test_is_found_by_grading_again(tmp_path):
    write_task(tmp_path / "pool" / "chancy", tests=CHANCY)
    settings = AuditSettings(num_repeats=12, num_mutants=0, with_attacks=False)
    for _ in range(6):  # the solution passes by chance, or a repeat is not made
        (verdict,) = verdicts_of(tmp_path / "pool", tmp_path / "audit.jsonl", settings).values()
        if outcomes(verdict)["solution"] == "passed":
            break
        (tmp_path / "audit.jsonl").unlink()
    assert outcomes(verdict)["repeats"] == "failed" and "test_odd" in evidence(verdict, "repeats")


def test_an_audit_that_was_cut_goes_on_where_it_was_and_sees_what_changed(tmp_path):
    pool, output = tmp_path / "pool", tmp_path / "audit.jsonl"
    for name in ("a", "b", "c"):
        write_task(pool / name, instruction=f"Greet {name} in /app/out.txt.\n")
    settings = AuditSettings(num_repeats=0, num_mutants=0, with_attacks=False)

    async def cut():
        opened = Pool.open(pool)
        verdicts = audit_pool(
            opened.directory, opened.entries, output=output, settings=settings, num_parallel=1
        )
        async for _ in verdicts:
            break
        await verdicts.aclose()

    asyncio.run(cut())
    (first,) = output.read_text().splitlines()
    with output.open("a") as file:
        file.write('{"task_id": "b", "conte')  # as a kill in mid-write leaves it
    assert sorted(verdicts_of(pool, output, settings)) == ["b", "c"]
    assert output.read_text().splitlines()[0] == first
    assert verdicts_of(pool, output, settings) == {}
    (pool / "a" / "instruction.md").write_text("Greet the sun.\n")
    assert sorted(verdicts_of(pool, output, settings)) == ["a"]
    assert latest_verdicts(output)["a"].content_hash != json.loads(first)["content_hash"]


@pytest.mark.slow
def test_attacks_that_pay_are_named_by_the_command(tmp_path):
    imports = """import sys
sys.path.insert(0, "/app")


def test_two():
    import solve
    assert solve.double(1) == 2


def test_six():
    import solve
    assert solve.double(3) == 6
"""
    solution = "#!/bin/bash\nprintf 'def double(n):\\n    return n * 2\\n' > /app/solve.py\n"
    write_task(tmp_path / "pool" / "imports", tests=imports, solution=solution)
    write_task(tmp_path / "pool" / "reads", solution=SOLUTION)
    output = tmp_path / "audit.jsonl"
    done = CliRunner().invoke(
        app,
        [
            "pool",
            "audit",
            str(tmp_path / "pool"),
            "--output",
            str(output),
            "--mutants",
            "1",
            "--repeats",
            "0",
        ],
    )
    assert done.exit_code == 0, done.output
    found = latest_verdicts(output)
    assert outcomes(found["reads"])["attacks"] == "passed"
    assert "paid" in evidence(found["imports"], "attacks")
    assert "object that equals everything" in evidence(found["imports"], "attacks")
    assert "2 tasks: " in done.output


def test_two_audits_do_not_write_one_file(tmp_path):
    import fcntl

    write_task(tmp_path / "pool" / "a")
    output = tmp_path / "audit.jsonl"
    with output.open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="being written by another audit"):
            verdicts_of(tmp_path / "pool", output)


@pytest.mark.parametrize("field", ["num_repeats", "num_mutants"])
def test_settings_that_make_no_sense_are_refused(field):
    with pytest.raises(ValueError, match=f"{field}=-1"):
        AuditSettings(**{field: -1})
