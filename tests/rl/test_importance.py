"""Importance weights, row ratios, divergence masks and SAT against numbers worked by hand, and their properties."""

import math

import pytest
import torch

from t1core.rl import (
    adaptive_trust,
    banded,
    binary_divergence,
    effective_sample_frac,
    keeps_ipo,
    keeps_kl,
    keeps_tv,
    masked_importance,
    masked_policy_loss,
    policy_loss,
    row_log_ratio,
    token_ratio,
    truncated,
    vetoed,
)

NAN, INF = float("nan"), float("inf")
LN2 = math.log(2.0)
# Two rows: w = 2, 1/2, 4 and 8, 1; the last token of each is masked.
LOG_RATIO = torch.tensor([LN2, -LN2, 2 * LN2, NAN, 3 * LN2, 0.0, INF])
MASK = torch.tensor([1, 1, 1, 0, 1, 1, 0])
ROWS = torch.tensor([0, 0, 0, 0, 1, 1, 1])


def _weights(level, low=0.0, high=100.0, **kwargs):
    return masked_importance(
        LOG_RATIO,
        rollout_logprobs=torch.zeros(7),
        mask=MASK,
        rows=ROWS,
        num_rows=2,
        level=level,
        low=low,
        high=high,
        **kwargs,
    ).tolist()


def test_token_weights_are_the_ratio_of_probabilities_and_nothing_at_masked_tokens():
    ratio = token_ratio(LOG_RATIO, rollout_logprobs=torch.zeros(7), mask=MASK)
    assert ratio.tolist() == pytest.approx([2.0, 0.5, 4.0, 0.0, 8.0, 1.0, 0.0])
    assert truncated(ratio, low=0.75, high=2.0).tolist() == pytest.approx([2, 0.75, 2, 0, 2, 1, 0])
    assert banded(ratio, low=0.4, high=5.0).tolist() == pytest.approx([2, 0.5, 4, 0, 0, 1, 0])


def test_a_token_that_the_engine_gave_no_finite_log_prob_weighs_nothing():
    ratio = token_ratio(
        torch.tensor([-1.0, -1.0, -1.0]), rollout_logprobs=torch.tensor([NAN, -INF, -1.0]), mask=torch.ones(3)
    )
    assert ratio.tolist() == [0.0, 0.0, 1.0]


def test_the_three_levels_of_masked_importance_worked_by_hand():
    # Row one: product 2 * 1/2 * 4 = 4, geometric mean 4^(1/3). Row two: product 8, geometric mean 8^(1/2).
    assert _weights("token", low=0.6, high=5.0) == pytest.approx([2, 0, 4, 0, 0, 1, 0])
    assert _weights("sequence", low=0.5, high=5.0) == pytest.approx([4, 4, 4, 0, 0, 0, 0])
    third = 4 ** (1 / 3)
    assert _weights("geometric", low=0.5, high=2.0) == pytest.approx([third] * 3 + [0] * 4)


def test_the_veto_leaves_out_the_whole_row_of_one_improbable_token():
    assert _weights("token", veto=0.6) == pytest.approx([0, 0, 0, 0, 8, 1, 0])
    ratio = token_ratio(LOG_RATIO, rollout_logprobs=torch.zeros(7), mask=MASK)
    bad = vetoed(ratio, mask=MASK, rows=ROWS, num_rows=2, veto=0.6)
    assert bad.tolist() == [True] * 4 + [False] * 3


def test_normalised_weights_have_mean_one_over_loss_tokens():
    # Weights 2, 1/2, 4, 8, 1 add up to 15.5 over five tokens: divided by 3.1.
    got = _weights("token", normalize=True)
    assert got == pytest.approx([x / 3.1 for x in (2, 0.5, 4, 0, 8, 1, 0)])


def test_a_row_of_ten_thousand_tokens_does_not_overflow_the_product():
    got = masked_importance(
        torch.full((10_000,), 0.02), rollout_logprobs=torch.zeros(10_000), mask=torch.ones(10_000),
        rows=torch.zeros(10_000, dtype=torch.long), num_rows=1, level="sequence", low=0.5, high=2.0,
    )  # fmt: skip
    assert got.eq(0).all()


