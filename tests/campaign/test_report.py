"""A run as plain text, and the audit of its trained tokens."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from t1core.agent.tokenizer import train_tokenizer
from t1core.campaign.report import audit_lines, drift_line, show_lines, trial_lines
from t1core.records import StopReason
from t1core.store import Run
from tests.store.records_by_hand import batch, engine_failure, row, trial


def as_trained(one):
    """The trial with the log-probs and the routes that `row` has."""
    first, second = one.calls
    routes = row(one.trial_id).rollout_routed_experts
    return replace(
        one,
        calls=(
            replace(first, logprobs=np.array([-0.5, -0.25], np.float32), routed_experts=routes[:4]),
            replace(
                second,
                logprobs=np.array([-1.0], np.float32),
                routed_experts=routes[4:],
                routed_experts_start=4,
            ),
        ),
    )


@pytest.fixture
def run(tmp_path):
    run = Run.create(tmp_path, campaign="demo", run_name="r", config={}, provenance={})
    broken = trial("c", passed=None, stop=StopReason.FAILED, failure=engine_failure())
    dirty = trial("a", observation="\x1b[31mred\tend")
    run.record_trajectories([as_trained(dirty), as_trained(trial("b")), broken], step=0)
    return run


def test_an_audit_of_faithful_tokens_counts_them(run):
    made, spans = batch("a", "b")
    run.record_tokens(made, per_token={}, spans=spans)
    assert list(audit_lines(run)) == [
        "step 0: 6 trained tokens, 0 problems",
        "positions    14: aligned 14 (100.00%), retokenised 0 (0.00%), placeholder 0 (0.00%)",
        "drift        0 of 6 trained tokens (0.00%)",
        "delivered    6 of 6 sampled tokens (100.00%)",
        "boundaries   2: strict 2 (100.00%), normalized 0 (0.00%), retokenized 0 (0.00%), split 0 (0.00%)",
        "6 trained tokens in 1 steps are as they were sampled",
    ]


def shifted(array):
    return np.roll(array, 1, axis=0)


@pytest.mark.parametrize(
    ("name", "fault", "told"),
    [
        ("tokens", lambda x: at(x, 11, 9), "rollout b chunk 0: the ids sampled by call b-c0 are not trained"),
        ("tokens", lambda x: at(x, 2, 9), "1 context tokens before call a-c0 were changed"),
        ("rollout_log_probs", lambda x: at(x, 3, -0.6), "a chunk 0: log-probs of call a-c0 differ"),
        ("weight_versions", lambda x: at(x, 3, 2), "a chunk 0: weight versions of call a-c0 differ"),
        ("loss_mask", lambda x: at(x, 5, 1), "1 tokens outside every sampled span are trained"),
        ("loss_mask", shifted, "sampled tokens are not trained|not trained as they are"),
        ("routed_experts", shifted, "routes of call a-c0 are not those captured"),
    ],
)
def test_an_audit_finds_each_planted_fault(run, name, fault, told):
    made, spans = batch("a", "b")
    run.record_tokens(replace(made, **{name: fault(getattr(made, name))}), per_token={}, spans=spans)
    with pytest.raises(ValueError, match=told):
        list(audit_lines(run))


def test_an_audit_finds_a_turn_trained_twice(run):
    made, spans = batch("a", "b", "a")
    run.record_tokens(made, per_token={}, spans=spans)
    with pytest.raises(ValueError, match="call a-c0 is trained 2 times"):
        list(audit_lines(run))


def test_answers_that_their_text_would_change_are_counted(run, tmp_path):
    tokenizer = train_tokenizer(["echo echo echo ls ls"], tmp_path / "tokenizer", vocab_size=270)
    canonical = np.append(tokenizer.encode("echo ls"), tokenizer.im_end)
    letters = np.concatenate([tokenizer.encode(letter) for letter in "echo"])
    assert len(tokenizer.encode("echo")) == 1 and tokenizer.decode(letters) == "echo"
    made = [
        replace(trial("a").calls[0], completion_token_ids=ids) for ids in (canonical, letters, letters[:0])
    ]
    told = "as text      1 of 2 answers (50.00%) would come back from their text as other ids"
    assert drift_line(made, tokenizer=tokenizer) == told
    with pytest.raises(ValueError, match="--tokenizer is not the run's"):
        list(audit_lines(run, tokenizer=tokenizer))
    run.record_vocabulary([tokenizer.decode_token(i) for i in range(tokenizer.vocab_size)])
    batch_made, spans = batch("a", "b")
    run.record_tokens(batch_made, per_token={}, spans=spans)
    *_, drift, faithful = audit_lines(run, tokenizer=tokenizer)
    assert " of 6 answers " in drift and faithful.endswith("as they were sampled")


def test_an_older_run_without_prompts_says_so():
    fixture = Path(__file__).parents[1] / "store" / "fixtures" / "fixture" / "v1"
    with pytest.raises(ValueError, match="keeps no prompts"):
        list(audit_lines(Run.open(fixture)))


def at(array, place, value):
    changed = array.copy()
    changed[place] = value
    return changed


def test_trials_are_listed_and_the_broken_ones_say_what_broke(run):
    assert [line.split()[0] for line in "\n".join(trial_lines(run, only_failed=False)).splitlines()] == [
        "trial_id", "a", "b", "c",
    ]  # fmt: skip
    header, broken = "\n".join(trial_lines(run, only_failed=True)).splitlines()
    assert "failure_boundary" in header
    assert broken.split()[0] == "c" and "engine_dead" in broken


def test_a_trial_is_shown_with_turns_tests_and_stop_reason_and_without_escape_codes(run):
    text = "\n".join(show_lines(run, "a"))
    assert "\x1b" not in text and "\\x1b[31mred\tend" in text
    assert text.count("--- turn") == 2 and "turn 1 (parse error)" in text
    assert "passed   test_outputs.py::test_0" in text
    assert "--- stop reason: completed\nreward 0.100 (ctrf)" in text
    assert "broken by engine: engine_dead" in "\n".join(show_lines(run, "c"))
    with pytest.raises(ValueError, match="no trial 'z'"):
        list(show_lines(run, "z"))
