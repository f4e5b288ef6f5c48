"""Pure functions of the learner: advantages, losses, their denominators, diagnostics. Torch in and out.

Every per-token stream here is aligned with the tokens themselves: entry t of `values` is the value of the
state in which token t was chosen, entry t of `logprobs` is the log-probability of token t.
"""

from t1core.rl.advantages import Advantages, gae
from t1core.rl.aggregate import token_weights
from t1core.rl.explained_variance import (
    ValueMoments,
    conditional_mean_predictor,
    explained_variance,
    r_squared,
    value_bias,
    value_moments,
)
from t1core.rl.group_advantage import group_advantages
from t1core.rl.logprob_gap import LogprobGap, logprob_gap
from t1core.rl.policy_loss import PolicyLoss, policy_loss
from t1core.rl.value_loss import ValueLoss, value_loss

__all__ = [
    "Advantages",
    "LogprobGap",
    "PolicyLoss",
    "ValueLoss",
    "ValueMoments",
    "conditional_mean_predictor",
    "explained_variance",
    "gae",
    "group_advantages",
    "logprob_gap",
    "policy_loss",
    "r_squared",
    "token_weights",
    "value_bias",
    "value_loss",
    "value_moments",
]
