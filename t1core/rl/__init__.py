"""Pure functions of the learner: advantages, losses, their denominators, diagnostics. Torch in and out.

Every per-token stream here is aligned with the tokens themselves: entry t of `values` is the value of the
state in which token t was chosen, entry t of `logprobs` is the log-probability of token t.
"""

from t1core.rl.adaptive_trust import TrustRegion, adaptive_trust
from t1core.rl.advantages import Advantages, gae, length_adaptive_lambda, whiten
from t1core.rl.aggregate import token_weights
from t1core.rl.divergence_mask import (
    binary_divergence,
    keeps_ipo,
    keeps_kl,
    keeps_tv,
    masked_policy_loss,
)
from t1core.rl.explained_variance import (
    ValueMoments,
    conditional_mean_predictor,
    explained_variance,
    r_squared,
    value_bias,
    value_moments,
)
from t1core.rl.group_advantage import group_advantages
from t1core.rl.hl_gauss import ValueBins, expectation, hl_gauss_loss, return_histogram_bias, smoothed
from t1core.rl.importance import (
    banded,
    effective_sample_frac,
    masked_importance,
    token_ratio,
    truncated,
    vetoed,
)
from t1core.rl.kl import kl_loss
from t1core.rl.logprob_gap import LogprobGap, logprob_gap
from t1core.rl.policy_loss import PolicyLoss, policy_loss
from t1core.rl.sequence_ratio import row_log_ratio
from t1core.rl.value_loss import ValueLoss, value_loss

__all__ = [
    "Advantages",
    "LogprobGap",
    "PolicyLoss",
    "TrustRegion",
    "ValueBins",
    "ValueLoss",
    "ValueMoments",
    "adaptive_trust",
    "banded",
    "binary_divergence",
    "conditional_mean_predictor",
    "effective_sample_frac",
    "expectation",
    "explained_variance",
    "gae",
    "group_advantages",
    "hl_gauss_loss",
    "keeps_ipo",
    "keeps_kl",
    "keeps_tv",
    "kl_loss",
    "length_adaptive_lambda",
    "logprob_gap",
    "masked_importance",
    "masked_policy_loss",
    "policy_loss",
    "r_squared",
    "return_histogram_bias",
    "row_log_ratio",
    "smoothed",
    "token_ratio",
    "token_weights",
    "truncated",
    "value_bias",
    "value_loss",
    "value_moments",
    "vetoed",
    "whiten",
]
