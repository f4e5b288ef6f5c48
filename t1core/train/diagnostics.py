"""Metrics of a batch from its global per-token streams. All ranks have the same, so nothing is reduced."""

from dataclasses import asdict

import numpy as np
import torch

from t1core.rl import (
    conditional_mean_predictor,
    explained_variance,
    logprob_gap,
    r_squared,
    value_bias,
    value_moments,
)
from t1core.train.streams import BatchStreams


def value_metrics(
    values: torch.Tensor, *, returns: torch.Tensor, streams: BatchStreams, num_tests: np.ndarray
) -> dict[str, float]:
    """How well the values before the update predict the returns, over trainable tokens of the batch.

    `ev_num_tests_baseline` is the EV of a predictor that knows only a row's number of tests: the mean reward
    of the other rows with that number, weighted by their tokens (leave-one-out, so that it has not seen the
    row's own reward any more than the critic has). `ev_quartile/q` restricts to the q-th quarter of each
    row's turns: turn i of n, counted from 0, is in quarter 4 i // n, so a row of one turn has the first alone.
    """
    mask, rows = streams.mask, streams.rows
    moments = value_moments(values, returns=returns, mask=mask)
    counts = torch.zeros(streams.num_rows, device=mask.device).index_add_(0, rows, mask.float())
    baseline = conditional_mean_predictor(
        streams.rewards,
        groups=torch.as_tensor(num_tests, device=mask.device),
        weights=counts,
        leave_one_out=True,
    )
    metrics = {
        "critic/explained_variance": explained_variance(moments),
        "critic/r2": r_squared(moments),
        "critic/value_bias": value_bias(moments),
        "critic/ev_num_tests_baseline": explained_variance(
            value_moments(baseline[rows], returns=returns, mask=mask)
        ),
    }
    quarter = _quarter_of_turns(mask, rows=rows, num_rows=streams.num_rows)
    for q in range(4):
        part = value_moments(values, returns=returns, mask=mask & (quarter == q))
        metrics[f"critic/ev_quartile/{q + 1}"] = explained_variance(part)
    return metrics


def gap_metrics(trainer_logprobs: torch.Tensor, *, streams: BatchStreams, area: str) -> dict[str, float]:
    """The train-inference gap under `area` (`logprob_gap` or `logprob_gap_free`)."""
    gap = logprob_gap(trainer_logprobs, rollout_logprobs=streams.rollout_logprobs, mask=streams.mask)
    return {f"{area}/{name}": float(value) for name, value in asdict(gap).items()}


def gap_parts(
    behaviour: torch.Tensor,
    *,
    streams: BatchStreams,
    free: torch.Tensor | None,
    live: torch.Tensor | None,
    replayed: bool,
) -> dict[str, float]:
    """What the log-prob gap is made of, token by token (T1 eqs. 24-25), as far as the parts were scored.

    live - rollout = (live - behaviour)     policy_move, legitimate
                   + (behaviour - rollout)  with replay: kernel, the residue of two numerical implementations
    free - rollout = (free - behaviour)     routing: what free routing adds
                   + (behaviour - rollout)  kernel
    Without replay routing and kernel come as one part. Token drift is no part of it: the trained ids are the sampled
    ids, which the audit of every step shows (`tito/drift_frac`).
    """
    pairs = {"kernel" if replayed else "routing_and_kernel": (behaviour, streams.rollout_logprobs)}
    if free is not None:
        pairs["routing"] = (free, behaviour)
    if live is not None:
        pairs["policy_move"] = (live, behaviour)
        pairs["total"] = (live, streams.rollout_logprobs)
    metrics = {}
    for name, (ours, theirs) in pairs.items():
        gap = logprob_gap(ours, rollout_logprobs=theirs, mask=streams.mask)
        metrics[f"logprob_gap_part/{name}/mean"] = gap.mean
        metrics[f"logprob_gap_part/{name}/abs_mean"] = gap.abs_mean
    return metrics


def _quarter_of_turns(mask: torch.Tensor, *, rows: torch.Tensor, num_rows: int) -> torch.Tensor:
    """0..3 for each token by its turn among its row's turns; int64 [T], any where masked. A turn is a run of trainable
    tokens: what the terminal answered lies between two."""
    opens = mask.clone()
    opens[1:] &= ~mask[:-1] | (rows[1:] != rows[:-1])
    turns = torch.zeros(num_rows, dtype=torch.int64, device=mask.device).index_add_(0, rows, opens.long())
    before_row = turns.cumsum(0) - turns
    turn = opens.long().cumsum(0) - 1 - before_row[rows]
    return 4 * turn // turns.clamp(min=1)[rows]
