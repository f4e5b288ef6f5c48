"""Harbor's own Terminus-2 beside ours: the same answers read alike, the same script prompted alike, byte for byte.

Needs Harbor 0.25 in an environment of its own: T1CORE_HARBOR_PYTHON names the Python of one that has harbor, numpy
and tokenizers.
"""

import json
import os
import random
import subprocess
from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("terminus2_side_by_side.py")
ROOT = DRIVER.parents[2]


@pytest.fixture(scope="module")
def harbor(tmp_path_factory):
    """Run the driver in Harbor's environment."""
    python = os.environ.get("T1CORE_HARBOR_PYTHON")
    if not python:
        pytest.skip("T1CORE_HARBOR_PYTHON is not set: it names a Python that has harbor")
    probe = subprocess.run([python, "-c", "import numpy, tokenizers, harbor"], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(
            f"T1CORE_HARBOR_PYTHON={python} cannot import harbor: {probe.stderr.strip().splitlines()[-1]}"
        )

    def run(mode, request):
        output = tmp_path_factory.mktemp("side-by-side") / "found.json"
        done = subprocess.run(
            [python, DRIVER, mode, output],
            input=json.dumps(request),
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(output.read_text())

    return run


def answer(*commands, **fields):
    tree = {
        "analysis": "a",
        "plan": "p",
        "commands": [dict(zip(("keystrokes", "duration"), c, strict=False)) for c in commands],
    }
    return json.dumps(tree | fields)


def xml(*commands, complete=None):
    typed = "\n".join(f'<keystrokes duration="{wait}">{keys}</keystrokes>' for keys, wait in commands)
    claim = "" if complete is None else f"<task_complete>{str(complete).lower()}</task_complete>"
    return f"<response>\n<analysis>a</analysis>\n<plan>p</plan>\n<commands>{typed}</commands>\n{claim}</response>"


JSON_ANSWERS = [
    answer(("ls\n", 0.1)),
    answer(("ls\n",)),
    answer(("ls", 0.1), ("x\n", 0.1)),
    answer(("", 3), ("x\n", 0.1)),
    answer(("C-c", "soon")),
    '{"analysis": "a", "plan": "p", "commands": ["ls"]}',
    '{"analysis": "a", "plan": "p", "commands": ["ls"], "task_complete": true}',
    '{"analysis": "a", "plan": "p", "commands": [{"keystrokes": 1}]}',
    '{"analysis": "a", "plan": "p", "commands": [{"keystrokes": "x", "duration": null, "why": 1}]}',
    '{"analysis": "a", "plan": "p", "commands": "ls"}',
    '{"analysis": 1, "plan": [], "commands": []}',
    '{"plan": "p", "analysis": "a", "commands": []}',
    '{"commands": [], "analysis": "a"}',
    answer(task_complete="yes"),
    answer(task_complete=" true "),
    answer(task_complete=1),
    answer(task_complete=None),
    answer(note="extra"),
    "Sure: " + answer(("ls\n", 0.1)) + " done",
    answer(("ls\n", 0.1))[:-1],
    answer(("ls\n", 0.1))[:-2],
    answer(("ls\n", 0.1))[:-6],
    '"{ ' + answer(("ls\n", 0.1)),
    'a "quote ' + answer(("ls\n", 0.1)),
    '{"a": {"b": {"c": 1}}}',
    '{"thought": 1} ' + answer(("ls\n", 0.1)),
    '{"analysis": "a\nb", "plan": "p", "commands": []}',
    '{"analysis": "}{", "plan": "\\"", "commands": []}',
    "}" + answer(("ls\n", 0.1)),
    "",
    "ls -l",
    "[1, 2]",
    "{",
    "{}",
]
XML_ANSWERS = [
    xml(("ls\n", 0.1)),
    xml(("ls", 0.1), ("x\n", 0.1)),
    xml(("a &lt; b &amp;\n", 0.1)),
    xml(("printf 'a\\r\\n'\n", 0.1)),
    xml(complete=True),
    xml(complete=False),
    xml(),
    xml(("ls\n", "soon")),
    xml(("ls\n", 0.1)).replace('"0.1"', "0.1"),
    xml(("ls\n", 0.1)).replace('"0.1"', "'0.1'"),
    xml(("ls\n", 0.1)).replace(' duration="0.1"', ""),
    xml(("ls\n", 0.1)).replace("duration=", 'block="no" duration='),
    xml(("ls\n", 0.1)).replace("<plan>p</plan>", "<plan/>"),
    xml(("ls\n", 0.1)).replace("<plan>p</plan>", ""),
    xml(("ls\n", 0.1)).replace("<plan>p</plan>", "<thought>t</thought><plan>p</plan>"),
    xml(("ls\n", 0.1)).replace("<plan>p</plan>", "<plan>p</plan><plan>q</plan>"),
    xml(("ls\n", 0.1)).replace("</commands>", "</commands><commands></commands>"),
    xml(("ls\n", 0.1))
    .replace("<analysis>a</analysis>\n", "")
    .replace("</plan>", "</plan><analysis>a</analysis>"),
    xml(("ls\n", 0.1)).replace("</response>", ""),
    xml(("ls\n", 0.1)).replace("</keystrokes>", ""),
    "Sure: " + xml(("ls\n", 0.1)) + " done",
    xml(("ls\n", 0.1)) * 2,
    "<response><task_complete>TRUE</task_complete></response>",
    "<response><task_complete/></response>",
    "<response></response>",
    "</response><response>",
    "ls -l",
    "",
]


def damaged(texts, *, count, seed):
    """Texts with a character taken out, put in or cut behind, at places drawn at random."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        text = draw.choice([text for text in texts if text])
        at = draw.randrange(len(text))
        more = draw.choice('{}[]"<>/\\,: a\n')
        made.append(draw.choice([text[:at], text[:at] + text[at + 1 :], text[:at] + more + text[at:]]))
    return made


@pytest.mark.slow
def test_both_read_the_same_answers_alike(harbor):
    request = {
        "json": JSON_ANSWERS + damaged(JSON_ANSWERS, count=3000, seed=0),
        "xml": XML_ANSWERS + damaged(XML_ANSWERS, count=3000, seed=1),
    }
    read = harbor("answers", request)
    differing = {
        form: [
            (text, *sides)
            for text, sides in zip(request[form], read[form], strict=True)
            if sides[0] != sides[1]
        ]
        for form in request
    }
    assert differing == {"json": [], "xml": []}
    assert sum(sides[0]["is_void"] for form in request for sides in read[form]) > 500, (
        "too few answers are void"
    )


WAIT = 3.0  # long enough on a busy machine; ours goes on as soon as the shell is idle
JSON_SCRIPT = [
    (answer(("echo hello > a.txt\n", WAIT), ("cat a.txt\n", WAIT)), "stop"),
    ("I would run ls.", "stop"),
    (answer(("ls\n",)), "stop"),
    (answer(("seq 1 4000\n", WAIT)), "stop"),
    (answer(("for i in 1 2 3; do printf '%0200d\\n' $i; done\n", WAIT)), "stop"),
    ("Well: " + answer(("true\n", WAIT)) + "!", "stop"),
    (answer(), "stop"),
    (answer(("clear\n", WAIT)), "stop"),
    (answer(("cd /tmp && printf 'no end of line'\n", WAIT)), "stop"),
    ('{"analysis": "cut', "length"),
    (answer(("cat\n", WAIT)), "stop"),
    (answer(("6 * 7\n", WAIT), ("C-d", WAIT)), "stop"),
    (answer(task_complete=True), "stop"),
    (answer(("ls /app\n", WAIT)), "stop"),  # Harbor's tmux keeps its socket in /tmp
    (answer(("pwd\n", WAIT), task_complete=True), "stop"),
    ("I am done.", "stop"),
    (answer(task_complete=True), "stop"),
]
XML_SCRIPT = [
    (xml(("echo '<a> & <b>' > a.txt\n", WAIT), ("cat a.txt\n", WAIT)), "stop"),
    ("ls", "stop"),
    (xml(("ls\n", WAIT)).replace(f' duration="{WAIT}"', ""), "stop"),
    (xml(), "stop"),
    (xml(complete=True), "stop"),
    (xml(complete=True), "stop"),
]


@pytest.mark.slow
def test_both_prompt_the_same_script_alike_byte_for_byte(harbor):
    scripts = {"json": JSON_SCRIPT, "xml": XML_SCRIPT}
    instruction = "Write {hello} to a.txt.\n"
    requests = [
        {"script": script, "form": form, "instruction": instruction} for form, script in scripts.items()
    ]
    for (form, script), found in zip(scripts.items(), harbor("trials", requests), strict=True):
        assert found["stop"] == "completed"
        assert len(found["ours"]) == len(found["theirs"]) == len(script)
        for turn, (ours, theirs) in enumerate(zip(found["ours"], found["theirs"], strict=True)):
            assert ours == theirs, f"{form}, call {turn}: {difference(ours, theirs)}"


def difference(ours, theirs):
    """Both texts around the first place at which they part."""
    pairs = enumerate(zip(ours, theirs, strict=False))
    at = next((i for i, (one, other) in pairs if one != other), min(len(ours), len(theirs)))
    return (
        f"at {at}, ours {ours[max(0, at - 80) : at + 200]!r}, Harbor's {theirs[max(0, at - 80) : at + 200]!r}"
    )
