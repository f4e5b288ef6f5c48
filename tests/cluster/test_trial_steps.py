"""A trial of a task in several steps, with a real box and real grades: streams, limits, rows and the reward."""

import numpy as np
import pytest

from t1core.agent.response import Command, render_response
from t1core.records import Generation, PrefixRelation, StopReason
from t1core.rollout import trial as trial_module
from t1core.tasks.harbor import load_task
from t1core.tito import assemble
from tests.cluster.test_trial_faults import tokenizer, trial  # noqa: F401 - a fixture
from tests.tasks.conformance import Case
from tests.verifier.test_stages import TOML, TWO_STEPS

FILES = TWO_STEPS | {"environment/Dockerfile": "FROM x\nCOPY skills /skills\n", "environment/skills/go/SKILL.md": (
    "---\nname: going\ndescription: How to go & come\n---\nText.\n"
)}  # fmt: skip
SETTINGS = "[environment]\nskills_dir = '/skills'\n" + TOML
DONE = render_response((), analysis="a", plan="p", task_complete=True)


def typing(line):
    return render_response((Command(line + "\n", 0.5),), analysis="a", plan="p", task_complete=False)


class Saying:
    """An engine that answers with `texts` in turn; notes prompts and how they were asked for."""

    def __init__(self, tokenizer, *texts):  # noqa: F811
        self.tokenizer, self.texts, self.prompts, self.asked = tokenizer, list(texts), [], []

    async def generate(self, input_ids, **request):
        self.prompts.append(self.tokenizer.decode(np.array(input_ids)))
        self.asked.append(request)
        ids = np.append(self.tokenizer.encode(self.texts.pop(0)), np.int32(self.tokenizer.im_end))
        start = request["routed_experts_start"]
        routes = np.zeros((len(input_ids) + len(ids) - 1 - start, 1, 2), np.uint8)
        routes[..., 1] = 1
        zeros = np.zeros(len(ids), np.int32)
        return Generation(ids.astype(np.int32), zeros.astype(np.float32), routes, start, "stop", 0, zeros, 0)


def test_every_step_begins_a_stream_of_its_own_and_all_rows_have_the_tasks_reward(
    tokenizer,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    task = load_task(Case("steps", SETTINGS, (), FILES).write(tmp_path))
    rows = []
    monkeypatch.setattr(
        trial_module,
        "assemble",
        lambda *given, **named: rows.extend(assemble(*given, **named)) or tuple(rows),
    )
    engine = Saying(
        tokenizer,
        *(typing("touch a; (setsid sleep 54.5 &) > /dev/null 2>&1"), DONE, DONE),
        *(typing("touch b; pgrep -xc sleep > alive"), DONE, DONE),
    )
    ended, _, live, _ = trial(
        task, tokenizer, generate=engine.generate, grades=True, limits={"max_turns": 9, "max_new_tokens": 500}
    )
    assert ended.failure is None and live == 0, ended.failure
    assert (ended.stop_reason, ended.num_tests) == (StopReason.COMPLETED, 5)
    assert ended.grade.reward == pytest.approx(0.125) and ended.grade.solved
    relations = [span.relation for row in rows for span in row.spans]
    assert [row.reward for row in rows] == [ended.grade.reward] * 2
    assert relations == [PrefixRelation.SPLIT if n == 3 else PrefixRelation.STRICT for n in range(6)]
    # The second stream asks for its own routes from the start, with draws of its own, and shows the same terminal.
    assert [request["routed_experts_start"] > 0 for request in engine.asked] == [False, True, True] * 2
    seeds = [request["sampling"].sampling_seed for request in engine.asked]
    assert seeds[:3] == [0, 0, 0] and len(set(seeds)) == 2
    assert "Make b." in engine.prompts[3] and "Make a." not in engine.prompts[3]
    assert "touch a" in engine.prompts[3]
    assert "Make b." in ended.turns[2].observation and ended.turns[-1].observation == ""
    times = [time for turn in ended.turns for time in (turn.started_s, turn.generated_s, turn.ended_s)]
    assert times == sorted(times)
    skill = (
        "\n<available_skills>\n  <skill>\n    <name>going</name>\n    <description>How to go &amp; come</description>"
        "\n    <location>/skills/go/SKILL.md</location>\n  </skill>\n</available_skills>"
    )
    assert skill in engine.prompts[0] and skill in engine.prompts[3]


def test_limits_are_the_trials_and_steps_without_any_left_are_graded_all_the_same(tokenizer, tmp_path):  # noqa: F811
    task = load_task(Case("steps", TOML, (), TWO_STEPS).write(tmp_path))
    engine = Saying(tokenizer, typing("touch a"))
    ended, _, _, _ = trial(
        task, tokenizer, generate=engine.generate, grades=True, limits={"max_turns": 1, "max_new_tokens": 500}
    )
    assert ended.failure is None, ended.failure
    assert (ended.stop_reason, len(ended.turns)) == (StopReason.MAX_TURNS, 1)
    # Two of two tests, then one of three: the mean of 0.1 and 0.05.
    assert ended.grade.reward == pytest.approx(0.075) and ended.grade.passed == 3


def test_a_box_that_an_earlier_step_left_to_break_ends_the_trial_with_its_grade(tokenizer, tmp_path):  # noqa: F811
    task = load_task(Case("steps", TOML, (), TWO_STEPS).write(tmp_path))
    fill = "touch a; (sleep 1; head -c 40M /dev/zero > f) & sleep 0.1"
    wait = render_response((Command("sleep 25\n", 25.0),), analysis="a", plan="p", task_complete=False)
    engine = Saying(tokenizer, typing(fill), DONE, DONE, wait, DONE, DONE)
    given = {"max_turns": 9, "max_new_tokens": 500, "max_wait_s": 30.0}
    ended, _, _, _ = trial(
        task, tokenizer, generate=engine.generate, grades=True, limits=given, storage_mb=16
    )
    assert ended.failure is None and ended.stop_reason is StopReason.BOX_BROKEN
    assert ended.grade.reward < 0.1
