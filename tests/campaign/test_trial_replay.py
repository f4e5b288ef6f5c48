"""Trials typed again in real boxes: equal screens, a planted difference, and a terminal that is handed over."""

from dataclasses import replace

import pytest
from typer.testing import CliRunner

from t1core.campaign import replay as replaying
from t1core.campaign.replay import replay, screen_diff
from t1core.campaign.report import stored_trial
from t1core.cli import app
from t1core.config import load_config
from t1core.store import Run
from tests.store.records_by_hand import trial

_ECHO = "New Terminal Output:\n\nroot@box:/app# echo one > a.txt; cat a.txt\none\nroot@box:/app#"
_CAT = "New Terminal Output:\n\nroot@box:/app# cat a.txt\none\nroot@box:/app#"


@pytest.fixture
def task(tmp_path):
    folder = tmp_path / "task"
    (folder / "environment").mkdir(parents=True)
    (folder / "tests").mkdir()
    (folder / "environment" / "Dockerfile").write_text("FROM debian\nWORKDIR /app\n")
    (folder / "instruction.md").write_text("write a.txt")
    (folder / "task.toml").write_text('version = "1.0"\n')
    (folder / "tests" / "test_outputs.py").write_text("def test_a():\n    pass\n")
    (folder / "tests" / "test.sh").write_text("pytest /tests/test_outputs.py\n")
    return folder


@pytest.fixture
def run(tmp_path):
    config = load_config("smoke").model_dump(mode="json")
    run = Run.create(tmp_path, campaign="demo", run_name="r", config=config, provenance={})
    made = trial("a")
    first, second = (
        replace(turn, is_parse_error=False, commands=((keys, 5.0),), screen=screen)
        for turn, keys, screen in zip(
            made.turns, ("echo one > a.txt; cat a.txt\n", "cat a.txt\n"), (_ECHO, _CAT), strict=True
        )
    )
    run.record_trajectories(
        [
            replace(made, turns=(first, second)),
            replace(made, trial_id="b", turns=(first, replace(second, screen=_CAT.replace("one", "two")))),
        ],
        step=0,
    )
    return run


def test_the_same_commands_give_the_same_screens(run, task):
    said = []
    done = replay(run, stored_trial(run.path, "a"), task=task, from_turn=None, say=said.append)
    assert [(turn.index, turn.diff) for turn in done] == [(0, ()), (1, ())], said
    assert said[-1] == "2 of 2 screens as recorded"


def test_a_screen_that_was_other_is_shown_as_a_difference(run, task):
    told = CliRunner().invoke(app, ["replay", str(run.path), "b", "--task", str(task)])
    assert told.exit_code == 0, told.output
    assert "turn 0: as recorded\nturn 1: differs\n" in told.output
    assert "    -two\n    +one\n" in told.output and "1 of 2 screens as recorded" in told.output


def test_the_terminal_is_handed_over_before_the_turn_asked_for(run, task, monkeypatch):
    lines = iter(["cat a.txt", ":keys C-l", ":quit", "never read"])
    said = []

    async def typed():
        return next(lines)

    monkeypatch.setattr(replaying, "_read_line", typed)
    done = replay(run, stored_trial(run.path, "a"), task=task, from_turn=1, say=said.append)
    assert [turn.index for turn in done] == [0]
    assert any(line.startswith("the terminal is yours") for line in said)
    assert any(line.endswith("root@box:/app# cat a.txt\none\nroot@box:/app#") for line in said)
    assert next(lines) == "never read"


def test_a_turn_that_there_is_not_and_a_task_that_is_not_found_are_refused(run, task, tmp_path, monkeypatch):
    stored = stored_trial(run.path, "a")
    with pytest.raises(ValueError, match="--from-turn 7: the trial has turns 0, 1"):
        replay(run, stored, task=task, from_turn=7, say=print)
    monkeypatch.setattr("t1core.campaign.assets.prepare_pool", lambda config, say: tmp_path)
    with pytest.raises(ValueError, match=r"task 'copy-0' is not in pool .*--task"):
        replay(run, stored, task=None, from_turn=None, say=print)


def test_a_difference_has_its_lines_without_a_head():
    assert list(screen_diff("a\nb\nc", "a\nx\nc")) == ["@@ -1,3 +1,3 @@", " a", "-b", "+x", " c"]
    assert list(screen_diff("a", "a")) == []
