"""Rounds: what is kept begets the next round, every candidate leaves a line, a killed run goes on, and the table."""

import asyncio
import dataclasses
import json
import math

import pytest

from t1core.pools.llm.endpoint import Cost
from t1core.pools.synthesis.attempts import attempt_tasks, read_attempts
from t1core.pools.synthesis.candidate import Parent, Size, read_files, size_of, work_lines
from t1core.pools.synthesis.composer import Bounds, Composer
from t1core.pools.synthesis.lineage import Step, read_lineage
from t1core.pools.synthesis.policy import Attempt, faulty_solution
from t1core.pools.synthesis.rounds import RoundPlan, synthesise
from t1core.pools.synthesis.table import Summary, reject_reasons, summary_lines, synthesis_table
from t1core.pools.verdict import Check, Outcome, Verdict, standing_of
from t1core.records import Grade, RewardSource
from t1core.tasks.harbor import load_task
from t1core.tasks.index import content_hash
from t1core.tasks.pool import Pool
from t1core.tasks.practice.pool import oracle
from tests.pools.pool_directories import write_task


def seeds(folder, number=3):
    made = []
    for index in range(number):
        files, _ = oracle("write", seed=0, index=index, level=1)
        files.write(folder / f"write-{index}")
        made.append(Parent(f"write-{index}", folder / f"write-{index}"))
    return made


class Gate:
    """Lets pass what it is told to; notes what it saw, and can break like a machine."""

    def __init__(self, refuses=lambda name: False, breaks_after=None):
        self.refuses, self.breaks_after, self.seen = refuses, breaks_after, []

    async def __call__(self, directory):
        if self.breaks_after is not None and len(self.seen) == self.breaks_after:
            raise RuntimeError("the machine went down")
        self.seen.append(directory.name)
        load_task(directory)
        outcome = Outcome.FAILED if self.refuses(directory.name) else Outcome.PASSED
        checks = (Check("solution", Outcome.PASSED), Check("mutants", outcome, "1 of 3; survives: a; b"))
        return Verdict(
            directory.name,
            content_hash(directory),
            "f",
            standing_of(checks),
            checks,
            numbers={"audit_s": 2.0},
        )


def run(parents, output, gate, *, rounds=2, per_round=4, bounds=None, head=None):
    composer = Composer(seed=0, bounds=bounds or Bounds())
    plan = RoundPlan(num_rounds=rounds, per_round=per_round)
    return asyncio.run(
        synthesise(
            parents,
            proposer=composer,
            gate=gate,
            plan=plan,
            head=head or {"seed": 0},
            output=output,
            say=lambda step: None,
        )
    )


def test_what_a_round_keeps_are_harbor_tasks_and_the_parents_of_the_next(tmp_path):
    output = tmp_path / "new"
    gate = Gate(refuses=lambda name: name.startswith("r01-0001"))
    steps = run(seeds(tmp_path / "pool"), output, gate)
    kept = [step for step in steps if step.is_kept]
    first = {step.task_id for step in kept if step.round == 1}
    assert first and all(set(step.parents) <= first for step in steps if step.round == 2)
    assert all(set(step.parents) <= {"write-0", "write-1", "write-2"} for step in steps if step.round == 1)
    pool = Pool.open(output)
    assert {entry.task_id for entry in pool.entries} == {step.task_id for step in kept}
    assert {entry.task_id: entry.content_hash for entry in pool.entries} == {
        s.task_id: s.content_hash for s in kept
    }
    for entry in pool.entries:
        lineage = pool.task(entry).metadata["lineage"]
        step = next(step for step in kept if step.task_id == entry.task_id)
        assert (lineage["round"], tuple(lineage["parents"])) == (step.round, step.parents)
        assert step.size == size_of(read_files(output / entry.path))
    dropped = next(step for step in steps if step.task_id.startswith("r01-0001"))
    assert dropped.failed_checks == ("mutants",) and dropped.audit_s == 2.0
    assert not list(output.glob("round-01/r01-0001*"))  # what is not kept leaves a line and no files


def test_a_run_that_was_killed_goes_on_and_ends_as_if_it_had_not_been(tmp_path):
    parents = seeds(tmp_path / "pool")
    whole = run(parents, tmp_path / "whole", Gate())
    with pytest.raises(RuntimeError, match="went down"):
        run(parents, tmp_path / "cut", Gate(breaks_after=5))
    path = tmp_path / "cut" / "lineage.jsonl"
    path.write_text(path.read_text() + '{"task_id": "r02-')
    gate = Gate()
    again = run(parents, tmp_path / "cut", gate)
    assert again == whole
    assert len(gate.seen) + 5 == len([step for step in whole if step.content_hash])
    assert read_lineage(path)[1] == whole
    assert run(parents, tmp_path / "cut", Gate(breaks_after=0)) == whole  # nothing is left to do


