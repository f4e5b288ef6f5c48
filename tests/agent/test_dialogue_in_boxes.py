"""The dialogues a model starts from say what a real box says, to the character."""

import asyncio

import pytest

from t1core.agent.dialogue import FIRST_SCREEN, observations, responses
from t1core.agent.json_answer import parse_json_answer
from t1core.agent.prompt import WORDINGS
from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.sandbox.sandbox import BoxSpec
from t1core.tasks.practice.families import TRAINED, Space, exercise

WORDING = WORDINGS["compact"]
WAIT_S = 20.0  # a cap: a box that is done answers at once


async def spoken_in_a_box(sandbox, environment, answers):
    """The first screen, and what the agent would be told after each answer."""
    box = await sandbox.open(BoxSpec(box_id="dialogue", environment_dir=environment))
    try:
        terminal = await box.terminal()
        heard = [await terminal.incremental()]
        for answer in answers:
            response = parse_json_answer(answer)
            for command in response.commands:
                await terminal.send_keys(command.keystrokes, max_wait_s=WAIT_S)
            text = await terminal.incremental()
            heard.append(WORDING.confirm_completion(text) if response.task_complete else text)
        return heard
    finally:
        await box.close()


def furnish(directory, files):
    (directory / "files").mkdir(parents=True)
    for name, content in files.items():
        path = directory / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (directory / "Dockerfile").write_text("FROM debian\nWORKDIR /app\nCOPY files/ /app/\n")
    return directory


@pytest.mark.parametrize("family", TRAINED)
def test_a_demonstrations_terminal_is_the_boxs_terminal(family, tmp_path):
    async def compare():
        sandbox = BubblewrapSandbox()
        try:
            for index in range(2):
                made, _ = exercise(family, seed=5, index=index, space=Space.CORPUS)
                turns = [("; ".join(turn.commands), turn.output) for turn in made.demonstration.turns]
                answers = responses([line for line, _ in turns])[:-1]  # the last one only confirms
                environment = furnish(tmp_path / str(index), made.files)
                heard = await spoken_in_a_box(sandbox, environment, answers)
                assert heard == [FIRST_SCREEN, *observations(turns, WORDING)]
        finally:
            await sandbox.close()

    asyncio.run(compare())


def test_an_idle_answer_is_shown_the_screen_as_it_stands(tmp_path):
    async def compare():
        sandbox = BubblewrapSandbox()
        try:
            heard = await spoken_in_a_box(sandbox, furnish(tmp_path, {}), responses([])[:1])
            assert heard == [FIRST_SCREEN, *observations([], WORDING)]
        finally:
            await sandbox.close()

    asyncio.run(compare())
