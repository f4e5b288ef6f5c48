"""A run: one directory, one writer, any number of readers. All files are versioned and written atomically:

<root>/<campaign>/<run>/
  config.json provenance.json status.json   what was asked, of which code, how far it is
  plan.json                                 what it was started from, for a later attempt
  parts.json                                what its processes found themselves to be: kernels, versions
  metrics.jsonl metrics.parquet             live, a line a record; at close, in long form
  trajectories/{train,eval}_NNNN.parquet    a row a trial, turns and tests nested
  tokens/step_NNNN.safetensors              the trained batch and the trainer's per-token arrays
  live.json                                 trials in flight, a moment ago
  failures.jsonl failures.parquet           everything that broke and was not the model's doing
  survival.jsonl                            which trials a step kept, by family and predicted length
  scores.jsonl                              what evaluations found, and how it was measured
  vocabulary.json                           the text of each token id
  checkpoints/ logs/attempt_N/ notebooks/ figures/
"""

import contextlib
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from t1core.metrics import check_names
from t1core.records import Batch, Failure, Score, StopReason, TrainingRow, Trajectory, TrialInFlight, TurnSpan
from t1core.store import token_file, trial_table
from t1core.store.atomic import DiskFull, drop_torn_line, write_atomic
from t1core.store.documents import read_document, write_document
from t1core.store.journal import append_entry, encode_number, read_entries
from t1core.store.live import write_live
from t1core.store.schema import SCHEMA_VERSION, check_version
from t1core.store.setting_aside import JOURNALS, Standing, set_aside
from t1core.store.status import RunState, Status, new_status, read_status, write_status
from t1core.store.tail import MetricRow, Update, follow, read_metric_rows
from t1core.store.trial_table import StoredTrial

_FOLDERS = ("trajectories", "tokens", "checkpoints", "logs", "notebooks", "figures")
_KINDS = ("train", "eval")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")
_FAILURE_COLUMNS = ("step", "trial_id", "boundary", "kind", "message", "retryable", "time")
_SURVIVAL_COLUMNS = (
    "step", "family", "length", "kept", "cut", "surplus", "continued", "kept_share", "weight",
)  # fmt: skip
# Freed when the run ends, so that the last status fits on a disk that the run has filled.
_RESERVE_BYTES = 256 * 1024


class RunBusy(ValueError):
    """Another living process writes this run."""


