import pytest

from t1core.agent.protocol import Command, parse_response, render_response

GOOD = '{"analysis": "a", "plan": "b", "commands": [{"keystrokes": "ls\\n", "duration": 0.1}]}'


def test_a_canonical_response_survives_the_round_trip():
    commands = (Command('echo "a\tb" > f\n', 0.5), Command("C-c", 0.1))
    text = render_response(commands, analysis="x", plan="y", task_complete=True)
    response = parse_response(text)
    assert response.commands == commands
    assert response.task_complete and (response.analysis, response.plan) == ("x", "y")
    assert response.errors == response.repairs == ()


def test_text_around_the_object_is_dropped_and_counted():
    response = parse_response(f"Sure! {GOOD} Done.")
    assert response.commands == (Command("ls\n", 0.1),)
    assert len(response.repairs) == 1 and not response.errors


def test_missing_closers_are_added_and_counted():
    response = parse_response('{"analysis": "a", "plan": "b", "commands": [{"keystrokes": "ls\\n"')
    assert response.commands == (Command("ls\n", 1.0),)
    assert response.repairs == ("closing '}]}' was added",)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "no valid JSON object"),
        ("ls -l", "no valid JSON object"),
        ("[1, 2]", "no valid JSON object"),
        ("{" * 20_000, "no valid JSON object"),
        ('{"plan": "b", "commands": []}', "missing field 'analysis'"),
        ('{"analysis": "a", "plan": "b", "commands": "ls"}', "'commands' must be a list"),
        (
            '{"analysis": "a", "plan": "b", "commands": [{"duration": 1}]}',
            "command 1 needs a string 'keystrokes'",
        ),
        ('{"analysis": 1, "plan": "b", "commands": []}', "'analysis' must be a string"),
    ],
)
def test_what_does_not_parse_says_why_and_runs_nothing(text, error):
    response = parse_response(text)
    assert any(error in item for item in response.errors)
    assert response.commands == () and not response.task_complete


@pytest.mark.parametrize("duration", ["NaN", "Infinity", "-1", '"soon"', "true"])
def test_a_senseless_duration_becomes_the_default(duration):
    text = GOOD.replace("0.1", duration)
    assert parse_response(text).commands == (Command("ls\n", 1.0),)


def test_a_long_duration_is_capped():
    assert parse_response(GOOD.replace("0.1", "9999")).commands[0].duration_s == 60.0
