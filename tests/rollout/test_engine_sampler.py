"""The sampler against probabilities worked out by hand."""

import numpy as np
import torch

from t1core.records import SamplingParams
from t1core.rollout.embedded.sampler import request_key, sample, uniforms


def draw(probs, n, **params):
    """Token counts of n requests over one distribution, and the log-probs that were reported."""
    logits = torch.log(torch.tensor(probs)).repeat(n, 1)
    keys = np.array([request_key(0, f"r{i}") for i in range(n)], dtype=np.uint64)
    one = SamplingParams(max_new_tokens=1, **params)
    ids, logprobs = sample(logits, params=[one] * n, draws=uniforms(keys, positions=np.full(n, 7)))
    return np.bincount(ids, minlength=len(probs)) / n, ids, logprobs


def test_draws_are_uniform_over_requests_and_over_positions():
    keys = np.array([request_key(3, f"r{i}") for i in range(20_000)], dtype=np.uint64)
    over_requests = uniforms(keys, positions=np.zeros(20_000, dtype=np.int64))
    over_positions = uniforms(np.repeat(keys[:1], 20_000), positions=np.arange(20_000))
    for numbers in (over_requests, over_positions):
        counts = np.histogram(numbers, bins=20, range=(0, 1))[0]
        assert ((counts - 1000) ** 2 / 1000).sum() < 43.8  # chi-square, 19 degrees of freedom, p = 0.001
        assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.03


def test_tokens_come_up_as_often_as_their_probability_and_never_at_probability_zero():
    freq, ids, logprobs = draw([0.5, 0.0, 0.3, 0.2], 20_000)
    np.testing.assert_allclose(freq, [0.5, 0.0, 0.3, 0.2], atol=0.012)
    np.testing.assert_allclose(logprobs, np.log([0.5, 1.0, 0.3, 0.2])[ids], atol=1e-6)


def test_temperature_reshapes_both_the_draws_and_the_reported_log_probs():
    freq, ids, logprobs = draw([0.8, 0.2], 20_000, temperature=2.0)
    tempered = np.sqrt([0.8, 0.2]) / np.sqrt([0.8, 0.2]).sum()  # 2/3, 1/3
    np.testing.assert_allclose(freq, tempered, atol=0.012)
    np.testing.assert_allclose(logprobs, np.log(tempered)[ids], atol=1e-6)


def test_truncation_changes_the_draws_but_not_the_reported_log_probs():
    probs = [0.4, 0.3, 0.2, 0.1]
    freq, ids, logprobs = draw(probs, 20_000, top_k=2)
    np.testing.assert_allclose(freq, [4 / 7, 3 / 7, 0, 0], atol=0.012)
    np.testing.assert_allclose(logprobs, np.log(probs)[ids], atol=1e-6)
    freq, _, _ = draw(probs, 20_000, top_p=0.75)  # the third token is needed to reach 0.75
    np.testing.assert_allclose(freq, [4 / 9, 3 / 9, 2 / 9, 0], atol=0.012)
