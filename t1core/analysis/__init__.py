"""Tidy frames from a run's frames: every number that a figure or a table shows. Imports neither torch nor
ray.
"""

from t1core.analysis.assertions import assertion_changes, assertion_kind, flat_windows, window_gain
from t1core.analysis.behaviour import family_table, stop_reasons, turns_by_step
from t1core.analysis.beside_quoted import (
    audit_beside_quoted,
    campaign_points,
    domain_rows,
    heldout_by_run,
    labelled,
    our_cases,
    quoted_cases,
    replica_times,
    routing_beside_quoted,
    split_names,
    stage_table,
    steps_beside_quoted,
    tests_per_extra_turn,
    turns_and_tokens,
)
from t1core.analysis.case import case_table
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
from t1core.analysis.context_regions import summary_regions
from t1core.analysis.cost import cpu_budget, time_split
from t1core.analysis.critic import explained_variance, value_noise
from t1core.analysis.difficulty import evaluated, solved_by
from t1core.analysis.fidelity import audit_shares, gap_adds_up, route_sizes
from t1core.analysis.gap import logprob_gap
from t1core.analysis.heldout import heldout_gain
from t1core.analysis.interval import Interval, mean_interval, welch_interval
from t1core.analysis.kept_results import context_parallel_peaks, predicted_peaks
from t1core.analysis.learning import QuarterGain, accepted, quarter_gain, reward_curve
from t1core.analysis.noise import difference_z, noise_table, power, power_curve, score_se, smallest_gain
from t1core.analysis.pick import pick_trials
from t1core.analysis.pool import check_pool
from t1core.analysis.quoted_checks import (
    check_behaviour,
    check_campaigns,
    check_capacity,
    check_context,
    check_fidelity,
    check_pools,
    check_rewards,
    check_rise,
    check_scores,
    check_throughput,
    check_warm_critic,
)
from t1core.analysis.reward_density import (
    CountedTrials,
    RewardDensity,
    check_reward_density,
    measure_reward_density,
    read_counted_trials,
)
from t1core.analysis.rewarding import farming_pays, reward_by_passed, reward_by_turns
from t1core.analysis.routing_gap import check_routing_gap, flips_by_layer, replay_effect, tails
from t1core.analysis.scores import score_table
from t1core.analysis.selection import selection_table
from t1core.analysis.skimmed import lost_by_family
from t1core.analysis.synthesis import check_synthesis
from t1core.analysis.tests_per_task import tests_per_task

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
    "accepted",
    "assert_holds",
    "assertion_changes",
    "assertion_kind",
    "audit_beside_quoted",
    "audit_shares",
    "campaign_points",
    "case_table",
    "check_behaviour",
    "check_campaigns",
    "check_capacity",
    "check_context",
    "check_fidelity",
    "check_learning",
    "check_pool",
    "check_pools",
    "check_reward_density",
    "check_rewards",
    "check_rise",
    "check_routing_gap",
    "check_run",
    "check_scores",
    "check_settings",
    "check_synthesis",
    "check_throughput",
    "check_warm_critic",
    "compare_runs",
    "context_parallel_peaks",
    "cpu_budget",
    "difference_z",
    "differences",
    "domain_rows",
    "evaluated",
    "explained_variance",
    "family_table",
    "farming_pays",
    "flat_windows",
    "flips_by_layer",
    "gap_adds_up",
    "heldout_by_run",
    "heldout_gain",
    "judge",
    "labelled",
    "logprob_gap",
    "lost_by_family",
    "mean_interval",
    "measure_reward_density",
    "measured",
    "metric_curve",
    "noise_table",
    "our_cases",
    "over_runs",
    "over_seeds",
    "overall",
    "passed_curve",
    "pick_trials",
    "power",
    "power_curve",
    "predicted_peaks",
    "quarter_gain",
    "quoted_cases",
    "read_counted_trials",
    "replay_effect",
    "replica_times",
    "reward_by_passed",
    "reward_by_turns",
    "reward_curve",
    "reward_curves",
    "route_sizes",
    "routing_beside_quoted",
    "say",
    "score_se",
    "score_table",
    "selection_table",
    "smallest_gain",
    "solved_by",
    "split_names",
    "stage_table",
    "steps_beside_quoted",
    "stop_reasons",
    "summary_regions",
    "tails",
    "tests_per_extra_turn",
    "tests_per_task",
    "time_split",
    "turns_and_tokens",
    "turns_by_step",
    "value_noise",
    "welch_interval",
    "window_gain",
]
