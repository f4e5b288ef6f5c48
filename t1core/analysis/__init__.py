"""Tidy frames from a run's frames: every number that a figure or a table shows. Imports neither torch nor
ray.
"""

from t1core.analysis.behaviour import family_table, stop_reasons, turns_by_step
from t1core.analysis.checks import Check, assert_holds, check_learning, check_run, check_settings, say
from t1core.analysis.claims import (
    MEASURES,
    Contrast,
    Judged,
    Verdict,
    judge,
    measured,
    metric_curve,
    over_seeds,
    overall,
    passed_curve,
)
from t1core.analysis.compare import Difference, RunFrames, compare_runs, differences, over_runs, reward_curves
from t1core.analysis.cost import cpu_budget, time_split
from t1core.analysis.critic import explained_variance
from t1core.analysis.gap import logprob_gap
from t1core.analysis.heldout import heldout_gain
from t1core.analysis.interval import Interval, mean_interval, welch_interval
from t1core.analysis.learning import QuarterGain, quarter_gain, reward_curve
from t1core.analysis.pick import pick_trials
from t1core.analysis.pool import check_pool
from t1core.analysis.reward_density import (
    CountedTrials,
    RewardDensity,
    check_reward_density,
    measure_reward_density,
    read_counted_trials,
)
from t1core.analysis.routing_gap import check_routing_gap, flips_by_layer, replay_effect, tails
from t1core.analysis.scores import score_table
from t1core.analysis.selection import selection_table
from t1core.analysis.synthesis import check_synthesis

__all__ = [
    "MEASURES",
    "Check",
    "Contrast",
    "CountedTrials",
    "Difference",
    "Interval",
    "Judged",
    "QuarterGain",
    "RewardDensity",
    "RunFrames",
    "Verdict",
    "assert_holds",
    "check_learning",
    "check_pool",
    "check_reward_density",
    "check_routing_gap",
    "check_run",
    "check_settings",
    "check_synthesis",
    "compare_runs",
    "cpu_budget",
    "differences",
    "explained_variance",
    "family_table",
    "flips_by_layer",
    "heldout_gain",
    "judge",
    "logprob_gap",
    "mean_interval",
    "measure_reward_density",
    "measured",
    "metric_curve",
    "over_runs",
    "over_seeds",
    "overall",
    "passed_curve",
    "pick_trials",
    "quarter_gain",
    "read_counted_trials",
    "replay_effect",
    "reward_curve",
    "reward_curves",
    "say",
    "score_table",
    "selection_table",
    "stop_reasons",
    "tails",
    "time_split",
    "turns_by_step",
    "welch_interval",
]
