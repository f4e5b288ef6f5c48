"""Numbers of token and routing fidelity in the form of the quoted ones."""

import math

import numpy as np
import pandas as pd


def audit_shares(metrics: pd.DataFrame) -> dict[str, float]:
    """Percent over all trained steps: boundaries between turns that are strict, and retokenised; positions that are
    placeholders; drift in the loss region; trained tokens that were delivered. `boundaries` is how many there were.
    """
    boundaries = metrics["rollout/accepted"] * (metrics["rollout/turns_mean"] - 1)
    weights = {
        "strict": ("tito/relation/strict", boundaries),
        "retokenized": ("tito/relation/retokenized", boundaries),
        "placeholder": ("tito/placeholder_frac", metrics["train/tokens"]),
        "drift": ("tito/drift_frac", metrics["train/loss_tokens"]),
        "delivered": ("tito/delivered_token_frac", metrics["train/loss_tokens"]),
    }
    shares = {
        name: 100 * float((metrics[column] * weight).sum() / weight.sum())
        for name, (column, weight) in weights.items()
    }
    return shares | {"boundaries": float(boundaries.sum())}


def gap_adds_up(gap: float, *, tokens: np.ndarray) -> pd.DataFrame:
    """tokens, coherent, independent: the sum of so many gaps of mean size `gap`, and the standard deviation of their
    sum with independent signs (all gaps alike: gap sqrt(n))."""
    return pd.DataFrame({"tokens": tokens, "coherent": gap * tokens, "independent": gap * np.sqrt(tokens)})


def route_sizes(
    *, layers: int, experts: int, topk: int, packed_bytes: float, quoted_bytes: float
) -> pd.DataFrame:
    """encoding, bytes, kind: a token's routes as quoted, as unsigned bytes, as t1core packs them (measured), and the
    least that any code takes for sets drawn evenly, log2 C(experts, topk) bits a layer."""
    least = layers * math.log2(math.comb(experts, topk)) / 8
    rows = [
        ("int32", quoted_bytes, "quoted"),
        ("one byte an id", float(layers * topk), "computed"),
        ("packed", packed_bytes, "measured"),
        ("the least possible", least, "computed"),
    ]
    return pd.DataFrame(rows, columns=["encoding", "bytes", "kind"])
