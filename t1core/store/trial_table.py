"""The trial table: trajectories as parquet, one row a trial, turns, calls and tests nested in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from t1core.records import ModelCall, StopReason, TestResult, Trajectory, Turn
from t1core.store.atomic import write_atomic
from t1core.store.schema import SCHEMA_VERSION, check_version

_COMMAND = pa.struct([("keystrokes", pa.string()), ("duration_s", pa.float64())])
_TURN = pa.struct(
    [
        ("index", pa.int32()),
        ("model_call_id", pa.string()),
        ("response", pa.string()),
        ("commands", pa.list_(_COMMAND)),
        ("is_parse_error", pa.bool_()),
        ("is_completion_claim", pa.bool_()),
        ("observation", pa.string()),
        ("screen", pa.string()),
        ("started_s", pa.float64()),
        ("generated_s", pa.float64()),
        ("ended_s", pa.float64()),
        ("repairs", pa.list_(pa.string())),
        ("is_wait_expired", pa.bool_()),
        ("is_summary", pa.bool_()),
        ("is_summary_lost", pa.bool_()),
        ("colours", pa.string()),
    ]
)
_CALL = pa.struct(
    [
        ("model_call_id", pa.string()),
        ("parent_call_id", pa.string()),
        ("num_prompt_tokens", pa.int32()),
        # the prompt, as what differs from the call before it: its first tokens are that call's prompt and answer
        ("num_shared_tokens", pa.int32()),
        ("new_prompt_token_ids", pa.list_(pa.int32())),
        ("completion_token_ids", pa.list_(pa.int32())),
        ("logprobs", pa.list_(pa.float32())),
        ("finish_reason", pa.string()),
        ("weight_version", pa.int32()),
        ("output_versions", pa.list_(pa.int32())),
        ("routes_digest", pa.string()),
    ]
)
_TEST = pa.struct(
    [("name", pa.string()), ("status", pa.string()), ("duration_s", pa.float64()), ("message", pa.string())]
)
_NESTED = ("turns", "calls", "tests")
# What a turn stored before these columns existed has in them.
_TURN_DEFAULTS = {
    "repairs": [],
    "is_wait_expired": False,
    "is_summary": False,
    "is_summary_lost": False,
    "colours": "",
}
_SCHEMA = pa.schema(
    [
        ("trial_id", pa.string()),
        ("task_id", pa.string()),
        ("family", pa.string()),
        ("split", pa.string()),
        ("kind", pa.string()),
        ("step", pa.int32()),
        ("num_tests", pa.int32()),
        ("outcome", pa.string()),
        ("stop_reason", pa.string()),
        ("failure_boundary", pa.string()),
        ("failure_kind", pa.string()),
        ("failure_message", pa.string()),
        ("failure_retryable", pa.bool_()),
        ("reward", pa.float64()),
        ("reward_source", pa.string()),
        ("passed", pa.int32()),
        ("total", pa.int32()),
        ("solved", pa.bool_()),
        ("flags", pa.list_(pa.string())),
        ("grade_s", pa.float64()),
        ("grade_cpu_s", pa.float64()),
        ("ctrf_version", pa.string()),
        ("grader_output", pa.string()),
        ("num_turns", pa.int32()),
        ("num_parse_errors", pa.int32()),
        ("sampled_tokens", pa.int32()),
        ("context_tokens", pa.int32()),
        ("timings_s", pa.map_(pa.string(), pa.float64())),
        ("cpu_s", pa.map_(pa.string(), pa.float64())),
        ("turns", pa.list_(_TURN)),
        ("calls", pa.list_(_CALL)),
        ("tests", pa.list_(_TEST)),
    ]
)


@dataclass(frozen=True)
class StoredTrial:
    """One trial as stored: its row of the trial table, its turns and tests, the tokens if it was trained on,
    and the texts of token ids if the run kept them.
    """

    trial: pd.Series
    turns: pd.DataFrame
    tests: pd.DataFrame
    tokens: pd.DataFrame | None
    vocabulary: list[str] | None

    def _repr_html_(self) -> str:
        """The trial's page, as notebooks show it."""
        from t1core.view.trajectory import trial_page  # what is shown stands above what is stored

        return trial_page(self)._repr_html_()


@dataclass(frozen=True)
class StoredCall:
    """A model call as stored: without its routes, of which `routes_digest` is the fingerprint (None: it had none)."""

    call: ModelCall
    routes_digest: str | None


OUTCOMES = ("accepted", "surplus", "quarantined", "empty", "cut", "failed")


def trial_outcome(trajectory: Trajectory) -> str:
    """failed, cut, quarantined or accepted, in this order, as far as the trial itself can tell.

    A trial that ended without failure, cut or grade is a bug of ours, hence the assertion.
    """
    if trajectory.failure is not None or trajectory.stop_reason is StopReason.FAILED:
        return "failed"
    if trajectory.stop_reason is StopReason.CUT:
        return "cut"
    grade = trajectory.grade
    assert grade is not None, f"trial {trajectory.trial_id} ended as {trajectory.stop_reason} without a grade"
    if grade.reward is None:
        return "failed"
    return "quarantined" if grade.quarantined else "accepted"