def test_effective_sample_size_is_whole_for_equal_weights_and_one_token_when_one_has_all():
    assert effective_sample_frac(
        torch.tensor([3.0, 3.0, 9.0]), mask=torch.tensor([1, 1, 0])
    ) == pytest.approx(1)
    assert effective_sample_frac(torch.tensor([5.0, 0.0, 0.0, 0.0]), mask=torch.ones(4)) == pytest.approx(
        0.25
    )
    assert math.isnan(effective_sample_frac(torch.zeros(2), mask=torch.ones(2)))


def test_gspo_gives_every_token_of_a_row_the_rows_geometric_ratio_and_its_gradient():
    # Log ratios 0.1, 0.3 in row one (mean 0.2) and -0.4 in row two; A = 1, 1, -2.
    logprobs = torch.tensor([0.1, 0.3, -0.4], requires_grad=True)
    rows, mask = torch.tensor([0, 0, 1]), torch.ones(3)
    row = row_log_ratio(logprobs.detach(), mask=mask, rows=rows, num_rows=2)
    loss = policy_loss(
        logprobs,
        behaviour_logprobs=torch.zeros(3),
        advantages=torch.tensor([1.0, 1.0, -2.0]),
        mask=mask,
        eps_clip=0.5,
        row_log_ratio=row,
    )
    assert loss.ratio.tolist() == pytest.approx([math.exp(0.2), math.exp(0.2), math.exp(-0.4)], abs=1e-6)
    (loss.per_token * torch.tensor([0.5, 0.5, 1.0])).sum().backward()
    # d/dlogp of -s A is -s A / n for each of the row's n tokens.
    expected = [-math.exp(0.2) / 2, -math.exp(0.2) / 2, 2 * math.exp(-0.4)]
    assert logprobs.grad.tolist() == pytest.approx(expected, abs=1e-6)


def test_gspo_clips_a_row_as_a_whole():
    row = torch.log(torch.tensor([1.5, 1.5]))
    logprobs = torch.tensor([-1.0, -2.0], requires_grad=True)
    loss = policy_loss(
        logprobs, behaviour_logprobs=torch.tensor([-9.0, -2.0]), advantages=torch.ones(2), mask=torch.ones(2),
        eps_clip=3e-4, eps_clip_high=4e-4, row_log_ratio=row,
    )  # fmt: skip
    loss.per_token.sum().backward()
    assert loss.is_clipped.tolist() == [True, True]
    assert logprobs.grad.tolist() == [0.0, 0.0]


def test_the_divergence_masks_at_their_edges():
    p, mu = torch.tensor([0.5, 0.5, 0.1, 0.1]), torch.tensor([0.2, 0.4, 0.4, 0.2])
    up, down = torch.ones(4), -torch.ones(4)
    assert keeps_tv(p, mu=mu, advantages=up, low=0.2, high=0.2).tolist() == [False, True, True, True]
    assert keeps_tv(p, mu=mu, advantages=down, low=0.2, high=0.2).tolist() == [True, True, False, True]
    assert keeps_ipo(p, mu=mu, largest=0.25).tolist() == [False, True, False, True]
    # KL(0.4, 0.1) = 0.4 ln 4 + 0.6 ln(2/3) = 0.3112; outward when pushed down, inward when pushed up.
    assert float(binary_divergence(p[2:3], mu=mu[2:3])) == pytest.approx(
        0.4 * math.log(4) + 0.6 * math.log(2 / 3), abs=1e-6
    )
    assert keeps_kl(p, mu=mu, advantages=down, largest=0.31)[2:3].tolist() == [False]
    assert keeps_kl(p, mu=mu, advantages=down, largest=0.32)[2:3].tolist() == [True]
    assert keeps_kl(p, mu=mu, advantages=up, largest=0.31)[2:3].tolist() == [True]


def test_the_binary_divergence_is_finite_at_certain_tokens():
    assert binary_divergence(torch.tensor([1.0, 0.0, 1.0]), mu=torch.tensor([1.0, 1.0, 0.5])).isfinite().all()


