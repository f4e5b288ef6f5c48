"""The trial page: complete, folded, and harmless whatever the trial wrote."""

import html
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from benchmarks.trial_page import long_trial
from t1core.records import Batch, StopReason
from t1core.store import Run, StoredTrial
from t1core.view import trial_page
from t1core.view.ansi import ansi_html
from t1core.view.escape import visible
from tests.notebooks.run_by_hand import write_run
from tests.store.records_by_hand import batch, engine_failure, row, trial


class _Tags(HTMLParser):
    """Collects tags, their attributes, and the text inside `pre`."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("run"))


def test_a_hostile_terminal_can_neither_run_a_script_nor_load_anything(run):
    page = trial_page(run.trajectory("s3a")).html
    tags = _Tags(page)
    assert "script" not in tags.tags
    assert "img" not in tags.tags
    assert not [entry for entry in tags.attributes if entry[1].startswith("on") or entry[1] == "src"]
    links = {value for _, name, value in tags.attributes if name == "href"}
    anchors = {f"#{value}" for _, name, value in tags.attributes if name == "id"}
    assert {"#turn-0", "#turn-1", "#token-0-3"} <= links <= anchors
    assert "&lt;script&gt;alert(1)&lt;/script&gt;␛[31m" in page
    assert "⟨U+202E⟩" in page
    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page


def test_the_notebooks_frame_runs_no_script_and_holds_the_whole_page(run):
    page = trial_page(run.trajectory("s3a"))
    frame = page._repr_html_()
    attributes = {name: value for tag, name, value in _Tags(frame).attributes if tag == "iframe"}
    assert attributes["sandbox"] == ""
    # A link inside such a frame must name the frame's own document, or it loads the page around it.
    assert attributes["srcdoc"] == page.html.replace('href="#', 'href="about:srcdoc#')
    assert 'href="#' not in attributes["srcdoc"] and 'href="about:srcdoc#turn-1"' in attributes["srcdoc"]
    assert _Tags(frame).tags == ["iframe"]


def test_turns_tests_and_stop_reason_are_there_and_turns_are_folded(run):
    page = trial_page(run.trajectory("s3a")).html
    assert page.count('<details class="turn"') == 2
    assert '<details class="turn" id="turn-0" open' not in page
    assert "tests: 4 of 4 passed" in page
    assert "<dt>stop reason</dt><dd>completed</dd>" in page
    assert "did not parse" in page
    assert "0.200 (ctrf)" in page


def test_a_stored_trial_shows_itself_in_a_notebook(run):
    stored = run.trajectory("s3a")
    assert stored._repr_html_() == trial_page(stored)._repr_html_()


def test_each_turn_shows_its_own_tokens_with_mask_gap_advantage_value_and_flips(run):
    page = trial_page(run.trajectory("s3a")).html
    first = page[page.index('id="turn-0"') : page.index('id="turn-1"')]
    second = page[page.index('id="turn-1"') :]
    # Tokens 1 2 3 | 4 5 are turn 0's, 6 | 7 turn 1's; values and advantages of row a are line[0:7] from -1 in 14 steps.
    assert "<i>[1]" not in first and first.count("<i>") == 1 and first.count("<b ") == 2
    assert ">\n</b>" in first and ">&lt;|im_end|&gt;</b>" in first
    assert "&lt;x&gt;" in second.split("<summary>tokens")[1]
    assert second.count("<i>") == 1 and second.count("<b ") == 1
    # Trainer log-prob of position 3 is line[3] - 1.5 = -2.0385, rollout's is -0.5: a gap of 1.54, the highest class.
    # Its advantage is the lowest (-0.5385 of at most 0.5385), its value too, which has no class; 3 layers flipped.
    assert (
        "<b id='token-0-3' class='g5 a0 f3' title='token 3, id 4, version 3; rollout -0.5, trainer -2.038, "
        "value -0.5385, advantage -0.5385, return -0.5385, flipped layers 3'>" in first
    )
    assert 'id="by-gap" checked' in page and 'id="by-mask"' in page and 'id="by-flips"' in page
    assert '<a href="#turn-1">turn 1</a> <i>' in second


def test_the_page_says_where_the_value_moved_and_where_the_two_sides_disagree(run):
    page = trial_page(run.trajectory("s3a")).html
    jumps = page[page.index("where the value moved most") : page.index("where trainer and engine disagree")]
    # From position 3 to 4 the value rises by 2 / 13, from 4 to 6 (5 is context) by 4 / 13.
    assert '+0.308 at <a href="#token-0-6">token 6</a> <code> &lt;x&gt;</code>' in jumps
    assert '+0.154 at <a href="#token-0-4">token 4</a>' in jumps and '<a href="#turn-0">turn 0</a>' in jumps
    table = page[page.index("tokens by turn") : page.index("where the value moved most")]
    assert '<a href="#turn-0">0</a></td><td>2</td><td>-0.538 to -0.385</td><td>1.63</td>' in table


def test_a_trial_of_two_rows_counts_its_turns_through_both_of_them(tmp_path):
    run = Run.create(tmp_path, campaign="demo", run_name="chunks", config={}, provenance={})
    run.record_trajectories([trial("a")], step=0)
    one = replace(
        row("a"), loss_mask=np.array([0, 0, 0, 1, 1, 0, 0], dtype=np.uint8), spans=row("a").spans[:1]
    )
    two = replace(one, loss_mask=np.array([0, 0, 0, 0, 0, 0, 1], dtype=np.uint8), spans=row("a").spans[1:])
    run.record_tokens(
        Batch.from_rows([one, two], step=0, num_tests=[4, 4]), per_token={}, spans=[one.spans, two.spans]
    )
    page = trial_page(run.trajectory("a")).html
    first = page[page.index('id="turn-0"') : page.index('id="turn-1"')]
    second = page[page.index('id="turn-1"') :]
    assert ">[4][5]</b>" in first and "<i>[6][7]</i>" in first and ">[7]</b>" in second


def test_a_screen_has_its_colours_and_nothing_else_of_what_it_says():
    assert (
        ansi_html("a\x1b[1;31mred\x1b[0m b") == 'a<span style="color:#c01c28;font-weight:bold">red</span> b'
    )
    assert ansi_html("\x1b[38;5;196mx\x1b[39m") == '<span style="color:#ff0000">x</span>'
    assert ansi_html("\x1b[48;2;1;2;255mx") == '<span style="background:#0102ff">x</span>'
    assert ansi_html("\x1b[7mx\x1b[27my") == '<span style="color:#ffffff;background:#1a1a1a">x</span>y'
    # Numbers out of range, halves of sequences and sequences that do other things stay text.
    assert ansi_html("\x1b[38;5;999mx\x1b[38;2;1mx") == "xx"
    assert ansi_html("\x1b]8;;javascript:alert(1)\x07x\x1b[2J") == "␛]8;;javascript:alert(1)␇x␛[2J"


def test_a_turn_shows_the_pane_in_colour_where_it_was_kept(run):
    stored = run.trajectory("s3a")
    assert '<pre class="screen">root@box:/app# ls 0</pre>' in trial_page(stored).html
    turns = stored.turns.assign(colours="\x1b[32mroot\x1b[39m@box")
    page = trial_page(replace(stored, turns=turns)).html
    assert '<pre class="screen"><span style="color:#26752f">root</span>@box</pre>' in page


@pytest.mark.parametrize(
    "payload",
    [
        "<script>alert(1)</script>",
        "\x1b[31m<img src=x onerror=alert(1)>\x1b[0m",
        "</pre></details><svg onload=alert(1)>",
        "' onmouseover='alert(1)",
        '" onmouseover="alert(1)',
        '\x1b[38;5;1"onclick="alert(1)m<b onclick=alert(1)>',
        "</span><a href=javascript:alert(1)>x</a>",
        "<style>*{display:none}</style><base href=//evil>",
        "&lt;script&gt;<!--",
        "</iframe><script>alert(1)</script>",
    ],
)
def test_a_payload_in_any_field_becomes_text(payload):
    made = trial("a")
    turns = pd.DataFrame(
        [vars(made.turns[0]) | {"screen": payload, "observation": payload, "response": payload}]
    )
    turns["commands"] = [[{"keystrokes": payload, "duration_s": 0.1}]]
    turns["repairs"] = [[payload]]
    tests = pd.DataFrame([{"name": payload, "status": payload, "duration_s": 0.0, "message": payload}])
    facts = dict.fromkeys(
        ("trial_id", "task_id", "family", "split", "step", "outcome", "stop_reason"), payload
    )
    facts |= {"reward": 0.1, "reward_source": payload, "passed": 1, "total": 2, "flags": [payload]}
    facts |= {"sampled_tokens": payload, "failure_kind": payload, "failure_boundary": payload}
    facts |= {"failure_message": payload, "grader_output": payload}
    tokens = pd.DataFrame(
        {"row": 0, "position": [0, 1], "token_id": [0, 0], "sampled": [False, True], "turn": [-1, 0]}
        | {"model_call_id": None, "rollout_logprob": -0.5, "weight_version": 1, "values": [0.0, 1.0]}
    )
    clean = trial_page(StoredTrial(pd.Series(facts), turns, tests, tokens, [payload]))
    allowed = {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "dl", "dt", "dd", "p", "b", "i", "pre",
        "details", "summary", "ul", "li", "span", "input", "label", "code", "small", "a", "table", "tr", "th", "td",
        "div",
    }  # fmt: skip
    tags = _Tags(clean.html)
    assert set(tags.tags) <= allowed
    assert tags.tags.count("style") == 1
    names = {(tag, name) for tag, name, _ in tags.attributes}
    assert {name for _, name in names} <= {
        "lang", "charset", "http-equiv", "content", "class", "id", "title", "type", "name", "checked", "for", "href",
        "open", "style",
    }  # fmt: skip
    assert all(value.startswith("#") for _, name, value in tags.attributes if name == "href")
    assert _Tags(clean._repr_html_()).tags == ["iframe"]


def test_a_broken_trial_and_one_without_tokens_have_a_page_too(run):
    page = trial_page(run.trajectory("s1d")).html
    assert "broken by engine: engine_dead" in page
    assert "engine 0 is gone" in page
    assert "not graded" in page
    assert "<summary>tokens</summary>" not in page
    assert "<summary>tokens</summary>" not in trial_page(run.trajectory("e0-heldout-1")).html
    with pytest.raises(KeyError, match="no trial 'zzz'"):
        run.trajectory("zzz")


def test_without_spans_or_vocabulary_tokens_go_by_turn_and_id(tmp_path):
    run = Run.create(tmp_path, campaign="demo", run_name="bare", config={}, provenance={})
    run.record_trajectories(
        [trial("a"), trial("b", passed=None, stop=StopReason.FAILED, failure=engine_failure())], step=0
    )
    made, _ = batch("a", step=0)
    run.record_tokens(made, per_token={})
    page = trial_page(run.trajectory("a")).html
    first = page[page.index('id="turn-0"') : page.index('id="turn-1"')]
    assert ">[4][5]</b>" in first and ">[7]</b>" not in first
    assert "This run stored no log-prob gap, no advantage, no value, no routing flips." in page


def test_ordinary_text_is_only_escaped():
    text = "naïve 日本 <a href='x'>\n\t&amp;"
    assert visible(text) == html.escape(text, quote=True)


def test_eighty_thousand_tokens_of_few_colours_make_few_elements():
    stored = long_trial(num_turns=60, num_tokens=80_000, noise=0.0)
    page = trial_page(stored).html
    # The value climbs through 6 levels and the advantage through 7 once, so almost every turn's answer is one element.
    assert page.count("<b ") < 100
    assert page.count('<details class="turn"') == 60
    assert page.count("x") > 80_000
