"""A trial to a file in another program's format, and such a file to training rows."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from t1core.campaign.report import summary_lines
from t1core.exchange import (
    calls_from_atif,
    calls_from_rollout_details,
    row_from_agent_loop,
    row_from_sample,
    row_to_agent_loop,
    row_to_sample,
    trajectory_to_atif,
)
from t1core.records import Batch, ModelCall, RowStatus, Turn
from t1core.store import Run, write_harbor_trial
from t1core.store.token_file import write_tokens
from t1core.tito import assemble, audit

ExportFormat = Literal["atif-v1.7", "atif-v1.8", "slime", "verl"]
IngestFormat = Literal["harbor", "atif", "slime", "verl"]


def export_trial(run: Run, trial_id: str, *, form: str) -> str:
    """A stored trial as JSON: one ATIF document, or a list with one sample a training row. ValueError for a trial that
    is not there, or was not trained where rows are asked for.
    """
    _check_format(form, get_args(ExportFormat))
    try:
        trial = run.trajectory(trial_id).trial
    except KeyError as error:
        raise ValueError(error.args[0]) from None
    if form.startswith("atif"):
        return _as_json(
            _atif(run, trial_id, trial=trial, schema_version=f"ATIF-v{form.removeprefix('atif-v')}")
        )
    step = int(trial["step"])
    rows = [row for row in run.rows(step) if row.rollout_id == trial_id] if step in run.token_steps() else []
    if not rows:
        raise ValueError(f"trial {trial_id} was not trained, so it has no rows; export it as atif-v1.8")
    return _as_json([row_to_sample(row) if form == "slime" else row_to_agent_loop(row) for row in rows])


def export_harbor_trial(run: Run, trial_id: str, directory: Path) -> Path:
    """A stored trial as a trial directory of Harbor's, ended when its run last wrote."""
    try:
        stored = run.trajectory(trial_id)
    except KeyError as error:
        raise ValueError(error.args[0]) from None
    document = json.loads(export_trial(run, trial_id, form="atif-v1.8"))
    ended_at = datetime.fromtimestamp(run.status().heartbeat, UTC)
    return write_harbor_trial(directory, stored=stored, trajectory=document, ended_at=ended_at)


def ingest_lines(
    path: Path,
    *,
    form: str,
    output: Path | None = None,
    rollout_id: str | None = None,
    reward: float | None = None,
    weight_version: int = 0,
) -> Iterator[str]:
    """Rows of a file, what they are, and where they went. Calls are assembled and audited. ValueError for a file that
    does not hold what its format promises, and for calls without a reward.
    """
    _check_format(form, get_args(IngestFormat))
    document = json.loads(path.read_text())
    if form in ("slime", "verl"):
        read = row_from_sample if form == "slime" else row_from_agent_loop
        rows = [
            read(one, rollout_id=rollout_id)
            for one in (document if isinstance(document, list) else [document])
        ]
    else:
        calls, found_reward = _calls(document, form=form, name=rollout_id, weight_version=weight_version)
        reward = found_reward if reward is None else reward
        if reward is None:
            raise ValueError(f"{path} has no reward; give --reward")
        rows = list(assemble(calls, reward=reward, status=RowStatus.COMPLETED))
        found = audit(calls, rows)
        assert not found.problems, f"{path}: the audit found {found.problems[:3]}"
        yield from summary_lines(found)
    if not rows:
        raise ValueError(f"{path} holds nothing that was sampled")
    num_tokens, num_loss = sum(len(row.tokens) for row in rows), sum(row.num_loss_tokens for row in rows)
    yield f"rows         {len(rows)}: {num_tokens} tokens, {num_loss} of them trained"
    if output is not None:
        batch = Batch.from_rows(rows, step=0, num_tests=[0] * len(rows))
        write_tokens(output, batch, per_token={}, spans=[row.spans for row in rows])
        yield f"written      {output}"


def _calls(
    document: Any, *, form: str, name: str | None, weight_version: int
) -> tuple[tuple[ModelCall, ...], float | None]:
    if form == "atif":
        reward = (document.get("extra") or {}).get("reward")
        return calls_from_atif(document, rollout_id=name, weight_version=weight_version), reward
    details, reward = document, None
    if isinstance(document, dict):  # a trial's result.json
        details = (document.get("agent_result") or {}).get("rollout_details")
        reward = ((document.get("verifier_result") or {}).get("rewards") or {}).get("reward")
        name = name or document.get("trial_name")
    if not details:
        raise ValueError("no rollout_details; run Harbor's agent with collect_rollout_details=true")
    calls = calls_from_rollout_details(details, rollout_id=name or "harbor", weight_version=weight_version)
    return calls, reward


def _atif(run: Run, trial_id: str, *, trial: Any, schema_version: str) -> dict[str, Any]:
    stored = run.stored_calls(int(trial["step"]), kind=trial["kind"])[trial_id]
    calls = {one.call.model_call_id: one.call for one in stored}
    vocabulary = run.vocabulary()
    first = next(iter(calls.values()), None)
    task = trial["task_id"]
    if first is not None and vocabulary is not None:
        task = "".join(vocabulary[i] for i in first.prompt_token_ids)
    extra = {"task_id": trial["task_id"], "stop_reason": trial["stop_reason"], "outcome": trial["outcome"]}
    if trial["reward"] == trial["reward"]:  # not NaN
        extra["reward"] = float(trial["reward"])
    turns = [
        Turn(**one | {"commands": tuple((c["keystrokes"], c["duration_s"]) for c in one["commands"])})
        for one in run.turns(trial_id).to_dict("records")
    ]
    return trajectory_to_atif(
        trial_id=trial_id, task=task, turns=turns, calls=calls, schema_version=schema_version, extra=extra
    )


def _check_format(given: str, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise ValueError(f"--format {given} is not one of {', '.join(allowed)}")


def _as_json(content: Any) -> str:
    return json.dumps(content, default=lambda array: array.tolist(), ensure_ascii=False)
