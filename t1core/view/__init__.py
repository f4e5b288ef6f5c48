"""What people look at: one function a figure, and a page for a trial. Reads no files, imports neither torch
nor ray.
"""

from t1core.view.behaviour import figure_stop_reasons
from t1core.view.claims import figure_arms, figure_contrasts
from t1core.view.compare import figure_compared_rewards
from t1core.view.cost import figure_cpu_budget, figure_time_split
from t1core.view.critic import figure_explained_variance
from t1core.view.gap import figure_logprob_gap
from t1core.view.heldout import figure_heldout
from t1core.view.keep import keep_figure, save_figure
from t1core.view.pool import figure_tests_per_task
from t1core.view.reward import figure_reward
from t1core.view.reward_density import figure_reward_density
from t1core.view.routing_gap import figure_routing_gap
from t1core.view.style import Picture
from t1core.view.synthesis import figure_synthesis
from t1core.view.trajectory import TrialPage, trial_page

__all__ = [
    "Picture",
    "TrialPage",
    "figure_arms",
    "figure_compared_rewards",
    "figure_contrasts",
    "figure_cpu_budget",
    "figure_explained_variance",
    "figure_heldout",
    "figure_logprob_gap",
    "figure_reward",
    "figure_reward_density",
    "figure_routing_gap",
    "figure_stop_reasons",
    "figure_synthesis",
    "figure_tests_per_task",
    "figure_time_split",
    "keep_figure",
    "save_figure",
    "trial_page",
]
