"""A run as plain text: its trials, one trial turn by turn, and the audit of its trained tokens against its calls."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from t1core.agent.tokenizer import ChatTokenizer
from t1core.records import ModelCall, PrefixRelation
from t1core.store import Run, StoredTrial, is_harbor_trial, read_harbor_trial
from t1core.tito import Audit, audit
from t1core.tito.stored import audit_step

_COLUMNS = ("trial_id", "kind", "task_id", "outcome", "stop_reason", "reward", "passed", "total", "num_turns")
_SORTS = ("gap", "reward", "passed", "num_turns", "sampled_tokens", "time_total_s")


def trial_lines(
    run: Run,
    *,
    only_failed: bool,
    only_unsolved: bool = False,
    sort: str | None = None,
    limit: int | None = None,
) -> Iterator[str]:
    """One line a trial; `only_failed` keeps those that something other than the model broke, with what it was,
    `only_unsolved` those that were graded and not solved. `sort` puts the largest first, those without a value last.
    """
    if sort is not None and sort not in _SORTS:
        raise ValueError(f"--sort {sort} is not one of {', '.join(_SORTS)}")
    trials = run.trials()
    columns = [*_COLUMNS, *([sort] if sort and sort not in _COLUMNS else [])]
    if sort == "gap":
        trials["gap"] = trials["trial_id"].map(trial_gaps(run))
    if only_unsolved:
        trials = trials[trials["reward"].notna() & ~trials["solved"].fillna(False).astype(bool)]
    if only_failed:
        trials = trials[trials["outcome"] == "failed"]
        columns += ["failure_boundary", "failure_kind", "failure_message"]
    if trials.empty:
        yield "no such trial in this run"
        return
    if sort is not None:
        if sort not in trials:
            raise ValueError(f"--sort {sort}: this run's trials have no such column")
        trials = trials.sort_values(sort, ascending=False, kind="stable", na_position="last")
    trials = trials.head(limit if limit is not None else len(trials))
    yield trials[columns].to_string(index=False, na_rep="-", max_colwidth=60)


def trial_gaps(run: Run) -> dict[str, float]:
    """Mean |trainer - rollout| log-prob over the trained tokens of each trial whose tokens are stored, in nats."""
    gaps: dict[str, float] = {}
    for step in run.token_steps():
        tokens = run.tokens(step)
        if "trainer_logprobs" not in tokens:
            continue
        gap = (tokens["trainer_logprobs"] - tokens["rollout_logprob"]).abs()
        gaps |= gap[tokens["sampled"]].groupby(tokens["rollout_id"], observed=True).mean().to_dict()
    return gaps


def stored_trial(path: Path, trial_id: str | None) -> StoredTrial:
    """A trial of a run directory by its id, or the one that a trial directory of Harbor's is. ValueError for neither,
    and for an id where it is missing, unknown or of no use."""
    if is_harbor_trial(path):
        if trial_id is not None:
            raise ValueError(f"--trial {trial_id}: {path} is one trial of Harbor's already; leave it out")
        return read_harbor_trial(path)
    run = Run.open(path)
    if trial_id is None:
        raise ValueError(f"{path} is a run: name one of its trials with --trial, as `t1 trials` lists them")
    return _trial(run, trial_id)


def _trial(run: Run, trial_id: str) -> StoredTrial:
    try:
        return run.trajectory(trial_id)
    except KeyError as error:
        raise ValueError(error.args[0]) from None


def show_lines(run: Run, trial_id: str) -> Iterator[str]:
    """All turns of a trial, its tests and why it ended. ValueError when the run has no such trial."""
    stored = _trial(run, trial_id)
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
        yield printable(turn.response)
        yield "--- terminal"
        yield printable(turn.observation or turn.screen)
    yield "--- tests"
    for test in stored.tests.itertuples():
        yield f"{test.status:8} {test.name}  {printable(test.message)}".rstrip()
    yield f"--- stop reason: {trial['stop_reason']}"
    if pd.notna(trial["reward"]):
        yield f"reward {trial['reward']:.3f} ({trial['reward_source']})"
    if pd.notna(trial["failure_kind"]):
        told = printable(trial["failure_message"])
        yield f"broken by {trial['failure_boundary']}: {trial['failure_kind']}: {told}"


def audit_lines(run: Run, *, tokenizer: ChatTokenizer | None = None) -> Iterator[str]:
    """A line a step, then what all positions are and how the turns continue, and with the run's `tokenizer` how many
    answers a history of texts would have changed. ValueError when anything is not as it was sampled, and for a
    tokenizer that is not the run's.
    """
    if (
        tokenizer is not None
        and [tokenizer.decode_token(i) for i in range(tokenizer.vocab_size)] != run.vocabulary()
    ):
        raise ValueError(
            "--tokenizer is not the run's: its tokens have other texts than vocabulary.json of the run says"
        )
    total = audit([], [])
    for step in run.token_steps():
        found = audit_step(run, step)
        total += found
        yield f"step {step}: {found.num_loss_tokens} trained tokens, {len(found.problems)} problems"
    yield from summary_lines(total)
    if total.problems:
        raise ValueError(
            "trained tokens are not what was sampled:\n  - " + "\n  - ".join(total.problems[:20])
        )
    if tokenizer is not None:
        calls = [
            one.call
            for step in run.token_steps()
            for trial in run.stored_calls(step).values()
            for one in trial
        ]
        yield drift_line(calls, tokenizer=tokenizer)
    yield f"{total.num_loss_tokens} trained tokens in {len(run.token_steps())} steps are as they were sampled"


def drift_line(calls: Iterable[ModelCall], *, tokenizer: ChatTokenizer) -> str:
    """Of how many answers decoding and encoding gives other ids than were sampled: natural drift, which a history of
    ids does not have. The token that ends an answer is no part of its text.
    """
    answers = [call.completion_token_ids for call in calls if len(call.completion_token_ids)]
    texts = [ids[:-1] if ids[-1] in tokenizer.stop_token_ids else ids for ids in answers]
    changed = sum(not np.array_equal(tokenizer.encode(tokenizer.decode(ids)), ids) for ids in texts)
    return (
        f"as text      {changed} of {len(texts)} answers ({_percent(changed, len(texts))}) would come back from "
        "their text as other ids"
    )


def summary_lines(total: Audit) -> Iterator[str]:
    """What an audit found, without its problems: the partition of the positions, drift, delivery, relations."""
    parts = {
        "aligned": total.num_aligned,
        "retokenised": total.num_retokenised,
        "placeholder": total.num_placeholder,
    }
    positions = sum(parts.values())
    told = ", ".join(f"{name} {number} ({_percent(number, positions)})" for name, number in parts.items())
    yield f"positions    {positions}: {told}"
    drift = _percent(total.num_drifted, total.num_loss_tokens)
    yield f"drift        {total.num_drifted} of {total.num_loss_tokens} trained tokens ({drift})"
    delivered = _percent(total.num_delivered, total.num_sampled)
    yield f"delivered    {total.num_delivered} of {total.num_sampled} sampled tokens ({delivered})"
    boundaries = sum(total.relations.values())
    told = ", ".join(
        f"{relation} {total.relations.get(relation, 0)} ({_percent(total.relations.get(relation, 0), boundaries)})"
        for relation in PrefixRelation
    )
    yield f"boundaries   {boundaries}: {told}"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f}%" if whole else "-"


def printable(text: str) -> str:
    """The text without control characters that a terminal would obey; line ends and tabs stay."""
    return "".join(c if c in "\n\t" or c.isprintable() else repr(c)[1:-1] for c in text)
