"""A run made small enough for git: it opens as a run, with its metrics, trials and tests, and a few trials whole.

Left out are the tokens, checkpoints and logs, and of all but the trials named the turns; no trial keeps its calls.
What a figure is drawn from stays as it was, to the bit.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from t1core.store import trial_table
from t1core.store.atomic import write_atomic
from t1core.store.documents import write_document
from t1core.store.run import Run, write_frame

LARGEST_BYTES = 2**20
_JOURNALS = ("survival.jsonl", "scores.jsonl", "status.json")


def keep_run(source: Run, target: Path, *, whole: Sequence[str] = ()) -> int:
    """Write the small copy of a run that has ended into the new directory `target`; returns its bytes.

    `whole` names the trials that keep their turns. Absolute paths in the config keep their last part. ValueError for a
    run that goes on, a target that exists, an unknown trial, and a copy above `LARGEST_BYTES`, which is not left
    behind.
    """
    if not source.status().state.is_final:
        raise ValueError(f"run {source.path} is {source.status().state}: keep it when it has ended")
    if target.exists():
        raise ValueError(f"{target} exists: choose another name, or remove it first")
    unknown = set(whole) - set(source.trials()["trial_id"])
    if unknown:
        raise ValueError(f"run {source.path} has no trial {', '.join(sorted(unknown))}")
    partial = target.with_name(f".{target.name}")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "trajectories").mkdir(parents=True)
    write_document(partial / "config.json", "config", _without_places(source.config()))
    write_document(partial / "provenance.json", "provenance", source.provenance())
    write_frame(partial / "metrics.parquet", source.metrics_long())
    for name in _JOURNALS:
        if (source.path / name).exists():
            write_atomic(partial / name, [(source.path / name).read_bytes()])
    for kind in ("train", "eval"):
        if files := source.trial_files(kind):
            trial_table.write_small(partial / "trajectories" / f"{kind}_0000.parquet", files, whole=whole)
    size = sum(path.stat().st_size for path in partial.rglob("*") if path.is_file())
    if size > LARGEST_BYTES:
        shutil.rmtree(partial)
        raise ValueError(
            f"run {source.path} takes {size:,} bytes when kept, and {LARGEST_BYTES:,} is the most: name fewer whole "
            "trials"
        )
    partial.rename(target)
    return size


def _without_places(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with absolute paths cut down to their last part: where a machine kept things is nobody's business."""
    told: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            told[name] = _without_places(value)
        else:
            told[name] = PurePath(value).name if isinstance(value, str) and value.startswith("/") else value
    return told
