"""A run as plain text, and the audit of its trained tokens."""

from dataclasses import replace

import numpy as np
import pytest

from t1core.campaign.report import audit_lines, show_lines, trial_lines
from t1core.records import StopReason
from t1core.store import Run
from tests.store.records_by_hand import batch, engine_failure, trial


def as_trained(one):
    """The trial with the log-probs that `row` has."""
    first, second = one.calls
    return replace(
        one,
        calls=(
            replace(first, logprobs=np.array([-0.5, -0.25], np.float32)),
            replace(second, logprobs=np.array([-1.0], np.float32)),
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
    assert list(audit_lines(run))[-1] == "6 trained tokens in 1 steps are as they were sampled"


@pytest.mark.parametrize(
    ("name", "place", "value", "told"),
    [
        ("tokens", 11, 9, "b: ids differ in 1 of 3"),
        ("rollout_log_probs", 3, -0.6, "a: log-probs differ in 1 of 3"),
        ("loss_mask", 5, 1, "a: 3 tokens sampled, 4 trained"),
    ],
)
def test_an_audit_finds_one_changed_token_log_prob_or_mask(run, name, place, value, told):
    made, spans = batch("a", "b")
    array = getattr(made, name).copy()
    array[place] = value
    run.record_tokens(replace(made, **{name: array}), per_token={}, spans=spans)
    with pytest.raises(ValueError, match=told):
        list(audit_lines(run))


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
