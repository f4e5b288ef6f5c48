"""HL-Gauss against the error function by hand, and as a value loss."""

import math

import pytest
import torch

from t1core.rl import (
    ValueBins,
    expectation,
    explained_variance,
    hl_gauss_loss,
    kl_loss,
    return_histogram_bias,
    smoothed,
    value_moments,
)

BINS = ValueBins()
NAN, INF = float("nan"), float("inf")


def _phi(x):
    return (1 + math.erf(x / math.sqrt(2))) / 2


def test_sixty_two_bins_from_minus_a_tenth_to_three_are_one_test_wide():
    assert BINS.width == pytest.approx(1 / 20)
    assert BINS.centres()[2].item() == pytest.approx(0.025)


def test_a_target_is_the_gaussians_mass_in_each_bin_worked_by_hand():
    # Three bins [0, 1, 2, 3], width 1, sigma 0.75, y = 1.5: edges at -2, -2/3, 2/3, 2 sigma.
    bins = ValueBins(num=3, low=0.0, high=3.0)
    whole = _phi(2) - _phi(-2)
    side, middle = (_phi(-2 / 3) - _phi(-2)) / whole, (_phi(2 / 3) - _phi(-2 / 3)) / whole
    assert smoothed(torch.tensor([1.5]), bins=bins)[0].tolist() == pytest.approx(
        [side, middle, side], abs=1e-6
    )


def test_targets_add_up_to_one_and_their_mean_is_the_return_away_from_the_ends():
    returns = torch.tensor([0.0, 0.05, 0.2375, 1.0, 2.75])
    target = smoothed(returns, bins=BINS)
    assert target.sum(-1).tolist() == pytest.approx([1.0] * 5, abs=1e-6)
    mean = (target.double() * BINS.centres()).sum(-1)
    assert mean.tolist() == pytest.approx(returns.tolist(), abs=2e-3)


@pytest.mark.parametrize("outside", [-50.0, 50.0, -INF, INF])
def test_a_return_outside_the_bins_counts_as_their_nearer_end(outside):
    end = BINS.low if outside < 0 else BINS.high
    assert torch.equal(smoothed(torch.tensor([outside]), bins=BINS), smoothed(torch.tensor([end]), bins=BINS))


def test_the_value_is_the_expectation_and_cross_entropy_is_least_at_the_target():
    bins = ValueBins(num=2, low=0.0, high=2.0)
    logits = torch.tensor([[math.log(3.0), 0.0]])  # 3/4 at 0.5, 1/4 at 1.5
    assert expectation(logits, bins=bins).tolist() == pytest.approx([0.75])
    target = smoothed(torch.tensor([0.8]), bins=bins)
    best = target.log().requires_grad_()
    loss = hl_gauss_loss(
        best, old_values=torch.tensor([0.8]), returns=torch.tensor([0.8]), mask=torch.ones(1),
        value_clip=10.0, bins=bins,
    )  # fmt: skip
    loss.per_token.sum().backward()
    assert loss.per_token.item() == pytest.approx(-float((target * target.log()).sum()), abs=1e-6)
    assert best.grad.abs().max() < 1e-6


def test_the_clip_on_the_expectation_cuts_the_gradient_and_not_the_loss():
    bins = ValueBins(num=2, low=0.0, high=2.0)
    # V = 0.75 moved up from V_old = 0.5 by more than 0.1, towards R = 2: clipped. Towards R = 0: free.
    logits = torch.tensor([[math.log(3.0), 0.0]] * 2, requires_grad=True)
    loss = hl_gauss_loss(
        logits,
        old_values=torch.tensor([0.5, 0.5]),
        returns=torch.tensor([2.0, 0.0]),
        mask=torch.ones(2),
        value_clip=0.1,
        bins=bins,
    )
    loss.per_token.sum().backward()
    assert loss.is_clipped.tolist() == [True, False]
    assert logits.grad[0].tolist() == [0.0, 0.0]
    assert logits.grad[1].abs().max() > 0.05
    assert loss.per_token[0] > 0


@pytest.mark.parametrize("poison", [NAN, INF, -INF, 1000.0, -1000.0])
def test_whatever_stands_at_a_masked_position_reaches_neither_loss_nor_gradient(poison):
    logits = torch.zeros(3, BINS.num)
    logits[1] = poison
    logits.requires_grad_()
    stream = torch.tensor([0.2, poison, 0.4])
    loss = hl_gauss_loss(
        logits, old_values=stream, returns=stream, mask=torch.tensor([1, 0, 1]), value_clip=0.2, bins=BINS
    )
    loss.per_token.sum().backward()
    assert loss.per_token[1] == 0 and loss.per_token.isfinite().all()
    assert logits.grad[1].eq(0).all() and logits.grad.isfinite().all()
    logprobs = torch.tensor([-1.0, poison], requires_grad=True)
    kl = kl_loss(logprobs, reference_logprobs=torch.tensor([-2.0, poison]), mask=torch.tensor([1, 0]))
    kl.sum().backward()
    # e^-1 - 1 + 1, and d/dlogp = 1 - e^-1
    assert kl.tolist() == pytest.approx([math.exp(-1), 0.0], abs=1e-6)
    assert logprobs.grad.tolist() == pytest.approx([1 - math.exp(-1), 0.0], abs=1e-6)


def test_a_head_that_starts_from_the_return_histogram_explains_nothing_rather_than_less_than_nothing():
    generator = torch.Generator().manual_seed(0)
    returns = torch.randint(0, 8, (400,), generator=generator) / 20
    returns = torch.cat([returns, torch.tensor([NAN])])
    weights = torch.cat([torch.full((400,), 1 / 400), torch.zeros(1)])
    bias = return_histogram_bias(returns, weights=weights, bins=BINS)
    assert bias.exp().sum().item() == pytest.approx(1.0, abs=1e-5)
    value = expectation(bias.expand(401, -1), bins=BINS)
    assert value[0].item() == pytest.approx(returns[:400].mean().item(), abs=2e-3)
    started = explained_variance(value_moments(value, returns=returns, mask=weights > 0))
    assert started == pytest.approx(0.0, abs=1e-6)
    # A flat head is worse in bias only: EV ignores constants, so noise is what makes it negative.
    noisy = value + torch.randn(401, generator=generator)
    assert explained_variance(value_moments(noisy, returns=returns, mask=weights > 0)) < -10


def test_bins_that_are_none_are_refused():
    with pytest.raises(ValueError, match="value_min below value_max"):
        ValueBins(low=1.0, high=0.0)