@pytest.mark.parametrize("poison", [NAN, INF, -INF, 1000.0, -1000.0])
def test_a_masked_divergence_loss_is_worked_by_hand_and_untouched_by_masked_positions(poison):
    # ratio e^0.5 kept: -A ratio logp = -2 * 1.6487 * -0.5; ratio e^9 capped at 20; third not kept; fourth masked.
    logprobs = torch.tensor([-0.5, -1.0, -0.1, poison], requires_grad=True)
    loss = masked_policy_loss(
        logprobs,
        behaviour_logprobs=torch.tensor([-1.0, -10.0, -0.1, poison]),
        advantages=torch.tensor([2.0, 1.0, 5.0, poison]),
        mask=torch.tensor([1, 1, 1, 0]),
        keep=torch.tensor([True, True, False, True]),
        ratio_cap=20.0,
    )
    loss.per_token.sum().backward()
    assert loss.per_token.tolist() == pytest.approx([math.exp(0.5), 20.0, 0.0, 0.0], abs=1e-5)
    assert logprobs.grad.tolist() == pytest.approx([-2 * math.exp(0.5), -20.0, 0.0, 0.0], abs=1e-5)
    assert loss.is_clipped.tolist() == [False, False, True, False]


DRIFT = torch.tensor([0.01, -0.02, 0.03, -0.04, 0.05, 0.06, 0.07, -0.08, 0.1, 0.2, NAN])
ACTIVE = torch.tensor([1] * 10 + [0])


def _trust(curve, drift=DRIFT, mask=ACTIVE, quantile=0.9):
    return adaptive_trust(drift, mask=mask, eps_low=0.2, eps_high=0.28, quantile=quantile, curve=curve)


def test_sat_narrows_only_the_side_of_the_drift_beyond_the_quantile():
    # Nine of ten |d| are at most 0.1 = q; d = 0.2 = 2 q: continuous 1/2, square 1/5.
    for curve, factor in (("continuous", 0.5), ("square", 0.2)):
        trust = _trust(curve)
        assert trust.quantile == pytest.approx(0.1)
        assert trust.contracted.tolist() == [False] * 9 + [True, False]
        assert trust.eps_high[9].item() == pytest.approx(0.28 * factor)
        assert trust.eps_low[9].item() == pytest.approx(0.2)
        assert trust.eps_high[:9].tolist() == pytest.approx([0.28] * 9)
    lower = _trust("continuous", drift=-DRIFT)
    assert lower.eps_low[9].item() == pytest.approx(0.1) and lower.eps_high[9].item() == pytest.approx(0.28)


@pytest.mark.parametrize("curve", ["continuous", "square"])
def test_sat_is_contained_in_the_plain_clip_pessimistic_and_silent_about_a_pull_back(curve):
    generator = torch.Generator().manual_seed(3)
    drift = torch.randn(500, generator=generator) * 0.2
    advantages = torch.randn(500, generator=generator)
    trust = _trust(curve, drift=drift, mask=torch.ones(500), quantile=0.5)
    assert (trust.eps_low <= 0.2 + 1e-7).all() and (trust.eps_high <= 0.28 + 1e-7).all()
    shared = dict(behaviour_logprobs=torch.zeros(500), advantages=advantages, mask=torch.ones(500))
    plain = policy_loss(drift, **shared, eps_clip=0.2, eps_clip_high=0.28)
    ours = policy_loss(drift, **shared, eps_clip=trust.eps_low, eps_clip_high=trust.eps_high)
    assert (ours.per_token >= plain.per_token - 1e-6).all(), "the surrogate is never above the plain one"
    back = drift * advantages < 0
    assert torch.equal(ours.per_token[back], plain.per_token[back])
    assert (ours.is_clipped & ~plain.is_clipped).any()


def test_sat_without_drift_or_without_tokens_changes_nothing():
    still = _trust("square", drift=torch.zeros(11))
    assert still.quantile == 0.0 and not still.contracted.any()
    nothing = _trust("square", mask=torch.zeros(11))
    assert math.isnan(nothing.quantile) and nothing.eps_low.tolist() == pytest.approx([0.2] * 11)
