import pytest

from t1core.agent.json_answer import parse_json_answer
from t1core.agent.response import Command, render_response
from t1core.agent.xml_answer import parse_xml_answer

GOOD = '{"analysis": "a", "plan": "b", "commands": [{"keystrokes": "ls\\n", "duration": 0.1}]}'
GOOD_XML = """<response><analysis>a</analysis><plan>b</plan><commands>
<keystrokes duration="0.1">ls
</keystrokes></commands></response>"""


def test_a_canonical_response_survives_the_round_trip():
    commands = (Command('echo "a\tb" > f\n', 0.5), Command("C-c", 0.1))
    text = render_response(commands, analysis="x", plan="y", task_complete=True)
    response = parse_json_answer(text)
    assert response.commands == commands
    assert response.task_complete and (response.analysis, response.plan) == ("x", "y")
    assert response.errors == response.repairs == response.warnings == ()


def test_text_around_the_object_is_dropped_and_counted():
    response = parse_json_answer(f"Sure! {GOOD} Done.")
    assert response.commands == (Command("ls\n", 0.1),)
    assert len(response.repairs) == 2 and not response.errors


def test_missing_closing_braces_are_added_and_counted():
    response = parse_json_answer(GOOD[:-1])
    assert response.commands == (Command("ls\n", 0.1),)
    assert response.repairs == ("1 closing braces were added",)


def test_a_missing_bracket_is_not_mended_since_harbor_does_not_mend_it():
    response = parse_json_answer('{"analysis": "a", "plan": "b", "commands": [{"keystrokes": "ls\\n"')
    assert response.errors and not response.repairs and not response.commands


def test_an_object_inside_another_answer_is_taken_and_counted():
    response = parse_json_answer('"{ ' + GOOD)
    assert response.commands == (Command("ls\n", 0.1),) and len(response.repairs) == 1


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "no JSON object"),
        ("ls -l", "no JSON object"),
        ("[1, 2]", "no JSON object"),
        ("{" * 20_000, "no JSON object"),
        ("{" * 20_000 + "}" * 20_000, "not valid"),
        ('{"plan": "b", "commands": []}', "missing fields: analysis"),
        ('{"analysis": "a", "plan": "b", "commands": "ls"}', "'commands' must be a list"),
        (
            '{"analysis": "a", "plan": "b", "commands": [{"duration": 1}]}',
            "command 1 needs a string 'keystrokes'",
        ),
        ('{"analysis": "a", "plan": "b", "commands": ["ls"]}', "command 1 must be an object"),
    ],
)
def test_what_does_not_parse_says_why_and_runs_nothing(text, error):
    response = parse_json_answer(text)
    assert any(error in item for item in response.errors)
    assert response.commands == () and not response.task_complete


@pytest.mark.parametrize(
    ("duration", "taken"),
    [("NaN", 1.0), ("Infinity", 60.0), ("-1", 0.0), ('"soon"', 1.0), ("true", 1.0), ("9999", 60.0)],
)
def test_any_duration_becomes_one_that_can_be_waited(duration, taken):
    text = GOOD.replace("0.1", duration)
    assert parse_json_answer(text).commands == (Command("ls\n", taken),)


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (GOOD.replace(', "duration": 0.1', ""), "no number as 'duration'"),
        (GOOD.replace('"a"', "1"), "'analysis' should be a string"),
        (GOOD.replace('"duration"', '"wait": 1, "duration"'), "unknown fields: wait"),
        (
            GOOD[:-2] + ', {"keystrokes": "x", "duration": 1}, {"keystrokes": "", "duration": 1}]}',
            "command 2 does not end",
        ),
        ('{"plan": "b", "analysis": "a", "commands": []}', "in the order"),
        (GOOD[:-1] + ', "task_complete": 1}', "should be true or false"),
    ],
)
def test_what_is_odd_is_let_pass_and_named(text, warning):
    response = parse_json_answer(text)
    assert not response.errors and [warning in item for item in response.warnings] == [True]


def test_a_claim_of_completion_stands_whatever_its_commands_are():
    response = parse_json_answer('{"analysis": "a", "plan": "b", "commands": ["ls"], "task_complete": "yes"}')
    assert response.task_complete and not response.commands and not response.errors
    assert response.warnings == ("command 1 must be an object",)


def test_xml_keystrokes_are_taken_verbatim():
    response = parse_xml_answer(GOOD_XML.replace("ls\n", "echo '<a>' && ls\n"))
    assert response.commands == (Command("echo '<a>' && ls\n", 0.1),)
    assert (response.analysis, response.plan, response.task_complete) == ("a", "b", False)
    assert response.errors == response.warnings == response.repairs == ()


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (GOOD_XML.replace(' duration="0.1"', ""), "no duration"),
        (GOOD_XML.replace('"0.1"', "0.1"), "should be quoted"),
        (GOOD_XML.replace('"0.1"', "'0.1'"), "double quotes"),
        (GOOD_XML.replace("duration=", 'block="y" duration='), "unknown attribute block"),
        (GOOD_XML.replace("ls", "a &lt; b"), "&lt; is typed as it is written"),
        (GOOD_XML.replace("<plan>b</plan>", ""), "missing <plan>"),
        (GOOD_XML.replace("<plan>", "<thought>t</thought><plan>"), "unknown tag <thought>"),
        (GOOD_XML.replace("<plan>", "<analysis>c</analysis><plan>"), "given 2 times"),
        (
            "<response><analysis>a</analysis><plan>b</plan><commands></commands></response>",
            "nothing was typed",
        ),
    ],
)
def test_what_is_odd_in_xml_is_let_pass_and_named(text, warning):
    response = parse_xml_answer(text)
    assert not response.errors and any(warning in item for item in response.warnings)


def test_xml_without_its_parts_is_void_unless_it_claims_completion():
    assert parse_xml_answer("ls -l").errors == ("the answer holds no <response>",)
    assert parse_xml_answer("<response><plan>b</plan></response>").errors == ("missing <commands>",)
    claim = parse_xml_answer("<response><task_complete>TRUE</task_complete></response>")
    assert claim.task_complete and not claim.errors


def test_only_the_first_of_several_xml_responses_counts():
    response = parse_xml_answer(GOOD_XML + GOOD_XML.replace("ls", "rm"))
    assert response.commands == (Command("ls\n", 0.1),)
    assert len(response.repairs) == len(response.warnings) == 1