def write_trials(
    path: Path, trajectories: Sequence[Trajectory], *, kind: str, outcomes: Mapping[str, str]
) -> None:
    """One parquet file of trials, whole or not at all. `outcomes` by trial id win over `trial_outcome`."""
    assert set(outcomes.values()) <= set(OUTCOMES), (
        f"an outcome is one of {OUTCOMES}: {set(outcomes.values())}"
    )
    schema = _SCHEMA.with_metadata({"schema_version": str(SCHEMA_VERSION)})
    table = pa.Table.from_pylist(
        [_row(trajectory, kind, outcomes) for trajectory in trajectories], schema=schema
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    write_atomic(path, [sink.getvalue()])


def write_small(path: Path, sources: Sequence[Path], *, whole: Sequence[str]) -> None:
    """The trials of `sources` in one file, without calls, grader output and messages of tests; only those in `whole`
    keep their turns."""
    rows = pa.concat_tables([_read(source, _SCHEMA.names) for source in sources]).to_pylist()
    for row in rows:
        keeps = row["trial_id"] in whole
        tests = [test | {"message": test["message"] if keeps else ""} for test in row["tests"] or []]
        row |= {"calls": [], "grader_output": None, "tests": tests, "turns": row["turns"] if keeps else []}
    schema = _SCHEMA.with_metadata({"schema_version": str(SCHEMA_VERSION)})
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink, compression="zstd", compression_level=19)
    write_atomic(path, [sink.getvalue()])


def read_trials(paths: Sequence[Path]) -> pd.DataFrame:
    """One row a trial without the nested parts; timings as `time_<phase>_s`, CPU time as `cpu_<part>_s`."""
    columns = [name for name in _SCHEMA.names if name not in _NESTED]
    if not paths:
        return _expand(_SCHEMA.empty_table().select(columns))
    return _expand(pa.concat_tables([_read(path, columns) for path in paths]))


def read_nested(paths: Sequence[Path], part: str, *, trial_id: str) -> list[dict[str, Any]]:
    """The turns, calls or tests of one trial. KeyError if no file has it."""
    assert part in _NESTED
    for path in paths:
        table = _read(path, ["trial_id", part], filters=[("trial_id", "=", trial_id)])
        if table.num_rows:
            rows = table.column(part)[0].as_py() or []
            return [_TURN_DEFAULTS | row for row in rows] if part == "turns" else rows
    raise KeyError(f"no trial {trial_id!r} in this run; run.trials() lists them")


def read_tests(paths: Sequence[Path]) -> pd.DataFrame:
    """A row a test of every graded trial: trial_id, family, task_id, step, outcome, name, status."""
    columns = ["trial_id", "family", "task_id", "step", "outcome"]
    rows = [
        {**{name: row[name] for name in columns}, "name": test["name"], "status": test["status"]}
        for path in paths
        for row in _read(path, [*columns, "tests"]).to_pylist()
        for test in row["tests"] or []
    ]
    return pd.DataFrame(rows, columns=[*columns, "name", "status"])


def read_calls(path: Path) -> dict[str, list[StoredCall]]:
    """The calls of every trial in a file, by trial id. ValueError for a run that did not keep its prompts."""
    table = _read(path, ["trial_id", "calls"])
    found: dict[str, list[StoredCall]] = {}
    for trial_id, stored in zip(*(table.column(i).to_pylist() for i in range(2)), strict=True):
        before, calls = None, []
        for one in stored or []:
            before = _read_call(one, trial_id=trial_id, before=before)
            if before is None:
                raise ValueError(
                    f"{path} keeps no prompts: an older t1core wrote it; read it with Run.calls()"
                )
            calls.append(StoredCall(before, one["routes_digest"]))
        found[trial_id] = calls
    return found


def nested_columns(part: str) -> list[str]:
    """Column names of a nested part, so that an empty frame has them too."""
    return [field.name for field in _SCHEMA.field(part).type.value_type]


def _read(path: Path, columns: list[str], **kwargs: Any) -> pa.Table:
    metadata = pq.read_schema(path).metadata or {}
    check_version(metadata.get(b"schema_version", b"").decode(), path=path)
    return pq.read_table(path, columns=columns, **kwargs)


def _expand(table: pa.Table) -> pd.DataFrame:
    frame = table.drop_columns(["timings_s", "cpu_s"]).to_pandas()
    for column, prefix in (("timings_s", "time"), ("cpu_s", "cpu")):
        rows = [dict(pairs or ()) for pairs in table.column(column).to_pylist()]
        for name in dict.fromkeys(name for row in rows for name in row):
            frame[f"{prefix}_{name}_s"] = [row.get(name, float("nan")) for row in rows]
    return frame


