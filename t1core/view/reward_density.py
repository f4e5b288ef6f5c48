"""Binary against counted rewards in trials that were run: bits, flat groups, progress in failed groups."""

import numpy as np
from matplotlib.axes import Axes

from t1core.analysis.reward_density import ALL, RewardDensity
from t1core.view.style import BLUE, GREY, ORANGE, Picture, finding, styled

_BINARY, _COUNTED = GREY, BLUE


@styled
def figure_reward_density(density: RewardDensity) -> Picture:
    """Three panels over policies ordered by what they solve: bits a trial, flat groups, groups that failed whole."""
    policies = density.policies[density.policies["policy"] != ALL].sort_values("solved_frac")
    whole = density.policies[density.policies["policy"] == ALL].iloc[0]
    figure = Picture(figsize=(6.6, 6.4))
    bits, flat, failed = figure.subplots(3, 1, sharex=True)
    places = np.arange(len(policies))
    _pair(bits, places, policies["bits_binary"], policies["bits_counted"])
    bits.errorbar(
        places + 0.2,
        policies["bits_counted"],
        policies["bits_gain_error"],
        color="#333333",
        fmt="none",
        capsize=2,
    )
    bits.set_ylabel("measured bits a trial")
    bits.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0)
    _pair(flat, places, 100 * policies["flat_binary"], 100 * policies["flat_counted"])
    flat.set_ylim(0, 100)
    flat.set_ylabel("measured flat groups, %")
    failed.bar(places, policies["all_failed"], 0.6, color=GREY, label="no trial solves")
    failed.bar(places, policies["all_failed_varying"], 0.4, color=ORANGE, label="of these, the count varies")
    failed.set_ylabel("measured groups")
    failed.legend(loc="upper right")
    failed.set_xticks(
        places,
        [f"{row.policy}\n{row.solved_frac:.0%} solved" for row in policies.itertuples()],
        fontsize=6,
    )
    failed.set_xlabel("policy (a group: its trials at one task)")
    finding(
        figure,
        f"A trial's count says {whole['bits_counted']:.2f} bits where pass or fail says {whole['bits_binary']:.2f}; "
        f"{whole['flat_counted']:.0%} of groups stay flat against {whole['flat_binary']:.0%}, and "
        f"{whole['all_failed_varying']:.0f} of {whole['all_failed']:.0f} groups that fail whole still vary",
    )
    return figure


def _pair(axes: Axes, places: np.ndarray, binary: object, counted: object) -> None:
    axes.bar(places - 0.2, binary, 0.4, color=_BINARY, label="binary: all tests pass")
    axes.bar(places + 0.2, counted, 0.4, color=_COUNTED, label="counted: tests that pass")
