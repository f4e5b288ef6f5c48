"""A reply of /generate, checked and turned into a `Generation`.

Nothing is taken on trust: log-probs must name the ids they belong to, routing rows must be as many as the
tokens forwarded, each with distinct experts in range, and version spans must cover the output. A reply that
fails is an error, never a shorter sample.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t1core.records import Generation
from t1core.routing import canonical, compact, validate


class BadReply(RuntimeError):
    """The server answered something that can't be true; the sample can't be trained on."""


def read_generation(
    reply: Mapping[str, Any],
    *,
    num_prompt_tokens: int,
    routed_experts_start: int,
    num_layers: int,
    experts_per_token: int,
    num_experts: int,
    stop_token_ids: Sequence[int],
    weight_version: int,
) -> Generation:
    """`weight_version` is the version the request was sent under, used where the server gives no spans (<
    0.5.19).
    """
    meta = reply["meta_info"]
    reason = meta["finish_reason"] or {}
    kind = reason.get("type")
    if kind not in ("stop", "length", "abort"):
        raise BadReply(f"finish_reason {reason} is none of stop, length, abort")
    output_ids = np.asarray(reply.get("output_ids") or [], dtype=np.int32)
    is_unrecorded = "routed_experts" not in meta or meta["routed_experts"] is None
    if kind == "abort" and (len(output_ids) == 0 or is_unrecorded):
        # aborted while it waited: nothing that could be trained on came of it
        return never_started(routed_experts_start, weight_version=weight_version)
    if kind == "stop" and int(output_ids[-1]) not in stop_token_ids:
        raise BadReply(
            f"stopped at token {output_ids[-1]}, which is not among stop_token_ids {tuple(stop_token_ids)}"
        )
    if meta.get("prompt_tokens", num_prompt_tokens) != num_prompt_tokens:
        raise BadReply(f"the server saw {meta['prompt_tokens']} prompt tokens of {num_prompt_tokens}")
    versions = _versions(meta, num_output=len(output_ids), sent_under=weight_version)
    return Generation(
        output_ids=output_ids,
        output_logprobs=_logprobs(meta["output_token_logprobs"], output_ids=output_ids),
        routed_experts=_routes(
            meta.get("routed_experts"),
            num_tokens=num_prompt_tokens + len(output_ids) - routed_experts_start,
            num_layers=num_layers,
            experts_per_token=experts_per_token,
            num_experts=num_experts,
        ),
        routed_experts_start=routed_experts_start,
        finish_reason=kind,
        weight_version=int(versions[-1]),
        output_versions=versions,
        cached_tokens=int(meta.get("cached_tokens") or 0),
    )


def never_started(start: int, *, weight_version: int) -> Generation:
    """The answer of a request that was aborted before it began."""
    return Generation(
        output_ids=np.zeros(0, np.int32),
        output_logprobs=np.zeros(0, np.float32),
        routed_experts=None,
        routed_experts_start=start,
        finish_reason="abort",
        weight_version=weight_version,
        output_versions=np.zeros(0, np.int32),
        cached_tokens=0,
    )


def _logprobs(entries: Sequence[Sequence[Any]], *, output_ids: np.ndarray) -> np.ndarray:
    """entries: (log-prob, token id, text) an output token -> float32 [n]."""
    if [entry[1] for entry in entries] != output_ids.tolist():
        raise BadReply(f"log-probs of {len(entries)} tokens don't name the {len(output_ids)} output tokens")
    logprobs = np.array([entry[0] for entry in entries], dtype=np.float32)
    if not (np.isfinite(logprobs) & (logprobs <= 1e-6)).all():
        raise BadReply(f"log-probs span {logprobs.min()}..{logprobs.max()}; expected finite and at most 0")
    return logprobs


def _routes(
    encoded: str | None, *, num_tokens: int, num_layers: int, experts_per_token: int, num_experts: int
) -> np.ndarray:
    """base64 of little-endian int32 [num_tokens - 1, L, k] -> the canonical compact record."""
    if encoded is None:
        raise BadReply("no routed_experts in the reply; start the server with --enable-return-routed-experts")
    try:
        flat = np.frombuffer(base64.b64decode(encoded, validate=True), dtype="<i4")
    except (binascii.Error, ValueError) as error:
        raise BadReply(f"routed_experts can't be decoded: {error}") from error
    if flat.size != (num_tokens - 1) * num_layers * experts_per_token:
        raise BadReply(
            f"routed_experts holds {flat.size} ids; {num_tokens} tokens need {num_tokens - 1} rows of "
            f"{num_layers} x {experts_per_token}"
        )
    routes = canonical(flat.reshape(-1, num_layers, experts_per_token))
    try:
        validate(routes, num_tokens=num_tokens, num_experts=num_experts)
    except ValueError as error:
        raise BadReply(str(error)) from error
    return compact(routes, num_experts=num_experts)


def _versions(meta: Mapping[str, Any], *, num_output: int, sent_under: int) -> np.ndarray:
    """Spans [{version, start, end}] over the output tokens -> int32 [n]."""
    spans = meta.get("weight_versions")
    if not spans:
        return np.full(num_output, int(meta.get("weight_version", sent_under)), np.int32)
    versions = np.full(num_output, -1, np.int32)
    for span in spans:
        versions[span["start"] : span["end"]] = int(span["version"])
    if (versions < 0).any():
        raise BadReply(f"weight_versions {spans} leave some of {num_output} output tokens without a version")
    return versions
