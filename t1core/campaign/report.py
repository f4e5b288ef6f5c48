"""A run as plain text: its trials, one trial turn by turn, and the audit of its trained tokens against its calls."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from t1core.store import Run

_COLUMNS = ("trial_id", "kind", "task_id", "outcome", "stop_reason", "reward", "passed", "total", "num_turns")


def trial_lines(run: Run, *, only_failed: bool) -> Iterator[str]:
    """One line a trial; `only_failed` keeps those that something other than the model broke, with what it was."""
    trials = run.trials()
    columns = list(_COLUMNS)
    if only_failed:
        trials = trials[trials["outcome"] == "failed"]
        columns += ["failure_boundary", "failure_kind", "failure_message"]
    if trials.empty:
        yield "no such trial in this run"
        return
    yield trials[columns].to_string(index=False, na_rep="-", max_colwidth=60)


def show_lines(run: Run, trial_id: str) -> Iterator[str]:
    """All turns of a trial, its tests and why it ended. ValueError when the run has no such trial."""
    try:
        stored = run.trajectory(trial_id)
    except KeyError as error:
        raise ValueError(error.args[0]) from None
    trial = stored.trial
    yield f"{trial_id}: task {trial['task_id']}, {trial['kind']} step {trial['step']}, {trial['outcome']}"
    for turn in stored.turns.itertuples():
        marks = {
            "parse error": turn.is_parse_error,
            "claims completion": turn.is_completion_claim,
            "history summarised": turn.is_summary,
            "summary lost": turn.is_summary_lost,
            "a wait ran out": turn.is_wait_expired,
            f"mended: {'; '.join(turn.repairs)}": len(turn.repairs),
        }
        told = ", ".join(mark for mark, holds in marks.items() if holds)
        yield f"--- turn {turn.index}{f' ({told})' if told else ''}"
        yield _printable(turn.response)
        yield "--- terminal"
        yield _printable(turn.observation or turn.screen)
    yield "--- tests"
    for test in stored.tests.itertuples():
        yield f"{test.status:8} {test.name}  {_printable(test.message)}".rstrip()
    yield f"--- stop reason: {trial['stop_reason']}"
    if pd.notna(trial["reward"]):
        yield f"reward {trial['reward']:.3f} ({trial['reward_source']})"
    if pd.notna(trial["failure_kind"]):
        told = _printable(trial["failure_message"])
        yield f"broken by {trial['failure_boundary']}: {trial['failure_kind']}: {told}"


def audit_step(run: Run, step: int) -> tuple[int, list[str]]:
    """(trained tokens of a step, what is wrong with them): the loss region of each row must be the ids and log-probs
    that its trial's calls sampled, in order.
    """
    batch, _ = run.batch(step)
    problems = []
    # A trial may have several rows; its calls are spread over them in order.
    for trial_id in dict.fromkeys(batch.rollout_ids):
        calls = run.calls(trial_id, step=step)
        rows = [i for i, name in enumerate(batch.rollout_ids) if name == trial_id]
        places = np.concatenate([np.arange(batch.cu_seqlens[i], batch.cu_seqlens[i + 1]) for i in rows])
        places = places[batch.loss_mask[places].astype(bool)]
        sampled = {
            "ids": (batch.tokens, np.concatenate(calls["completion_token_ids"].tolist())),
            "log-probs": (batch.rollout_log_probs, np.concatenate(calls["logprobs"].tolist())),
        }
        for what, (trained, wanted) in sampled.items():
            if len(places) != len(wanted):
                problems.append(
                    f"step {step}, {trial_id}: {len(wanted)} tokens sampled, {len(places)} trained"
                )
                break
            wrong = np.flatnonzero(trained[places] != np.asarray(wanted, dtype=trained.dtype))
            if len(wrong):
                problems.append(
                    f"step {step}, {trial_id}: {what} differ in {len(wrong)} of {len(places)} trained tokens"
                )
    return int(batch.loss_mask.sum()), problems


def audit_lines(run: Run) -> Iterator[str]:
    """A line a step, and at last the sum. ValueError when any trained token is not as it was sampled."""
    found: list[str] = []
    total = 0
    for step in run.token_steps():
        tokens, problems = audit_step(run, step)
        total += tokens
        found += problems
        yield f"step {step}: {tokens} trained tokens, {len(problems)} trials with differences"
    if found:
        raise ValueError("trained tokens are not what was sampled:\n  - " + "\n  - ".join(found[:20]))
    yield f"{total} trained tokens in {len(run.token_steps())} steps are as they were sampled"


def _printable(text: str) -> str:
    """The text without control characters that a terminal would obey; line ends and tabs stay."""
    return "".join(c if c in "\n\t" or c.isprintable() else repr(c)[1:-1] for c in text)