class Run:
    """A run directory. `Run.create` and `Run.resume` give a writer, `Run.open` a reader.

    As a context manager a writer ends with the block: finished, interrupted (KeyboardInterrupt) or failed.
    """

    def __init__(self, path: Path, *, lock: int | None = None) -> None:
        self.path = path
        self._lock = lock
        self._written: set[Path] = set()

    # ---- begin and end

    @classmethod
    def create(
        cls,
        root: Path | str,
        *,
        campaign: str,
        run_name: str,
        config: Mapping[str, Any],
        provenance: Mapping[str, Any],
        num_steps: int | None = None,
        plan: Mapping[str, Any] | None = None,
    ) -> Self:
        """A new run, whole or not at all. `plan`: what, beside the configuration, a later attempt needs to go on,
        mostly paths of what was prepared. ValueError if the name is no plain file name or the run exists.
        """
        for field, name in (("campaign", campaign), ("run_name", run_name)):
            if not _NAME.fullmatch(name):
                raise ValueError(
                    f"{field} {name!r}: use letters, digits, '_', '.', '-', the first no punctuation"
                )
        path = Path(root).resolve() / campaign / run_name
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise ValueError(
                f"run {path} exists: choose another run name, or resume it with Run.resume"
            ) from None
        run = cls(path, lock=_take_lock(path))
        try:
            run._write_document("config.json", "config", config)
            run._write_document("provenance.json", "provenance", provenance)
            if plan is not None:
                run._write_document("plan.json", "plan", plan)
            for folder in _FOLDERS:
                (path / folder).mkdir()
            write_atomic(path / ".reserve", [bytes(_RESERVE_BYTES)])
            (path / "logs" / "attempt_1").mkdir()
            write_status(path / "status.json", new_status(attempt=1, num_steps=num_steps))
        except BaseException:  # half a run is none
            shutil.rmtree(path, ignore_errors=True)
            os.close(run._lock)
            raise
        return run

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """A reader, which never disturbs a writer. ValueError if this is no run, NewerSchema if it is too
        new.
        """
        path = Path(path).resolve()
        if not (path / "config.json").is_file():
            raise ValueError(
                f"{path} is no run directory: it has no config.json. Runs lie at <root>/<campaign>/<run>"
            )
        run = cls(path)
        run.config()
        return run

    @classmethod
    def resume(cls, path: Path | str) -> Self:
        """A writer on an existing run, as its next attempt. RunBusy while another process writes it."""
        run = cls.open(path)
        run._lock = _take_lock(run.path)
        for journal in JOURNALS:
            drop_torn_line(run.path / journal)
        for partial in run.path.rglob(".*.tmp"):  # of a writer that was killed in mid-write
            partial.unlink()
        write_atomic(run.path / ".reserve", [bytes(_RESERVE_BYTES)])
        before = run.status()
        attempt = before.attempt + 1
        (run.path / "logs" / f"attempt_{attempt}").mkdir(parents=True, exist_ok=True)
        status = new_status(attempt=attempt, step=before.step, num_steps=before.num_steps)
        write_status(run.path / "status.json", status)
        return run

    def close(
        self, state: RunState = RunState.FINISHED, *, error: str | None = None, failure: Failure | None = None
    ) -> None:
        """End the run: write the final status, export metrics and failures to parquet, let go of the lock.

        `failure` is what broke the run as a whole, for the failure journal. A run that did not finish says so
        before anything else is written, in the room of the reserve; a run whose exports fail has failed, and
        their error is raised.
        """
        assert state.is_final
        self._assert_writer()
        try:
            if state is not RunState.FINISHED:
                self._free_reserve()
                self.update_status(state=state, error=error)
            try:
                if failure is not None:
                    self.record_failure(failure, step=self.status().step)
                write_frame(self.path / "metrics.parquet", self.metrics_long())
                write_frame(self.path / "failures.parquet", self.failures())
            except BaseException as broken:
                self._free_reserve()
                told = f"closing the run: {type(broken).__name__}: {broken}"
                # Others may have taken the room; what broke is raised all the same.
                with contextlib.suppress(DiskFull):
                    self.update_status(state=RunState.FAILED, error=f"{error}; {told}" if error else told)
                raise
            self._free_reserve()
            if state is RunState.FINISHED:
                self.update_status(state=state, error=error)
        finally:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        self._assert_writer()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is None:
            return
        if error is None:
            self.close()
        elif isinstance(error, KeyboardInterrupt):
            self.close(RunState.INTERRUPTED, error="interrupted")
        else:
            self.close(RunState.FAILED, error=f"{type(error).__name__}: {error}")

    # ---- write

    def update_status(self, **changes: Any) -> None:
        """Change fields of the status (state, step, phase, error, num_steps) and beat the heart. Atomic."""
        self._assert_writer()
        status = replace(self.status(), **changes, heartbeat=time.time())
        write_status(self.path / "status.json", status)

    def record_metrics(self, values: Mapping[str, float], *, step: int, kind: str = "train") -> None:
        """Append metrics of a step. ValueError for a name that t1core.metrics doesn't define."""
        self._assert_writer()
        assert kind in _KINDS
        check_names(values)
        encoded = {name: encode_number(value) for name, value in values.items()}
        entry = {"step": int(step), "kind": kind, "time": time.time(), "values": encoded}
        append_entry(self.path / "metrics.jsonl", entry)

    def record_trajectories(
        self,
        trajectories: Sequence[Trajectory],
        *,
        step: int,
        kind: str = "train",
        outcomes: Mapping[str, str] | None = None,
    ) -> None:
        """Write all trials of a step, whatever became of them; their failures enter the failure journal too.

        `outcomes`, by trial id, say what the trial itself can't know: surplus, or held back for another
        reason.

        Once a step and kind; a resumed run that repeats the step replaces what the earlier attempt wrote.
        """
        self._assert_writer()
        assert kind in _KINDS
        path = self._claim(self._trial_path(kind, step))
        trial_table.write_trials(path, trajectories, kind=kind, outcomes=outcomes or {})
        for trajectory in trajectories:
            if trajectory.failure is not None:
                self.record_failure(trajectory.failure, step=step, trial_id=trajectory.trial_id)

    def record_failure(self, failure: Failure, *, step: int, trial_id: str = "") -> None:
        """Append what broke; without a trial id, something larger than a trial, such as an engine."""
        self._assert_writer()
        entry = {"step": int(step), "trial_id": trial_id, **asdict(failure), "time": time.time()}
        append_entry(self.path / "failures.jsonl", entry)

    def record_tokens(
        self,
        batch: Batch,
        *,
        per_token: Mapping[str, np.ndarray],
        spans: Sequence[Sequence[TurnSpan]] = (),
        pack_routes: bool = False,
    ) -> None:
        """Write the trained batch of `batch.step` and the trainer's arrays [T]: values, advantages, returns,
        trainer_logprobs, free_logprobs, flipped_layers. `spans` are the rows' turn spans; without them the loss mask
        tells turns.
        """
        self._assert_writer()
        path = self._claim(self._token_path(batch.step))
        token_file.write_tokens(path, batch, per_token=per_token, spans=spans, pack_routes=pack_routes)

    def record_survival(self, cells: Sequence[Mapping[str, Any]], *, step: int) -> None:
        """Append the step's table of kept and lost trials: a row a family and predicted length."""
        self._assert_writer()
        rows = [
            {key: encode_number(value) if isinstance(value, float) else value for key, value in cell.items()}
            for cell in cells
        ]
        append_entry(self.path / "survival.jsonl", {"step": int(step), "cells": rows})

    def record_score(self, score: Score) -> None:
        """Append what an evaluation found; once more for a split and step replaces what was there."""
        self._assert_writer()
        fields = {
            key: encode_number(value) if isinstance(value, float) else value
            for key, value in score.to_dict().items()
        }
        append_entry(self.path / "scores.jsonl", {"score": fields})

    def record_vocabulary(self, texts: Sequence[str]) -> None:
        """The text of each token id, so that readers show tokens without a tokenizer."""
        self._assert_writer()
        self._write_document("vocabulary.json", "texts", list(texts))

    def record_live(self, trials: Sequence[TrialInFlight]) -> None:
        """Where each trial in flight is now, in place of what was said before."""
        self._assert_writer()
        write_live(self.path / "live.json", trials)

    def record_parts(self, parts: Mapping[str, Any]) -> None:
        """What each part of the campaign found itself to be at its start, by its name: kernels, versions, sizes."""
        self._assert_writer()
        self._write_document("parts.json", "parts", parts)

    def record_attempt(self, provenance: Mapping[str, Any]) -> None:
        """The code and machine of a later attempt, beside its logs; the first's are the run's own."""
        self._assert_writer()
        write_document(self.logs / "provenance.json", "provenance", provenance)

    def set_aside(self, standing: Standing) -> Path | None:
        """Move what an earlier attempt recorded of later steps into that attempt's folder; None if there was nothing.

        Done once, after `Run.resume` and before anything else is written.
        """
        self._assert_writer()
        status = self.status()
        into = self.path / "logs" / f"attempt_{status.attempt - 1}" / "superseded"
        set_aside(self.path, standing, into=into)
        self.update_status(step=standing.trained)
        return into if into.exists() else None

    @property
    def logs(self) -> Path:
        """Folder for the log files of the current attempt."""
        return self.path / "logs" / f"attempt_{self.status().attempt}"

    def folder(self, name: str) -> Path:
        """checkpoints, notebooks or figures: what lies there is its owner's business."""
        assert name in ("checkpoints", "notebooks", "figures")
        return self.path / name

    # ---- read

    def config(self) -> dict[str, Any]:
        return self._read_document("config.json", "config")

    def provenance(self) -> dict[str, Any]:
        return self._read_document("provenance.json", "provenance")

    def parts(self) -> dict[str, Any]:
        """What `record_parts` kept; {} for a run that did not come so far, or of an older version."""
        if not (self.path / "parts.json").exists():
            return {}
        return self._read_document("parts.json", "parts")

    def plan(self) -> dict[str, Any]:
        """What the run was created with. ValueError for one of an older version, which kept none."""
        if not (self.path / "plan.json").exists():
            raise ValueError(f"{self.path} does not say what it was started from: it has no plan.json")
        return self._read_document("plan.json", "plan")

    def status(self) -> Status:
        return read_status(self.path / "status.json")

    def vocabulary(self) -> list[str] | None:
        """The text of each token id, or None if the run kept none."""
        exists = (self.path / "vocabulary.json").exists()
        return self._read_document("vocabulary.json", "texts") if exists else None

    def metrics_long(self) -> pd.DataFrame:
        """step, kind, name, value, time; one row a value, the last where a resumed run repeated a step."""
        journal = self.path / "metrics.jsonl"
        if not journal.exists() and (self.path / "metrics.parquet").exists():
            return _read_frame(self.path / "metrics.parquet")
        rows = [
            (row.step, row.kind, name, value, row.time)
            for row, _ in read_metric_rows(journal)
            for name, value in row.values.items()
        ]
        frame = pd.DataFrame(rows, columns=["step", "kind", "name", "value", "time"])
        frame = frame.astype(
            {"step": "int64", "kind": "str", "name": "str", "value": "float64", "time": "float64"}
        )
        return frame.drop_duplicates(["step", "kind", "name"], keep="last", ignore_index=True)

    def metrics(self, kind: str | None = None) -> pd.DataFrame:
        """Wide: a row a step, a column a metric, NaN where not recorded; `kind` keeps only train or eval."""
        frame = self.metrics_long()
        if kind is not None:
            frame = frame[frame["kind"] == kind]
        wide = frame.pivot_table(index="step", columns="name", values="value", aggfunc="last", dropna=False)
        return wide.rename_axis(columns=None).sort_index()

    def trials(self, kind: str | None = None) -> pd.DataFrame:
        """One row a trial: ids, outcome (see trial_table.trial_outcome), stop reason, reward, counts, times."""
        return trial_table.read_trials(self.trial_files(kind)).sort_values(
            ["step", "kind", "trial_id"], ignore_index=True
        )

    def trajectory(self, trial_id: str) -> StoredTrial:
        """All that is stored of one trial. KeyError if the run has no such trial."""
        trials = self.trials()
        found = trials[trials["trial_id"] == trial_id]
        if found.empty:
            raise KeyError(f"no trial {trial_id!r} in this run; run.trials() lists them")
        trial = found.iloc[0]
        path = self._token_path(int(trial["step"]))
        is_trained = (
            trial["kind"] == "train"
            and path.exists()
            and trial_id in self.batch(trial["step"])[0].rollout_ids
        )
        return StoredTrial(
            trial=trial,
            turns=self.turns(trial_id),
            tests=self.tests(trial_id),
            tokens=self.tokens(trial["step"], trial_id=trial_id) if is_trained else None,
            vocabulary=self.vocabulary(),
        )

    def turns(self, trial_id: str) -> pd.DataFrame:
        """One row a turn of the trial: response, commands, observation, screen, seconds since the start."""
        return self._nested("turns", trial_id)

    def calls(self, trial_id: str, *, step: int | None = None) -> pd.DataFrame:
        """One row a model call of the trial: sampled token ids, log-probs, finish reason, weight version. With the
        training `step` of the trial only that step's file is read.
        """
        paths = None if step is None else [self._trial_path("train", step)]
        return self._nested("calls", trial_id, paths=paths)

    def tests(self, trial_id: str) -> pd.DataFrame:
        """One row a test of the trial's grade: name, status, duration, message."""
        return self._nested("tests", trial_id)

    def all_tests(self, kind: str = "train") -> pd.DataFrame:
        """One row a test of every graded trial of a kind: trial_id, family, task_id, step, outcome, name, status."""
        return trial_table.read_tests(self.trial_files(kind))

    def token_steps(self) -> list[int]:
        """Steps whose tokens are stored, ascending."""
        return sorted(
            int(path.stem.split("_")[1]) for path in (self.path / "tokens").glob("step_*.safetensors")
        )

    def tokens(self, step: int, *, trial_id: str | None = None) -> pd.DataFrame:
        """One row a token of a trained batch; see token_file.read_token_frame for the columns."""
        return token_file.read_token_frame(self._stored_tokens(step), trial_id=trial_id)

    def batch(self, step: int) -> tuple[Batch, dict[str, np.ndarray]]:
        """The trained batch and the trainer's per-token arrays, as views of the file."""
        return token_file.read_batch(self._stored_tokens(step))

    def rows(self, step: int) -> tuple[TrainingRow, ...]:
        """The training rows of a trained batch, as views of the file; status by the trial's stop reason."""
        trials = self.trials("train")
        stopped = trials[trials["step"] == step].set_index("trial_id")["stop_reason"]
        completed = set(stopped[stopped == StopReason.COMPLETED].index)
        return token_file.read_rows(self._stored_tokens(step), completed=completed)

    def stored_calls(self, step: int, *, kind: str = "train") -> dict[str, list[trial_table.StoredCall]]:
        """The model calls of a step, prompts included, by trial id. ValueError for a run that kept no prompts."""
        assert kind in _KINDS
        return trial_table.read_calls(self._trial_path(kind, step))

    def failures(self) -> pd.DataFrame:
        """Everything that broke: step, trial_id, boundary, kind, message, retryable, time."""
        rows = [entry for entry, _ in read_entries(self.path / "failures.jsonl")]
        frame = pd.DataFrame(rows, columns=list(_FAILURE_COLUMNS))
        return frame.drop_duplicates(["step", "trial_id", "kind", "message"], keep="last", ignore_index=True)

    def metric_rows(self, *, offset: int = 0) -> Iterator[tuple[MetricRow, int]]:
        """(row, offset after it) for what was recorded together, from a byte offset of the journal on."""
        return read_metric_rows(self.path / "metrics.jsonl", offset=offset)

    def scores(self) -> list[Score]:
        """What evaluations found, by step and split."""
        found = {}
        for entry, _ in read_entries(self.path / "scores.jsonl"):
            fields = entry["score"]
            numbers = {name: float(fields[name]) for name in ("resolved", "dense", "resolved_se", "dense_se")}
            score = Score.from_dict(fields | numbers)
            found[score.step, score.split] = score
        return [found[key] for key in sorted(found)]

    def survival(self) -> pd.DataFrame:
        """One row a step, family and predicted length: trials kept, cut, surplus and continued, the estimated share
        that is kept, and the weight that would undo the selection. The last where a resumed run repeated a step.
        """
        rows = [
            {"step": entry["step"], **cell}
            for entry, _ in read_entries(self.path / "survival.jsonl")
            for cell in entry["cells"]
        ]
        frame = pd.DataFrame(rows, columns=list(_SURVIVAL_COLUMNS))
        frame = frame.astype({"kept_share": "float64", "weight": "float64"})
        return frame.drop_duplicates(["step", "family", "length"], keep="last", ignore_index=True)

    def follow(self, *, poll_s: float = 0.5) -> Iterator[Update]:
        """Updates while the run goes on; the last one carries the final status."""
        return follow(
            metrics=self.path / "metrics.jsonl",
            status=self.path / "status.json",
            live=self.path / "live.json",
            poll_s=poll_s,
        )

    # ---- within

    def _free_reserve(self) -> None:
        (self.path / ".reserve").unlink(missing_ok=True)

    def _assert_writer(self) -> None:
        assert self._lock is not None, "this Run is a reader, or was closed"

    def _claim(self, path: Path) -> Path:
        assert path not in self._written, f"{path.name} was written before by this process"
        self._written.add(path)
        return path

    def _token_path(self, step: int) -> Path:
        return self.path / "tokens" / f"step_{step:04d}.safetensors"

    def _stored_tokens(self, step: int) -> Path:
        path = self._token_path(step)
        if not path.exists():
            raise KeyError(f"no tokens of step {step}; stored steps: {self.token_steps()}")
        return path

    def _trial_path(self, kind: str, step: int) -> Path:
        return self.path / "trajectories" / f"{kind}_{step:04d}.parquet"

    def trial_files(self, kind: str | None = None) -> list[Path]:
        """The files that hold the trials of a kind, by step."""
        return sorted((self.path / "trajectories").glob(f"{kind or '*'}_*.parquet"))

    def _nested(self, part: str, trial_id: str, *, paths: Sequence[Path] | None = None) -> pd.DataFrame:
        rows = trial_table.read_nested(paths or self.trial_files(), part, trial_id=trial_id)
        return pd.DataFrame(rows, columns=trial_table.nested_columns(part))

    def _write_document(self, name: str, key: str, content: Any) -> None:
        write_document(self.path / name, key, content)

    def _read_document(self, name: str, key: str) -> Any:
        return read_document(self.path / name, key)


