"""The practice pool: what it promises of every task."""

import os
import re
import subprocess
import sys
from itertools import islice

import pytest

from t1core.tasks.corpus import demonstration_stream
from t1core.tasks.pool import Pool
from t1core.tasks.practice import checks
from t1core.tasks.practice import pool as practice_pool
from t1core.tasks.practice.check import check_pool, check_task
from t1core.tasks.practice.families import (
    FAMILIES,
    HELDOUT_FAMILIES,
    LEVELS,
    TRAINED,
    Space,
    exercise,
    is_held_out,
    substance_hash,
)
from t1core.tasks.practice.passing import passing_tests
from t1core.tasks.practice.pool import generate_pool, oracle
from t1core.tasks.test_script import is_standard
from t1core.tasks.words import WORDS

MOST_COMMANDS = 6  # one a turn, then the confirmation: within the eight turns of a small campaign
LONGEST_COMMAND = 140  # a 160-column terminal shows it with its prompt on one line


def exercises(space: Space = Space.TRAIN, count: int = 6):
    for family in FAMILIES:
        for level in LEVELS:
            for index in range(count):
                yield family, level, exercise(family, seed=11, index=index, space=space, level=level)[0]


def test_no_word_contains_another_so_names_sort_alike_everywhere_and_grep_finds_one():
    assert len(WORDS) == len(set(WORDS)) == 128
    assert [(a, b) for a in WORDS for b in WORDS if a != b and a in b] == []
    assert all(re.fullmatch("[a-z]{3,6}", word) for word in WORDS)


def test_there_are_enough_families_and_several_must_look_first():
    assert len(TRAINED) >= 13 and len(HELDOUT_FAMILIES) >= 1
    assert sum(FAMILIES[name].looks_first for name in TRAINED) >= 5


def test_every_task_has_3_to_24_tests_and_a_harder_level_has_more():
    sizes: dict[tuple[str, int], set[int]] = {}
    for family, level, made in exercises():
        assert 3 <= len(made.checks) <= 24
        sizes.setdefault((family, level), set()).add(len(made.checks))
    for family in FAMILIES:
        assert max(sizes[family, 1]) < min(sizes[family, 2]) < min(sizes[family, 3])
        assert max(sizes[family, 2]) < min(sizes[family, 3])


def test_instructions_and_commands_are_short():
    for family, level, made in exercises():
        where = f"{family} {level}: {made.instruction}"
        assert len(made.instruction.split()) <= 40, where
        assert len(made.demonstration.commands) <= MOST_COMMANDS, where
        assert all(len(command) <= LONGEST_COMMAND for command in made.demonstration.commands), where


def test_file_names_keep_their_case_in_the_instruction():
    for _, _, made in exercises():
        first = made.instruction.split()[0].rstrip(",.")
        assert not re.fullmatch(r"[A-Za-z]+\.[a-z]+", first), made.instruction


def test_a_look_first_instruction_lacks_a_word_that_the_solution_needs():
    """And that word was printed before the turn that uses it."""
    for family, level, made in exercises():
        known = made.instruction.lower()
        needed_a_look = False
        for turn in made.turns:
            for command in turn.commands:
                for word in re.findall(r"\b(?:[a-z]{3,6}|\d)\b", command):
                    if word in WORDS or word.isdigit():
                        assert word in known, (
                            f"{family} {level}: {command!r} uses {word!r} before it was seen"
                        )
                        needed_a_look |= word not in made.instruction.lower()
            known += turn.output
        assert needed_a_look == FAMILIES[family].looks_first, f"{family} {level}: {made.instruction}"


def test_the_same_seed_gives_the_same_bytes_in_another_process(pool, tmp_path):
    script = (
        "import sys; from pathlib import Path; from t1core.tasks.practice.pool import generate_pool; "
        "generate_pool(Path(sys.argv[1]), seed=5, "
        "tasks_per_family=2, heldout_per_family=1, heldout_family_tasks=3)"
    )
    environment = os.environ | {"PYTHONHASHSEED": "77"}
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "again")], check=True, env=environment)
    again = Pool.open(tmp_path / "again")
    assert list(again.entries) == list(pool.entries)
    assert again.changed() == pool.changed() == ()


def test_another_seed_gives_other_tasks(pool):
    made = {substance_hash(exercise(f, seed=s, index=0)[0]) for f in FAMILIES for s in (0, 1)}
    assert len(made) == 2 * len(FAMILIES)


def test_a_split_never_shares_a_task_with_another(pool):
    by_split = {split: {entry.content_hash for entry in pool.split(split)} for split in pool.splits}
    assert (
        sum(len(hashes) for hashes in by_split.values()) == len(set().union(*by_split.values())) == len(pool)
    )


def test_held_out_exercises_lie_on_the_other_side_of_the_hash_from_training_and_corpus():
    for space in Space:
        for family, _, made in exercises(space, count=2):
            assert is_held_out(made) == (space is Space.HELDOUT), family


def test_the_corpus_has_trained_families_alone_and_none_of_its_exercises_is_held_out():
    examples = list(islice(demonstration_stream(3), 200))
    assert {example.family for example in examples} == set(TRAINED)
    for round_start in range(0, 64, len(TRAINED)):
        assert len({e.family for e in examples[round_start : round_start + len(TRAINED)]}) == len(TRAINED)
    assert list(islice(demonstration_stream(3, start=150), 50)) == examples[150:]
    assert list(islice(demonstration_stream(4), 5)) != examples[:5]


