"""Harbor's trial directory, in and out: a trial run under Harbor as our viewer shows it, one of ours as Harbor's does.

<trial>/ config.json result.json            what was asked, how it ended
         agent/trajectory.json               ATIF: what was said and seen
         verifier/{reward.txt,ctrf.json,test-stdout.txt}
         artifacts/manifest.json
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd

from t1core.store.atomic import write_atomic, write_json
from t1core.store.trial_table import StoredTrial, nested_columns

_PHASES = {"environment_setup": "open", "agent_execution": "agent", "verifier": "grade"}


def is_harbor_trial(path: Path) -> bool:
    """Whether a directory is a trial that Harbor ran."""
    return (path / "result.json").is_file() and not (path / "status.json").exists()


def read_harbor_trial(path: Path | str) -> StoredTrial:
    """A trial directory of Harbor's as a stored trial: without tokens, since routes and masks do not travel.

    A directory of a trial that broke early lacks files, and what they would tell is left out. ValueError where it is
    no such directory, or its trajectory is no ATIF.
    """
    path = Path(path)
    if not is_harbor_trial(path):
        raise ValueError(f"{path} is no Harbor trial: it has no result.json")
    result = _json(path / "result.json")
    document = (
        _json(path / "agent" / "trajectory.json") if (path / "agent" / "trajectory.json").is_file() else {}
    )
    if document and not str(document.get("schema_version", "")).startswith("ATIF-v1."):
        raise ValueError(
            f"{path}/agent/trajectory.json: schema_version is {document.get('schema_version')!r}, not ATIF v1"
        )
    turns = _turns(document.get("steps") or [])
    tests = _tests(path / "verifier" / "ctrf.json")
    return StoredTrial(
        trial=_trial(path, result, document=document, turns=turns, tests=tests),
        turns=pd.DataFrame(turns, columns=nested_columns("turns")),
        tests=pd.DataFrame(tests, columns=nested_columns("tests")),
        tokens=None,
        vocabulary=None,
    )


def _trial(
    path: Path,
    result: Mapping[str, Any],
    *,
    document: Mapping[str, Any],
    turns: Sequence[Mapping[str, Any]],
    tests: Sequence[Mapping[str, Any]],
) -> pd.Series:
    rewards = (result.get("verifier_result") or {}).get("rewards") or {}
    broken = result.get("exception_info") or {}
    reward = rewards.get("reward", next(iter(rewards.values()), float("nan")))
    claims = [turn["is_completion_claim"] for turn in turns]
    stopped = "agent_timeout" if broken.get("exception_type") == "AgentTimeoutError" else "failed"
    agent = result.get("agent_info") or document.get("agent") or {}
    output = path / "verifier" / "test-stdout.txt"
    return pd.Series(
        {
            "trial_id": result.get("trial_name", path.name),
            "task_id": result.get("task_name", ""),
            "family": f"Harbor, {agent.get('name', 'unknown agent')} {agent.get('version', '')}".strip(),
            "split": result.get("source") or "",
            "step": "",
            "outcome": "graded" if rewards else "not graded",
            "stop_reason": stopped if broken else "completed" if any(claims[-1:]) else "unknown",
            "reward": float(reward),
            "reward_source": "Harbor's verifier",
            "passed": sum(test["status"] == "passed" for test in tests) if tests else float("nan"),
            "total": len(tests) or float("nan"),
            "sampled_tokens": (document.get("final_metrics") or {}).get("total_completion_tokens", ""),
            "flags": [],
            "failure_boundary": "Harbor" if broken else None,
            "failure_kind": broken.get("exception_type"),
            "failure_message": broken.get("exception_message"),
            "grader_output": output.read_text(errors="replace")[-4000:] if output.is_file() else "",
        }
        | {f"time_{name}_s": _seconds(result.get(phase)) for phase, name in _PHASES.items()}
        | {"time_total_s": _seconds(result)}
    )


def _turns(steps: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Agent steps that were not copied from an earlier trajectory, each with what was typed and then seen."""
    times = [_time(step.get("timestamp")) for step in steps]
    began = next((time for time in times if time is not None), None)
    turns = []
    for step, time in zip(steps, times, strict=True):
        if step.get("source") != "agent" or step.get("is_copied_context"):
            continue
        calls = step.get("tool_calls") or []
        typed = [call["arguments"] for call in calls if "keystrokes" in (call.get("arguments") or {})]
        seen = "\n".join(_content(item) for item in (step.get("observation") or {}).get("results") or [])
        at_s = (time - began).total_seconds() if time is not None and began is not None else float("nan")
        turns.append(
            {
                "index": len(turns),
                "model_call_id": f"step {step.get('step_id')}",
                "response": _content({"content": step.get("message")}),
                "commands": [
                    {"keystrokes": str(item["keystrokes"]), "duration_s": float(item.get("duration") or 0.0)}
                    for item in typed
                ],
                "is_parse_error": False,  # ATIF does not say
                "is_completion_claim": any(
                    call.get("function_name") == "mark_task_complete" for call in calls
                ),
                "observation": seen,
                "screen": "",
                "started_s": turns[-1]["ended_s"] if turns else 0.0,
                "generated_s": at_s,
                "ended_s": at_s,
                "repairs": [],
                "is_wait_expired": False,
                "is_summary": False,
                "is_summary_lost": False,
                "colours": "",
            }
        )
    return turns


