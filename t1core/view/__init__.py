"""What people look at: one function a figure, and a page for a trial. Reads no files, imports neither torch
nor ray.
"""

from t1core.view.assertions import figure_assertions
from t1core.view.behaviour import figure_stop_reasons
from t1core.view.campaigns import figure_campaigns, figure_grpo
from t1core.view.capacity import (
    figure_context_parallel,
    figure_expert_parallel,
    figure_plan_terms,
    figure_predicted_peaks,
)
from t1core.view.claims import figure_arms, figure_contrasts
from t1core.view.compare import figure_compared_rewards
from t1core.view.context_regions import figure_summary_regions
from t1core.view.cost import figure_cpu_budget, figure_time_split
from t1core.view.critic import figure_explained_variance
from t1core.view.critic_quoted import figure_cold_and_warm, figure_learning_rates
from t1core.view.difficulty import figure_cases, figure_difficulty, figure_domains
from t1core.view.fidelity import (
    figure_audit_beside_quoted,
    figure_gap_adds_up,
    figure_gap_beside_quoted,
    figure_route_bytes,
)
from t1core.view.gap import figure_logprob_gap
from t1core.view.heldout import figure_heldout
from t1core.view.keep import keep_figure, save_figure
from t1core.view.learning import figure_reward_beside_quoted, figure_turns_and_tokens
from t1core.view.noise import figure_noise
from t1core.view.pool_tests import figure_pool_tests
from t1core.view.pools import figure_pool, figure_tests_per_task
from t1core.view.reward import figure_reward
from t1core.view.reward_density import figure_reward_density
from t1core.view.rewarding import figure_length_shaping, figure_reward_kinds
from t1core.view.routing_gap import figure_routing_gap
from t1core.view.scores import figure_benchmarks, figure_size_vs_score
from t1core.view.style import Picture
from t1core.view.synthesis import figure_synthesis
from t1core.view.throughput import figure_gpu_split, figure_skim, figure_steps, figure_warm_up
from t1core.view.trajectory import TrialPage, trial_page

__all__ = [
    "Picture",
    "TrialPage",
    "figure_arms",
    "figure_assertions",
    "figure_audit_beside_quoted",
    "figure_benchmarks",
    "figure_campaigns",
    "figure_cases",
    "figure_cold_and_warm",
    "figure_compared_rewards",
    "figure_context_parallel",
    "figure_contrasts",
    "figure_cpu_budget",
    "figure_difficulty",
    "figure_domains",
    "figure_expert_parallel",
    "figure_explained_variance",
    "figure_gap_adds_up",
    "figure_gap_beside_quoted",
    "figure_gpu_split",
    "figure_grpo",
    "figure_heldout",
    "figure_learning_rates",
    "figure_length_shaping",
    "figure_logprob_gap",
    "figure_noise",
    "figure_plan_terms",
    "figure_pool",
    "figure_pool_tests",
    "figure_predicted_peaks",
    "figure_reward",
    "figure_reward_beside_quoted",
    "figure_reward_density",
    "figure_reward_kinds",
    "figure_route_bytes",
    "figure_routing_gap",
    "figure_size_vs_score",
    "figure_skim",
    "figure_steps",
    "figure_stop_reasons",
    "figure_summary_regions",
    "figure_synthesis",
    "figure_tests_per_task",
    "figure_time_split",
    "figure_turns_and_tokens",
    "figure_warm_up",
    "keep_figure",
    "save_figure",
    "trial_page",
]