def test_the_level_mix_of_the_corpus_is_obeyed():
    levels = {example.level for example in islice(demonstration_stream(0, level_mix=(1, 0, 0)), 40)}
    assert levels == {1}


def test_every_task_of_the_pool_is_sound_and_its_oracle_says_what_bash_prints(pool):
    results = check_pool(pool, pytest_sample=3)
    assert [result.task_id for result in results] == [entry.task_id for entry in pool.entries]
    assert [result for result in results if not result.is_sound] == []
    assert all(entry.nop_passed == () for entry in pool.entries)


def test_the_test_script_is_the_one_that_the_fast_grader_may_stand_in_for(pool):
    script = (pool.directory / pool.entries[0].path / "tests" / "test.sh").read_text()
    assert is_standard(script)


def edited(pool, tmp_path, name: str, old: str, new: str):
    """Check a copy of a task of `write`, with one replacement in one of its files."""
    entry = next(entry for entry in pool.split("train") if entry.family == "write")
    files, _ = oracle("write", seed=5, index=int(entry.task_id.split("-")[1]), level=entry.level)
    files.write(tmp_path / entry.task_id)
    path = tmp_path / entry.task_id / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return check_task(tmp_path / entry.task_id)


def test_the_check_finds_a_solution_that_does_not_solve(pool, tmp_path):
    result = edited(pool, tmp_path, "solution/solve.sh", "echo", "echo not")
    assert any("after solve.sh these fail" in problem for problem in result.problems)


def test_the_check_finds_a_solution_that_prints_what_the_oracle_does_not(pool, tmp_path):
    result = edited(pool, tmp_path, "solution/solve.sh", "\n", "\nls -d .\n")
    assert any("solve.sh prints" in problem for problem in result.problems)


def test_the_check_finds_a_test_that_passes_with_nothing_done(pool, tmp_path):
    result = edited(pool, tmp_path, "tests/test_outputs.py", "assert (ROOT /", "assert True or (ROOT /")
    assert result.nop_passed and not result.is_sound


def test_the_check_finds_a_task_of_another_seed(pool, tmp_path):
    result = edited(pool, tmp_path, "task.toml", "seed = 5", "seed = 6")
    assert any("the oracle" in problem for problem in result.problems)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_doing_part_of_the_work_passes_part_of_the_tests(family, tmp_path):
    """All but the last command of a level 2 task: more than nothing if it changed anything, less than all."""
    files, demonstration = oracle(family, seed=2, index=0, level=2)
    files.write(tmp_path / "task")
    root = tmp_path / "task" / "environment" / "files"
    root.mkdir(exist_ok=True)
    *begun, _ = demonstration.commands
    subprocess.run(["bash", "-c", "\n".join(begun)], cwd=root, check=True, capture_output=True)
    passed = passing_tests(tmp_path / "task", root=root)
    total = files.texts["tests/test_outputs.py"].count("def test_")
    if family == "chain":  # reads only until its last command
        assert passed == ()
    elif len(demonstration.commands) == 1:
        assert begun == [] and passed == ()
    else:
        assert 0 < len(passed) < total


def test_copying_or_deleting_does_not_count_as_moving(tmp_path):
    check = checks.is_moved("a.txt", to="b.txt")
    code = checks.test_module([check])
    for present, moved in [
        ({"a.txt", "b.txt"}, False),
        (set(), False),
        ({"b.txt"}, True),
        ({"a.txt"}, False),
    ]:
        root = tmp_path / "-".join(sorted(present) or ["none"])
        root.mkdir()
        for name in present:
            (root / name).write_text("x\n")
        done = subprocess.run(
            [sys.executable, "-c", code + "\ntest_a_txt_moved()\n"],
            env=os.environ | {"T1_APP_ROOT": str(root)}, capture_output=True, check=False,
        )  # fmt: skip
        assert (done.returncode == 0) == moved, present


def test_max_level_bounds_training_tasks_alone(tmp_path):
    made = generate_pool(
        tmp_path / "easy", families=["write", "todo"], tasks_per_family=6, heldout_per_family=12, max_level=1,
        heldout_family_tasks=1,
    )  # fmt: skip
    assert {entry.level for entry in made.split("train")} == {1}
    assert {entry.level for entry in made.split("heldout")} == {1, 2, 3}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"families": ["survey"]}, "families \\['survey'\\]"),
        ({"families": []}, "families \\[\\]"),
        ({"tasks_per_family": 0}, "tasks_per_family 0"),
        ({"level_mix": (0, 0, 0)}, "level_mix"),
        ({"max_level": 0}, "max_level 0"),
    ],
)
def test_wrong_settings_are_refused_and_leave_nothing_behind(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        generate_pool(tmp_path / "pool", **settings)
    assert list(tmp_path.iterdir()) == []


def test_a_pool_is_never_written_over(pool):
    with pytest.raises(ValueError, match="never written over"):
        generate_pool(pool.directory)


def test_an_interrupted_generation_leaves_no_pool(tmp_path, monkeypatch):
    def full_disk(directory, *, nop_passed):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(practice_pool, "write_index", full_disk)
    with pytest.raises(OSError, match="No space left"):
        generate_pool(tmp_path / "pool", tasks_per_family=1, heldout_per_family=0, heldout_family_tasks=0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_pool_of_the_default_size_is_sound(tmp_path):
    made = generate_pool(tmp_path / "pool", seed=1)
    assert len(made) >= 400
    assert [result for result in check_pool(made) if not result.is_sound] == []