def _content(item: Mapping[str, Any]) -> str:
    """Text of a message or an observation; of several parts, the text ones."""
    content = item.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in content)
    return "" if content is None else str(content)


def _tests(path: Path) -> list[dict[str, Any]]:
    """Tests of a CTRF report, for reading: what can't be read is no test, and decides nothing here."""
    try:
        tests = json.loads(path.read_text())["results"]["tests"]
        return [
            {
                "name": str(test["name"]),
                "status": str(test["status"]),
                "duration_s": float(test.get("duration") or 0.0),
                "message": str(test.get("trace") or test.get("message") or ""),
            }
            for test in tests
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def write_harbor_trial(
    directory: Path | str, *, stored: StoredTrial, trajectory: Mapping[str, Any], ended_at: datetime
) -> Path:
    """Write a stored trial as a trial directory of Harbor's; `trajectory` is its ATIF document.

    Times of day are counted back from `ended_at`, since a trial of ours keeps durations alone. ValueError when the
    directory holds something already.
    """
    directory, trial = Path(directory), stored.trial
    if directory.exists() and any(directory.iterdir()):
        raise ValueError(f"{directory} is not empty: name a new directory for the trial")
    for folder in ("agent", "verifier", "artifacts"):
        (directory / folder).mkdir(parents=True, exist_ok=True)
    config = {
        "task": {"path": str(trial["task_id"])},
        "trial_name": directory.name,
        "agent": {"name": "t1core"},
    }
    write_json(directory / "config.json", config)
    write_json(directory / "result.json", _result(stored, trajectory, config=config, ended_at=ended_at))
    write_json(directory / "agent" / "trajectory.json", dict(trajectory))
    write_json(directory / "artifacts" / "manifest.json", [])
    if pd.notna(trial["reward"]):
        write_atomic(directory / "verifier" / "reward.txt", [f"{trial['reward']:g}\n".encode()])
        write_atomic(directory / "verifier" / "test-stdout.txt", [(trial["grader_output"] or "").encode()])
        write_json(directory / "verifier" / "ctrf.json", _ctrf(stored.tests, version=trial["ctrf_version"]))
    return directory


def _result(
    stored: StoredTrial, trajectory: Mapping[str, Any], *, config: Mapping[str, Any], ended_at: datetime
) -> dict[str, Any]:
    trial = stored.trial
    spent = {name: _given_seconds(trial, name) for name in ("open", "agent", "grade")}
    began = ended_at - timedelta(seconds=max(_given_seconds(trial, "total"), sum(spent.values())))
    marks = [began]
    for seconds in spent.values():
        marks.append(marks[-1] + timedelta(seconds=seconds))
    totals = trajectory.get("final_metrics") or {}
    result: dict[str, Any] = {
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"t1core:{trial['trial_id']}")),
        "task_name": trial["task_id"],
        "trial_name": config["trial_name"],
        "trial_uri": "",
        "task_id": {"path": str(trial["task_id"])},
        "source": trial["split"],
        "task_checksum": "",
        "config": dict(config),
        "agent_info": {"name": "t1core", "version": str((trajectory.get("agent") or {}).get("version", ""))},
        "agent_result": {
            "n_input_tokens": totals.get("total_prompt_tokens"),
            "n_output_tokens": totals.get("total_completion_tokens"),
            "metadata": {"stop_reason": trial["stop_reason"], "outcome": trial["outcome"]},
        },
        "started_at": began.isoformat(),
        "finished_at": ended_at.isoformat(),
    }
    for phase, start, end in zip(_PHASES, marks, marks[1:], strict=False):
        result[phase] = {"started_at": start.isoformat(), "finished_at": end.isoformat()}
    if pd.notna(trial["reward"]):
        result["verifier_result"] = {"rewards": {"reward": float(trial["reward"])}}
    if pd.notna(trial["failure_kind"]):
        result["exception_info"] = {
            "exception_type": trial["failure_kind"],
            "exception_message": f"{trial['failure_boundary']}: {trial['failure_message']}",
            "exception_traceback": "",
            "occurred_at": ended_at.isoformat(),
        }
    return result


def _ctrf(tests: pd.DataFrame, *, version: str | None) -> dict[str, Any]:
    statuses = tests["status"].tolist()
    summary = {name: statuses.count(name) for name in ("passed", "failed", "skipped", "pending", "other")}
    return {
        "results": {
            "tool": {"name": "pytest", "version": version or ""},
            "summary": {"tests": len(statuses), **summary, "start": 0, "stop": 0},
            "tests": [
                {
                    "name": test.name,
                    "status": test.status,
                    "duration": test.duration_s,
                    **({"trace": test.message} if test.message else {}),
                }
                for test in tests.itertuples(index=False)
            ],
        }
    }


def _given_seconds(trial: pd.Series, name: str) -> float:
    value = trial.get(f"time_{name}_s")
    return float(value) if value is not None and pd.notna(value) else 0.0


def _seconds(span: Mapping[str, Any] | None) -> float:
    began, ended = (_time((span or {}).get(name)) for name in ("started_at", "finished_at"))
    return (ended - began).total_seconds() if began is not None and ended is not None else float("nan")


def _time(text: object) -> datetime | None:
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"{path} holds no JSON object")
    return document
