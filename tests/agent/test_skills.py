"""What the agent is told of a box's skills, and that what lies in the box cannot outgrow the host."""

import asyncio

import pytest

from t1core.agent.skills import told_of
from t1core.records import TaskEnvironment
from t1core.sandbox.sandbox import ExecResult


class Files:
    """A box that finds one SKILL.md and prints it."""

    def __init__(self, text):
        self._text = text

    async def exec(self, cmd, *, timeout_s):
        return ExecResult(
            0, (b"/skills/a/SKILL.md\n" if cmd.startswith("find") else self._text.encode()), b"", False
        )


def told(opening):
    return asyncio.run(told_of(Files(f"---\n{opening}\n---\nbody\n"), TaskEnvironment(skills_dir="/skills")))


def test_a_skill_is_told_by_name_and_description():
    assert "<name>greet</name>" in told("name: greet\ndescription: says <hello>")
    assert "says &lt;hello&gt;" in told("name: greet\ndescription: says <hello>")
    assert "<name>7</name>" in told("name: 7\ndescription: a number")


def _nested(depth):
    return "\n".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10) if i else 'x'}]" for i in range(depth))


@pytest.mark.parametrize(
    "opening",
    [
        "name: greet",
        "- name",
        "name: [a]\ndescription: b",
        f"{_nested(7)}\nname: *a6\ndescription: a million letters, from 300 that were written",
    ],
)
def test_what_names_no_skill_by_text_is_left_out(opening):
    assert told(opening) == ""
