"""Sampling: one uniform number a token, drawn from a counter, so that a request's draws don't depend on its
neighbours.
"""

import hashlib

import numpy as np
import torch

from t1core.records import SamplingParams


def request_key(seed: int, request_id: str = "") -> int:
    """The 64-bit key of a request's draws. A request with a sampling seed of its own leaves its id out."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{request_id}".encode(), digest_size=8).digest(), "little")


def uniforms(keys: np.ndarray, *, positions: np.ndarray) -> np.ndarray:
    """One number in (0, 1) a (key, position) pair: the splitmix64 finaliser over key + position * golden
    ratio.

    keys: uint64 [n]. positions: int [n]. Returns float64 [n] on a grid of 2^-48: fine enough for any
    vocabulary, and coarse enough that u * total can't round up to total.
    """
    with np.errstate(over="ignore"):
        z = keys + (positions.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(16)).astype(np.float64) + 0.5) * 2.0**-48


def sample(
    logits: torch.Tensor, *, params: list[SamplingParams], draws: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sample one token a row by inverting the cumulative distribution.

    logits: float32 [n, vocab]. draws: float64 [n] in (0, 1).
    Returns ids int32 [n] and their log-probs float32 [n]: log_softmax(logits / temperature) before
    truncation; a greedy row (temperature 0) takes the largest logit and reports temperature 1.
    """
    temperatures = [p.temperature if p.temperature > 0 else 1.0 for p in params]
    if any(t != 1.0 for t in temperatures):
        logits = logits / torch.tensor(temperatures)[:, None]
    logprobs = torch.log_softmax(logits, dim=-1)
    probs = logprobs.double().exp()
    for row, p in enumerate(params):
        if p.temperature == 0:
            probs[row] = 0.0
            probs[row, int(logits[row].argmax())] = 1.0
        elif p.top_k > 0 or p.top_p < 1.0:
            probs[row] = _truncated(probs[row], top_k=p.top_k, top_p=p.top_p)
    cdf = probs.cumsum(dim=-1)
    targets = torch.from_numpy(draws)[:, None] * cdf[:, -1:]
    ids = (cdf <= targets).sum(dim=-1)
    return ids.numpy().astype(np.int32), logprobs.gather(1, ids[:, None])[:, 0].numpy()


def _truncated(probs: torch.Tensor, *, top_k: int, top_p: float) -> torch.Tensor:
    """Zero all but the `top_k` largest (if positive), then all but the smallest set of mass `top_p`; not
    renormalised.
    """
    ordered, index = probs.sort(descending=True)
    if top_k > 0:
        ordered[top_k:] = 0.0
    mass_before = ordered.cumsum(0) - ordered
    ordered[mass_before >= top_p * ordered.sum()] = 0.0
    return torch.zeros_like(probs).scatter_(0, index, ordered)
