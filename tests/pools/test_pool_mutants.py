"""Broken solutions, leakage and reversed tests: what they are, from texts alone."""

from pool_directories import TESTS, write_task

from t1core.pools.literals import compared_literals, find_leakage
from t1core.pools.mutants import mutants_of
from t1core.pools.reversal import reversed_source, reversed_task
from t1core.tasks.harbor import load_task

SCRIPT = """#!/bin/bash
set -e
cd /app
for n in 1 2; do
  sort -n in.txt | head -3 >> out.txt
done
echo "done" > state
"""


def faults(script, files=(), number=100):
    return {mutant.fault: mutant for mutant in mutants_of(script, files=files, number=number, seed=0)}


def test_every_working_line_is_left_out_once_and_the_syntax_stays_whole():
    left_out = sorted(fault for fault in faults(SCRIPT) if "left out" in fault)
    assert left_out == [
        "line 3: left out: cd /app",
        "line 5: left out: sort -n in.txt | head -3 >> out.txt",
        'line 7: left out: echo "done" > state',
    ]
    assert faults(SCRIPT)["line 5: left out: sort -n in.txt | head -3 >> out.txt"].script == SCRIPT.replace(
        "  sort -n in.txt | head -3 >> out.txt", ":"
    )


def test_faults_within_a_line_change_that_place_alone():
    found = faults(SCRIPT)
    assert found['line 7: a letter less: echo "don" > state'].script == SCRIPT.replace('"done"', '"don"')
    assert found["line 5: written over: sort -n in.txt | head -3 > out.txt"].script == SCRIPT.replace(
        ">>", ">"
    )
    assert found['line 7: appended: echo "done" >> state'].script == SCRIPT.replace("> state", ">> state")
    assert found["line 5: an option less: sort  in.txt | head -3 >> out.txt"].script == SCRIPT.replace(
        "-n ", " "
    )
    assert found["line 5: head for tail: sort -n in.txt | tail -3 >> out.txt"].script == SCRIPT.replace(
        "head", "tail"
    )
    assert found["stops after line 4"].script == "\n".join(SCRIPT.split("\n")[:4]) + "\n"
    assert [fault for fault in found if fault.startswith(("line 1:", "line 2:", "line 4:", "line 6:"))] == []


def test_a_number_becomes_one_more_but_a_part_of_a_name_does_not():
    found = faults("seq 4 > out2.txt\n")
    assert found["line 1: one more: seq 5 > out2.txt"].script == "seq 5 > out2.txt\n"
    assert not any("out3" in fault for fault in found)


def test_each_file_that_the_solution_wrote_is_broken_in_five_ways_of_its_own():
    found = [mutant for mutant in faults("true\n", files=["/app/a b"]).values() if mutant.after]
    assert {(mutant.fault, mutant.after) for mutant in found} == {
        ("/app/a b is gone", "rm -rf '/app/a b'"),
        ("/app/a b is empty", "if [ -f '/app/a b' ]; then : > '/app/a b'; fi"),
        ("/app/a b has a line more", "if [ -f '/app/a b' ]; then echo 'one line more' >> '/app/a b'; fi"),
        ("/app/a b lacks its last line", "if [ -f '/app/a b' ]; then sed -i '$ d' '/app/a b'; fi"),
        (
            "/app/a b has its first letter doubled",
            "if [ -f '/app/a b' ]; then sed -i '1 s/^./&&/' '/app/a b'; fi",
        ),
    }


def test_few_mutants_are_of_many_kinds_and_the_seed_says_which():
    few = mutants_of(SCRIPT, files=["/app/out.txt"], number=8, seed=0)
    assert len(few) == 8 and few == mutants_of(SCRIPT, files=["/app/out.txt"], number=8, seed=0)
    kinds = {mutant.fault.split(":")[1] if ":" in mutant.fault else mutant.fault for mutant in few}
    assert len(kinds) == 8
    chosen = {tuple(one.fault for one in mutants_of(SCRIPT, number=3, seed=seed)) for seed in range(6)}
    assert len(chosen) > 1


def test_literals_are_those_that_something_is_compared_with():
    source = """
def test_a():
    name = "never compared"
    assert read("out.txt") == "hello moon", "a message"
    assert lines("out.txt") == ["in a list"]
    assert "needle" in read("b") and line.startswith("first:")
    assert x == "abc"
"""
    assert compared_literals(source) == ["hello moon", "in a list", "needle", "first:"]
    assert compared_literals("def broken(:") == []


def test_where_literals_stand_is_told_and_copies_of_the_tests_are_named(tmp_path):
    tests = TESTS.replace("hello moon\\n", "hello moon")
    plain = load_task(
        write_task(tmp_path / "plain", tests=tests, instruction="Say hello moon.", files={"a": "sun"})
    )
    assert find_leakage(plain).in_instruction == ("hello moon",)
    assert find_leakage(plain).in_workspace == find_leakage(plain).copies == ()
    told = load_task(write_task(tmp_path / "told", tests=tests, files={"answer": "hello moon"}))
    assert find_leakage(told).in_workspace == ("hello moon",)
    leaky = load_task(write_task(tmp_path / "leaky", tests=tests, files={"old.py": "# kept\n" + tests}))
    assert find_leakage(leaky).copies == ("environment/files/old.py holds tests/test_outputs.py",)


def test_data_that_the_tests_share_with_the_workspace_and_a_corrected_file_are_no_leak(tmp_path):
    text = "first line of the data\nsecond line of the data\nthird line of the data\n"
    task = write_task(tmp_path / "shared", files={"data.sh": text, "app.py": text})
    (task / "tests" / "data.sh").write_text(text)
    (task / "solution" / "app.py").write_text(text + "a line that was missing\n")
    assert find_leakage(load_task(task)).copies == ()
    (task / "environment" / "files" / "old.sh").write_text("mkdir -p /app/one/two\nrm -rf /app/three/four\n")
    (task / "solution" / "solve.sh").write_text(
        "mkdir -p /app/one/two\nrm -rf /app/three/four\necho a line of its own\n"
    )
    assert find_leakage(load_task(task)).copies == ("environment/files/old.sh holds solution/solve.sh",)


def test_tests_stand_the_other_way_round_and_all_else_where_it_was():
    source = """import os
def test_a(): assert helper()
SEEN = []
class TestB:
    x = 1
    def test_one(self): pass
    def test_two(self): pass
def helper(): return SEEN
def test_c(): pass
"""
    turned = reversed_source(source)
    order = [
        turned.index(word) for word in ("import os", "SEEN = ", "helper():\n", "test_c", "TestB", "x = 1")
    ]
    assert order == sorted(order)
    assert turned.index("test_two") < turned.index("test_one") < turned.index("test_a")
    assert reversed_source("def test_a(): pass\n") == "def test_a(): pass\n"
    assert reversed_source("def (") == "def ("


def test_a_task_with_one_test_has_nothing_to_reverse(tmp_path):
    task = load_task(write_task(tmp_path / "one", tests="def test_a(): pass\n"))
    assert reversed_task(task, tmp_path / "scratch") is None