def test_other_settings_do_not_go_on_with_the_same_output(tmp_path):
    parents = seeds(tmp_path / "pool")
    run(parents, tmp_path / "new", Gate(), rounds=1)
    with pytest.raises(ValueError, match="was begun with seed 0 and now it is 1"):
        run(parents, tmp_path / "new", Gate(), head={"seed": 1})


def test_a_twin_is_dropped_without_an_audit(tmp_path):
    parents = seeds(tmp_path / "pool", number=1)
    first = run(parents, tmp_path / "a", Gate(), rounds=1, per_round=1)

    class Again:
        async def propose(self, parents, *, round_number, index):
            return await Composer(seed=0, bounds=Bounds()).propose(parents, round_number=1, index=0)

    gate = Gate()
    plan = RoundPlan(num_rounds=1, per_round=2)
    steps = asyncio.run(
        synthesise(
            parents,
            proposer=Again(),
            gate=gate,
            plan=plan,
            head={},
            output=tmp_path / "b",
            say=lambda step: None,
        )
    )
    assert [step.is_kept for step in steps] == [True, False] and steps[1].reason.startswith("twin: ")
    assert len(gate.seen) == 1 and steps[0].substance_hash == first[0].substance_hash


def test_what_outgrows_its_bounds_is_never_built(tmp_path):
    gate = Gate()
    steps = run(seeds(tmp_path / "pool"), tmp_path / "new", gate, rounds=1, bounds=Bounds(max_tests=1))
    assert gate.seen == [] and {step.reason.partition(":")[0] for step in steps} == {"more than 1 tests"}
    assert not (tmp_path / "new" / "index.jsonl").exists()


def test_a_round_that_keeps_nothing_ends_the_run(tmp_path):
    steps = run(seeds(tmp_path / "pool"), tmp_path / "new", Gate(refuses=lambda name: True), rounds=3)
    assert {step.round for step in steps} == {1}


def test_only_practice_tasks_are_composed(tmp_path):
    directory = write_task(tmp_path / "pool" / "greeting")
    with pytest.raises(ValueError, match="greeting is not of practice generator"):
        run([Parent("greeting", directory)], tmp_path / "new", Gate())
    with pytest.raises(ValueError, match="no task to begin with"):
        run([], tmp_path / "new", Gate())


SCRIPT = '#!/bin/bash\ncd "${T1_APP_ROOT:-/app}"\n# a comment\n\nmkdir a\ncd a\necho b > c\n'


def test_the_policy_leaves_out_commands_at_its_rate_and_nothing_else():
    assert work_lines(SCRIPT) == [4, 5, 6]
    assert faulty_solution(SCRIPT, error_rate=0, seed="s") == (SCRIPT, 0)
    script, lost = faulty_solution(SCRIPT, error_rate=1, seed="s")
    assert lost == 3 and script == '#!/bin/bash\ncd "${T1_APP_ROOT:-/app}"\n# a comment\n\n'
    long = "#!/bin/bash\n" + "true\n" * 2000
    lost = faulty_solution(long, error_rate=0.1, seed="s")[1]
    assert 150 < lost < 250 and faulty_solution(long, error_rate=0.1, seed="s")[1] == lost
    with pytest.raises(ValueError, match="error_rate=2 must be from 0 to 1"):
        faulty_solution(SCRIPT, error_rate=2, seed="s")


def grade(passed, total, reward=0.0):
    source = RewardSource.CTRF if reward is not None else RewardSource.NONE
    return Grade(reward, source, passed, total, passed == total, ())