def find_runs(folder: Path | str, *, state: RunState | None = None) -> dict[str, Run]:
    """The runs below a folder by their path in it, sorted; with `state`, only those in it. ValueError if
    none.
    """
    folder = Path(folder).resolve()
    found = {str(path.parent.relative_to(folder)): Run.open(path.parent) for path in _run_files(folder)}
    kept = {name: run for name, run in found.items() if state in (None, run.status().state)}
    if not kept:
        raise ValueError(f"{folder}: {len(found)} runs, none {state}" if found else f"{folder} holds no run")
    return kept


def _run_files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("status.json")) if (path.parent / "config.json").exists()]


def _take_lock(path: Path) -> int:
    """A lock that the kernel drops with the process, so a killed writer never blocks the next attempt."""
    lock = os.open(path / ".writer", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise RunBusy(
            f"run {path} is being written by another process; watch it with Run.open(path).follow()"
        ) from None
    return lock


def write_frame(path: Path, frame: pd.DataFrame) -> None:
    """A frame as parquet with the schema's version, whole or not at all."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    table = table.replace_schema_metadata({"schema_version": str(SCHEMA_VERSION)})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    write_atomic(path, [sink.getvalue()])


def _read_frame(path: Path) -> pd.DataFrame:
    metadata = pq.read_schema(path).metadata or {}
    check_version(metadata.get(b"schema_version", b"").decode(), path=path)
    return pq.read_table(path).to_pandas()
