"""A step's tokens: the batch that was trained, and what the trainer computed for each of its tokens."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from t1core.records import Batch, PrefixRelation, RowStatus, TrainingRow, TurnSpan
from t1core.store.packed_routes import pack, unpack
from t1core.store.tensors import read_tensors, write_tensors

_BATCH = ("tokens", "cu_seqlens", "loss_mask", "rollout_log_probs", "weight_versions", "rewards", "num_tests")
_SPANS = ("span_row", "span_start", "span_end")
_OPTIONAL = ("groups",)
_PACKED, _SHAPE = "routed_experts_packed", "routed_experts_shape"
_RESERVED = (*_BATCH, *_SPANS, *_OPTIONAL, "routed_experts", _PACKED)
# Defined at sampled tokens only; elsewhere the arrays hold filler that must not be read as a number.
_SAMPLED_ONLY = ("trainer_logprobs", "free_logprobs", "advantages", "returns", "flipped_layers")


def write_tokens(
    path: Path,
    batch: Batch,
    *,
    per_token: Mapping[str, np.ndarray],
    spans: Sequence[Sequence[TurnSpan]] = (),
    pack_routes: bool = False,
) -> None:
    """The batch's arrays, `per_token` arrays [T] aligned with `batch.tokens`, and the rows' turn spans.

    `pack_routes` stores routes as `packed_routes` does, which takes records of 8 experts a set.
    """
    for name, array in per_token.items():
        assert name not in _RESERVED, f"{name} is the name of one of the batch's own arrays"
        assert array.shape == (batch.num_tokens,), f"{name}: {array.shape}, expected ({batch.num_tokens},)"
    assert not spans or len(spans) == len(batch), "give spans for every row of the batch or for none"
    arrays = {name: getattr(batch, name) for name in _BATCH} | dict(per_token)
    if batch.routed_experts is not None:
        arrays |= (
            {_PACKED: pack(batch.routed_experts)} if pack_routes else {"routed_experts": batch.routed_experts}
        )
    arrays |= {name: array for name in _OPTIONAL if (array := getattr(batch, name)) is not None}
    flat = [(row, span) for row, row_spans in enumerate(spans) for span in row_spans]
    arrays["span_row"] = np.array([row for row, _ in flat], dtype=np.int32)
    arrays["span_start"] = np.array([span.start for _, span in flat], dtype=np.int32)
    arrays["span_end"] = np.array([span.end for _, span in flat], dtype=np.int32)
    metadata = {
        "step": str(batch.step),
        "rollout_ids": json.dumps(batch.rollout_ids),
        "span_calls": json.dumps([span.model_call_id for _, span in flat]),
        "span_relations": json.dumps([str(span.relation) for _, span in flat]),
    }
    if _PACKED in arrays:
        assert batch.routed_experts is not None
        metadata[_SHAPE] = json.dumps(batch.routed_experts.shape)
    write_tensors(path, arrays, metadata=metadata)


def read_batch(path: Path, *, with_routes: bool = True) -> tuple[Batch, dict[str, np.ndarray]]:
    """(batch, per-token arrays), views of the mapped file; routes that were packed are unpacked into memory."""
    arrays, metadata = read_tensors(path)
    routes = arrays.get("routed_experts") if with_routes else None
    if with_routes and _PACKED in arrays:
        routes = unpack(arrays[_PACKED], shape=tuple(json.loads(metadata[_SHAPE])))
    batch = Batch(
        step=int(metadata["step"]),
        rollout_ids=tuple(json.loads(metadata["rollout_ids"])),
        routed_experts=routes,
        **{name: arrays[name] for name in _BATCH},
        **{name: arrays.get(name) for name in _OPTIONAL},
    )
    return batch, {name: array for name, array in arrays.items() if name not in _RESERVED}


def read_spans(path: Path) -> list[list[TurnSpan]]:
    """The turn spans of each row; empty where they were not stored."""
    arrays, metadata = read_tensors(path)
    spans: list[list[TurnSpan]] = [[] for _ in json.loads(metadata["rollout_ids"])]
    names, relations = json.loads(metadata["span_calls"]), json.loads(metadata["span_relations"])
    places = zip(*(arrays[name].tolist() for name in _SPANS), strict=True)
    for (row, start, end), name, relation in zip(places, names, relations, strict=True):
        spans[row].append(TurnSpan(name, start, end, PrefixRelation(relation)))
    return spans


def read_rows(path: Path, *, completed: Collection[str]) -> tuple[TrainingRow, ...]:
    """The batch's rows, as views of the mapped file; those of trials in `completed` have that status, others are
    truncated. A row's response begins with its first span. ValueError where spans were not stored.
    """
    batch, _ = read_batch(path)
    spans = read_spans(path)
    if not all(spans):
        raise ValueError(f"{path} holds rows without turn spans; what they trained can't be told apart")
    rows, chunks = [], Counter[str]()
    for i, rollout_id in enumerate(batch.rollout_ids):
        here = slice(batch.cu_seqlens[i], batch.cu_seqlens[i + 1])
        row = TrainingRow(
            rollout_id=rollout_id,
            chunk=chunks[rollout_id],
            tokens=batch.tokens[here],
            response_length=int(here.stop - here.start) - spans[i][0].start,
            loss_mask=batch.loss_mask[here],
            rollout_log_probs=batch.rollout_log_probs[here],
            rollout_routed_experts=None if batch.routed_experts is None else batch.routes(i),
            weight_versions=batch.weight_versions[here],
            reward=float(batch.rewards[i]),
            status=RowStatus.COMPLETED if rollout_id in completed else RowStatus.TRUNCATED,
            spans=tuple(spans[i]),
        )
        chunks[rollout_id] += 1
        rows.append(row)
    return tuple(rows)


def read_token_frame(path: Path, *, trial_id: str | None = None) -> pd.DataFrame:
    """One row a token: row, rollout_id, position, token_id, sampled, turn, model_call_id, rollout_logprob,
    weight_version, and the trainer's arrays by name.

    `turn` counts the sampled spans of a row from 0 and is -1 elsewhere; `model_call_id` is missing elsewhere,
    and throughout where the spans were not stored. Numbers that exist at sampled tokens only are NaN
    elsewhere. With `trial_id`, only that trial's rows. KeyError if the step didn't train it.
    """
    batch, per_token = read_batch(path, with_routes=False)
    arrays, metadata = read_tensors(path)
    rows = [row for row, rollout in enumerate(batch.rollout_ids) if trial_id in (None, rollout)]
    if trial_id is not None and not rows:
        raise KeyError(f"trial {trial_id!r} is not in the batch of {path.name}")
    lengths = batch.lengths()[rows]
    starts = batch.cu_seqlens[:-1][rows]
    index = np.concatenate(
        [np.arange(start, start + size) for start, size in zip(starts, lengths, strict=True)]
    )
    sampled = batch.loss_mask[index].astype(bool)
    turns = _turn_of_token(batch, arrays)[index]
    columns = {
        "row": np.repeat(rows, lengths),
        "rollout_id": pd.Categorical(batch.rollout_ids).take(np.repeat(rows, lengths)),
        "position": index - np.repeat(starts, lengths),
        "token_id": batch.tokens[index],
        "sampled": sampled,
        "turn": turns,
        "model_call_id": _calls(arrays, metadata, rows=np.repeat(rows, lengths), turns=turns),
        "rollout_logprob": np.where(sampled, batch.rollout_log_probs[index], np.nan),
        "weight_version": batch.weight_versions[index],
    }
    for name, array in per_token.items():
        columns[name] = np.where(sampled, array[index], np.nan) if name in _SAMPLED_ONLY else array[index]
    return pd.DataFrame(columns)


def _turn_of_token(batch: Batch, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """int32 [T]: which sampled span of its row a token belongs to, by the spans or else by the mask's edges."""
    turns = np.full(batch.num_tokens, -1, dtype=np.int32)
    if len(arrays["span_row"]):
        counts = [0] * len(batch)
        for row, start, end in zip(*(arrays[name].tolist() for name in _SPANS), strict=True):
            first = int(batch.cu_seqlens[row])
            turns[first + start : first + end] = counts[row]
            counts[row] += 1
        return turns
    for row in range(len(batch)):
        first, last = batch.cu_seqlens[row], batch.cu_seqlens[row + 1]
        mask = batch.loss_mask[first:last].astype(bool)
        opens = mask & ~np.concatenate([[False], mask[:-1]])
        turns[first:last] = np.where(mask, np.cumsum(opens) - 1, -1)
    return turns


def _calls(
    arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str], *, rows: np.ndarray, turns: np.ndarray
) -> pd.Categorical:
    """The model call that sampled each token, by its row and turn; missing where there is none."""
    names = json.loads(metadata["span_calls"])
    if not names:
        return pd.Categorical.from_codes(np.full(len(rows), -1), pd.Index([], dtype="str"))
    # Spans are stored row by row in turn order, so a span's place is its row's first span plus the turn.
    places = np.searchsorted(arrays["span_row"], rows) + turns
    return pd.Categorical(names).take(np.where(turns >= 0, places, -1), allow_fill=True)
