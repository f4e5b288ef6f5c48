"""The trial page: complete, folded, and harmless whatever the trial wrote."""

import html
import time
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from t1core.records import StopReason
from t1core.store import Run, StoredTrial
from t1core.view import trial_page
from t1core.view.escape import visible
from tests.notebooks.run_by_hand import write_run
from tests.store.records_by_hand import batch, engine_failure, trial


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
    assert {value for _, name, value in tags.attributes if name == "href"} <= {"#turn-0", "#turn-1"}
    assert "&lt;script&gt;alert(1)&lt;/script&gt;␛[31m" in page
    assert "⟨U+202E⟩" in page
    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page


def test_the_notebooks_frame_runs_no_script_and_holds_the_whole_page(run):
    page = trial_page(run.trajectory("s3a"))
    frame = page._repr_html_()
    attributes = {name: value for tag, name, value in _Tags(frame).attributes if tag == "iframe"}
    assert attributes["sandbox"] == ""
    assert attributes["srcdoc"] == page.html
    assert _Tags(frame).tags == ["iframe"]


def test_turns_tests_and_stop_reason_are_there_and_turns_are_folded(run):
    page = trial_page(run.trajectory("s3a")).html
    assert page.count('<details class="turn"') == 2
    assert '<details class="turn" id="turn-0" open' not in page
    assert "tests: 4 of 4 passed" in page
    assert "<dt>stop reason</dt><dd>completed</dd>" in page
    assert "did not parse" in page
    assert "0.200 (ctrf)" in page


def test_each_turn_shows_its_own_sampled_tokens_with_gap_advantage_and_value(run):
    page = trial_page(run.trajectory("s3a")).html
    first = page[page.index('id="turn-0"') : page.index('id="turn-1"')]
    second = page[page.index('id="turn-1"') :]
    # Tokens 4, 5 and 7 of the vocabulary; values and advantages of row a are line[0:7] from -1 to 1 in 14 steps.
    assert ">\n</span>" in first and ">&lt;|im_end|&gt;</span>" in first
    assert "&lt;x&gt;" in second and "&lt;|im_end|&gt;" not in second.split("sampled tokens")[1]
    # Trainer log-prob of position 3 is line[3] - 1.5 = -2.0385, rollout's is -0.5: a gap of 1.54, the highest class.
    assert (
        'class="g5 a0 v0" title="token 3, id 4, version 3; rollout -0.5, trainer -2.038, value -0.5385'
        in first
    )
    assert 'id="by-gap" checked' in page
    assert "where the value moved most" in page


def test_a_broken_trial_and_one_without_tokens_have_a_page_too(run):
    page = trial_page(run.trajectory("s1d")).html
    assert "broken by engine: engine_dead" in page
    assert "engine 0 is gone" in page
    assert "not graded" in page
    assert "sampled tokens</summary>" not in page
    assert "sampled tokens</summary>" not in trial_page(run.trajectory("e0-heldout-1")).html
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
    assert ">[4]</span>" in first and ">[5]</span>" in first and ">[7]</span>" not in first
    assert "<input" not in page


def test_ordinary_text_is_only_escaped():
    text = "naïve 日本 <a href='x'>\n\t&amp;"
    assert visible(text) == html.escape(text, quote=True)


def test_sixty_turns_and_eighty_thousand_tokens_take_seconds():
    turns, per_turn = 60, 1334
    count = turns * per_turn
    tokens = pd.DataFrame(
        {
            "position": np.arange(count),
            "token_id": np.arange(count) % 100,
            "sampled": True,
            "turn": np.repeat(np.arange(turns), per_turn),
            "model_call_id": pd.Categorical(np.repeat([f"c{n}" for n in range(turns)], per_turn)),
            "rollout_logprob": -0.5,
            "weight_version": 1,
            "trainer_logprobs": -0.49,
            "values": np.linspace(0, 1, count),
            "advantages": np.linspace(-1, 1, count),
        }
    )
    made = trial("a")
    frame = pd.DataFrame([vars(made.turns[0]) | {"index": n, "model_call_id": f"c{n}"} for n in range(turns)])
    frame["commands"] = [[{"keystrokes": "ls\n", "duration_s": 0.1}]] * turns
    row = pd.Series(
        {
            "trial_id": "a", "task_id": "t", "family": "f", "split": "train", "step": 0, "outcome": "accepted",
            "stop_reason": "completed", "reward": 0.1, "reward_source": "ctrf", "passed": 2, "total": 4, "flags": [],
            "sampled_tokens": count, "failure_kind": None, "grader_output": "",
        }
    )  # fmt: skip
    began = time.process_time()
    page = trial_page(
        StoredTrial(row, frame, pd.DataFrame(columns=["name", "status"]), tokens, ["x"] * 100)
    ).html
    assert time.process_time() - began < 10
    assert page.count('class="g') == count
    assert len(page) < 20e6
