"""Terminus-2's words and rules: taken from the installed package, which stands here with words of our own."""

import asyncio
import importlib
import sys

import pytest

from t1core.agent.observation import Terminus2Observer
from t1core.agent.terminus2 import terminus2_protocol, terminus2_wording

AGENT = """
class Terminus2:
    def _get_error_response_type(self) -> str:
        return {"json": "object", "xml": "tags"}[self.options.parser_name]

    def _get_completion_confirmation_message(self, terminal_output: str) -> str:
        return f"[{terminal_output}] sure? {self.options.parser_name}"

    def _limit_output_length(self, output: str, max_bytes: int = 10000) -> str:
        return output if len(output) <= max_bytes else f"{output[:max_bytes]}~"

    async def _query_llm(self):
        warnings_text = ""
        warnings_text = f"; {parse_result.warning}"
        limit_str = f"{output_limit} pieces"
        limit_str = "no end"
        error_msg = (
            "nothing done: "
            f"over {limit_str}"
        )

    async def _handle_llm_interaction(self):
        if result.error:
            feedback += f"E {result.error}"
            if result.warning:
                feedback += f" W {result.warning}"
        elif result.warning:
            feedback += f"W {result.warning}"

    async def _run_agent_loop(self):
        prompt = initial_prompt
        prompt = f"bad: {feedback}, give {self._get_error_response_type()}"
        observation = f"odd: {feedback} / {self._limit_output_length(terminal_output)}"
"""
PARSER = """
from types import SimpleNamespace


class TerminusJSONPlainParser:
    def parse_response(self, text):
        commands = [SimpleNamespace(keystrokes=text, duration=90)]
        warning = "- AUTO-CORRECTED: x\\n- odd"
        return SimpleNamespace(
            commands=commands, is_task_complete=True, error="", warning=warning, analysis="a", plan="p"
        )
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    directory = tmp_path / "harbor" / "agents" / "terminus_2"
    (directory / "templates").mkdir(parents=True)
    (tmp_path / "harbor" / "__init__.py").write_text("raise ImportError('it is never imported')")
    (directory / "terminus_2.py").write_text(AGENT)
    (directory / "terminus_json_plain_parser.py").write_text(PARSER)
    (directory / "templates" / "terminus-json-plain.txt").write_text(
        "{{json}} {instruction}|{terminal_state}"
    )
    (tmp_path / "harbor-0.99.dist-info").mkdir()
    (tmp_path / "harbor-0.99.dist-info" / "METADATA").write_text("Name: harbor\nVersion: 0.99\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "harbor", raising=False)
    importlib.invalidate_caches()
    return directory


def test_every_word_comes_from_the_package(package):
    wording = terminus2_wording("json")
    assert wording.first_prompt("do {it}\n", "$ \n") == "{json} do {it}\n|$ \n"
    assert wording.confirm_completion("s") == "[s] sure? json"
    assert wording.explain_errors(("e",), ("w",)) == "bad: E e W w, give object"
    assert wording.explain_errors(("e",)) == "bad: E e, give object"
    assert wording.mention_warnings(("w",), "s", limit_bytes=9) == "odd: W w / s"
    assert wording.mention_warnings((), "s", limit_bytes=9) == "s"
    assert wording.explain_length(max_new_tokens=7, warnings=()) == "nothing done: over 7 pieces"
    assert wording.explain_length(max_new_tokens=7, warnings=("w",)) == "nothing done: over 7 pieces; w"


def test_a_long_observation_is_limited_a_second_time_as_there(package):
    wording = terminus2_wording("json")
    once = wording.limit_output("abcdef", limit_bytes=4)
    assert once == "abcd~" and wording.mention_warnings((), once, limit_bytes=4) == "abcd~"
    assert wording.mention_warnings((), "abcd~~", limit_bytes=4) == "abcd~"


def test_a_prompt_after_a_summary_keeps_the_packages_template(package):
    before, after = terminus2_wording("json").resumed_prompt("do it\n", "$", part=2, is_summarised=True)
    assert before.startswith("{json} do it\n\n") and after == "|$"


def test_the_packages_parser_reads_answers_and_its_repairs_are_counted(package):
    response = terminus2_protocol("json").parse("ls\n")
    assert [(item.keystrokes, item.duration_s) for item in response.commands] == [("ls\n", 60.0)]
    assert response.repairs == ("AUTO-CORRECTED: x",)
    assert response.warnings == ("- AUTO-CORRECTED: x\n- odd",) and response.task_complete


def test_a_package_that_says_it_elsewhere_is_refused_by_version(package):
    (package / "terminus_2.py").write_text(AGENT.replace("observation = f", "note = f"))
    with pytest.raises(ValueError, match=r"harbor 0\.99 has no observation in _run_agent_loop"):
        terminus2_wording("json")
    with pytest.raises(ValueError, match=r"no terminus-xml-plain\.txt"):
        terminus2_wording("xml")


def test_without_the_package_the_setting_is_refused_with_the_way_out():
    if importlib.util.find_spec("harbor"):
        pytest.skip("harbor is installed here")
    with pytest.raises(ValueError, match=r"t1core\[harbor\]"):
        terminus2_wording("json")


class Pane:
    """A terminal whose whole buffer and visible part are given, look by look."""

    def __init__(self, *looks):
        self.looks, self.now = list(looks), None

    async def capture(self, *, is_whole):
        if is_whole:
            self.now = self.looks.pop(0)
        return self.now[0 if is_whole else 1]


def seen(*looks):
    async def look():
        observer = Terminus2Observer(Pane(*looks))
        return [await observer.look() for _ in looks]

    return asyncio.run(look())


def test_the_terminal_is_looked_at_by_terminus2s_rule():
    assert seen(
        ("$\n\n", "$\n\n"),  # first: the screen
        ("$ ls\na\n$\n\n", "-"),  # one line was known: from it on
        ("$ ls\na\n$ pwd\n/app\n$\n", "-"),  # from the line break before the last known line on
        ("$ ls\na\n$ pwd\n/app\n$\n", "same\n"),  # nothing new: the last line again, which is no blank
        ("cleared\n", "cleared\n"),  # the known text is gone: the screen
    ) == [
        "Current Terminal Screen:\n$\n\n",
        "New Terminal Output:\n$ ls\na\n$\n\n",
        "New Terminal Output:\n\n$ pwd\n/app\n$\n",
        "New Terminal Output:\n\n$\n",
        "Current Terminal Screen:\ncleared\n",
    ]