def test_attempts_are_gone_on_with_and_ungraded_ones_are_made_again(tmp_path):
    (parent,) = seeds(tmp_path / "pool", number=1)
    output, played = tmp_path / "attempts.jsonl", []

    def attempt(grades, *, num_attempts, error_rate=0.5):
        left = list(grades)

        async def play(directory, script):
            played.append(script)
            return left.pop(0)

        return asyncio.run(
            attempt_tasks(
                [(0, parent.directory)],
                num_attempts=num_attempts,
                error_rate=error_rate,
                seed=0,
                play=play,
                output=output,
                say=lambda one: None,
            )
        )

    made = attempt([grade(1, 4), grade(0, 0, reward=None)], num_attempts=2)
    assert [(one.attempt, one.num_passed, one.is_solved) for one in made] == [(0, 1, False)]
    made = attempt([grade(4, 4)], num_attempts=2)
    assert [(one.attempt, one.is_solved) for one in made] == [(0, False), (1, True)]
    assert played[1] == played[2] != played[0]  # the same errors once more
    assert read_attempts(output)[1] == made
    with pytest.raises(ValueError, match=r"are of error_rate 0\.5 and seed 0, now they are 0\.1 and 0"):
        attempt([], num_attempts=2, error_rate=0.1)


def step(number, index, *, kept=True, reason="", checks=(), lines=10, tests=5):
    size = Size(lines, tests, 2 * tests, 100)
    return Step(
        f"t{number}-{index}",
        number,
        index,
        "chain",
        ("a",),
        {},
        kept,
        reason,
        checks,
        number,
        size,
        "c",
        "s",
        Cost(),
        0.0,
    )


def test_the_table_is_worked_by_hand():
    steps = [
        step(1, 0, lines=10, tests=4),
        step(1, 1, lines=20, tests=8),
        step(1, 2, kept=False, reason="twin: of another"),
        step(1, 3, kept=False, reason="mutants: x; order: y", checks=("mutants", "order")),
        step(2, 0, kept=False, reason="mutants: x", checks=("mutants",)),
    ]
    attempts = [
        Attempt("seed", 0, 0, 2, 0, 4, 4, True),
        Attempt("t1-0", 1, 0, 10, 1, 4, 2, False),
        Attempt("t1-0", 1, 1, 10, 0, 4, 4, True),
        Attempt("t1-1", 1, 0, 20, 3, 8, 0, False),
        Attempt("t1-1", 1, 1, 20, 2, 8, 4, False),
    ]
    table = synthesis_table(steps, seeds={"seed": Size(2, 4, 5, 50)}, attempts=attempts, error_rate=0.1)
    assert table["round"].tolist() == [0, 1, 2]
    assert table["kept"].tolist() == [1, 2, 0] and table["yield"].tolist() == [1, 0.5, 0]
    first = table.iloc[1]
    assert (first["solution_lines"], first["tests"], first["asserts"]) == (15, 6, 12)
    assert (first["pass_at_1"], first["pass_at_k"]) == (0.25, 0.5)
    assert first["tests_passed"] == pytest.approx((0.75 + 0.25) / 2)
    assert first["computed"] == pytest.approx((0.9**10 + 0.9**20) / 2)
    assert math.isnan(table.iloc[2]["solution_lines"]) and math.isnan(table.iloc[2]["pass_at_1"])
    assert reject_reasons(steps) == {"mutants": 2, "twin": 1, "order": 1}


def test_a_summary_comes_back_and_tells_what_it_cost():
    table = synthesis_table([step(1, 0, kept=False, reason="twin: x")], seeds={}, attempts=[], error_rate=0.1)
    paid = Cost(3, 5, 7, 1.0, {"cut": 2})
    summary = Summary({"seed": 0}, {"error_rate": 0.1}, table, {"twin": 1}, paid)
    again = Summary.from_json(summary.to_json())
    assert again.to_json() == summary.to_json() and again.cost == paid
    assert math.isnan(again.table["solution_lines"].iloc[1])
    told = "\n".join(summary_lines(summary))
    assert "dropped    1 twin" in told
    assert "3 calls, 5 prompt and 7 completion tokens, 1.0 s waited for answers; failures: 2 cut" in told
    assert "cost" not in "\n".join(summary_lines(dataclasses.replace(summary, cost=Cost())))


def test_a_lineage_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "lineage.jsonl"
    with pytest.raises(ValueError, match="no such file"):
        read_lineage(path)
    path.write_text(json.dumps({"kind": "another", "schema_version": 1}) + "\n")
    with pytest.raises(ValueError, match="cannot be read"):
        read_lineage(path)


@pytest.mark.parametrize("change", [{"num_rounds": 0}, {"per_round": 0}])
def test_plans_that_cannot_be_are_refused(change):
    with pytest.raises(ValueError, match="must be at least 1"):
        RoundPlan(**({"num_rounds": 1, "per_round": 1} | change))
    with pytest.raises(ValueError, match="max_tests=0 must be at least 1"):
        Bounds(max_tests=0)