def _row(trajectory: Trajectory, kind: str, outcomes: Mapping[str, str]) -> dict[str, Any]:
    failure, grade, calls = trajectory.failure, trajectory.grade, trajectory.calls
    last = calls[-1] if calls else None
    return {
        "trial_id": trajectory.trial_id,
        "task_id": trajectory.task_id,
        "family": trajectory.family,
        "split": trajectory.split,
        "kind": kind,
        "step": trajectory.step,
        "num_tests": trajectory.num_tests,
        "outcome": outcomes.get(trajectory.trial_id) or trial_outcome(trajectory),
        "stop_reason": str(trajectory.stop_reason),
        "failure_boundary": str(failure.boundary) if failure else None,
        "failure_kind": failure.kind if failure else None,
        "failure_message": _text(failure.message) if failure else None,
        "failure_retryable": failure.retryable if failure else None,
        "reward": grade.reward if grade else None,
        "reward_source": str(grade.source) if grade else None,
        "passed": grade.passed if grade else None,
        "total": grade.total if grade else None,
        "solved": grade.solved if grade else None,
        "flags": list(grade.flags) if grade else [],
        "grade_s": grade.duration_s if grade else None,
        "grade_cpu_s": grade.cpu_s if grade else None,
        "ctrf_version": grade.ctrf_version if grade else None,
        "grader_output": _text(grade.stdout_tail) if grade else None,
        "num_turns": sum(not turn.is_summary for turn in trajectory.turns),
        "num_parse_errors": sum(turn.is_parse_error for turn in trajectory.turns),
        "sampled_tokens": sum(len(call.completion_token_ids) for call in calls),
        "context_tokens": len(last.prompt_token_ids) + len(last.completion_token_ids) if last else 0,
        "timings_s": [(name, float(value)) for name, value in trajectory.timings_s.items()],
        "cpu_s": [(name, float(value)) for name, value in trajectory.cpu_s.items()],
        "turns": [_turn(turn) for turn in trajectory.turns],
        "calls": [_call(call, before) for call, before in zip(calls, (None, *calls), strict=False)],
        "tests": [_test(test) for test in grade.tests] if grade else [],
    }


def _turn(turn: Turn) -> dict[str, Any]:
    return {
        "index": turn.index,
        "model_call_id": turn.model_call_id,
        "response": _text(turn.response),
        "commands": [
            {"keystrokes": _text(keys), "duration_s": float(duration_s)} for keys, duration_s in turn.commands
        ],
        "is_parse_error": turn.is_parse_error,
        "is_completion_claim": turn.is_completion_claim,
        "observation": _text(turn.observation),
        "screen": _text(turn.screen),
        "started_s": turn.started_s,
        "generated_s": turn.generated_s,
        "ended_s": turn.ended_s,
        "repairs": list(turn.repairs),
        "is_wait_expired": turn.is_wait_expired,
        "is_summary": turn.is_summary,
        "is_summary_lost": turn.is_summary_lost,
        "colours": _text(turn.colours),
    }


def _call(call: ModelCall, before: ModelCall | None) -> dict[str, Any]:
    shared = 0 if before is None else _common_prefix(_stream(before), call.prompt_token_ids)
    return {
        "model_call_id": call.model_call_id,
        "parent_call_id": call.parent_call_id,
        "num_prompt_tokens": len(call.prompt_token_ids),
        "num_shared_tokens": shared,
        "new_prompt_token_ids": call.prompt_token_ids[shared:],
        "completion_token_ids": call.completion_token_ids,
        "logprobs": call.logprobs,
        "finish_reason": call.finish_reason,
        "weight_version": call.weight_version,
        "output_versions": call.output_versions,
        "routes_digest": call.sampled_routes_digest,
    }


def _stream(call: ModelCall) -> np.ndarray:
    return np.concatenate([call.prompt_token_ids, call.completion_token_ids])


def _common_prefix(a: np.ndarray, b: np.ndarray) -> int:
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if len(differ) else n


def _read_call(stored: Mapping[str, Any], *, trial_id: str, before: ModelCall | None) -> ModelCall | None:
    """A call as it was captured, but for its routes; None when its prompt was not stored, as in older runs."""
    if stored.get("new_prompt_token_ids") is None:
        return None
    new = np.array(stored["new_prompt_token_ids"], dtype=np.int32)
    shared = stored["num_shared_tokens"]
    return ModelCall(
        model_call_id=stored["model_call_id"],
        rollout_id=trial_id,
        parent_call_id=stored["parent_call_id"],
        prompt_token_ids=np.concatenate([_stream(before)[:shared], new]) if before is not None else new,
        completion_token_ids=np.array(stored["completion_token_ids"], dtype=np.int32),
        logprobs=np.array(stored["logprobs"], dtype=np.float32),
        finish_reason=stored["finish_reason"],
        weight_version=stored["weight_version"],
        output_versions=np.array(stored["output_versions"], dtype=np.int32),
        routed_experts=None,
        routed_experts_start=0,
    )


def _test(test: TestResult) -> dict[str, Any]:
    return {
        "name": test.name,
        "status": str(test.status),
        "duration_s": test.duration_s,
        "message": _text(test.message),
    }


def _text(text: str) -> str:
    """The text with lone surrogates (bytes that were no UTF-8) spelled out: parquet refuses them."""
    return text.encode("utf-8", "backslashreplace").decode()
