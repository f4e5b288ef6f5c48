"""Metrics of which trials a step launches and which it keeps; part of the catalogue."""

from t1core.metrics.metric import Metric, Reducer

MEAN, SUM, MAX, SAME = Reducer.MEAN, Reducer.SUM, Reducer.MAX, Reducer.SAME

SELECTION = (
    Metric(
        "schedule/passed_over",
        "tasks",
        SUM,
        "tasks that the walk through the epoch passed over",
        "0, unless schedule.by_difficulty",
    ),
    Metric(
        "schedule/family_distance",
        "fraction",
        SAME,
        "total variation distance between the families launched and those of a plain walk",
        "0, unless schedule.by_difficulty; small then",
    ),
    Metric(
        "schedule/uncertainty_mean",
        "1",
        MEAN,
        "4 m (1 - m) of the launched tasks, m being the share of tests passed lately",
        "at least that of a plain walk",
    ),
    Metric(
        "schedule/uncertainty_walked_mean", "1", MEAN, "the same of a plain walk", "falls as tasks are learnt"
    ),
    Metric(
        "schedule/moved_frac",
        "fraction",
        MEAN,
        "trials launched at another place than they were drawn at",
        "0, unless schedule.longest_first",
    ),
    Metric(
        "rollout/carried",
        "trials",
        SUM,
        "trials of earlier steps that went on in this one",
        "0, unless tail=continue",
    ),
    Metric(
        "rollout/continued",
        "trials",
        SUM,
        "trials that go on in the next step",
        "launched + carried, less those that ended",
    ),
    Metric(
        "rollout/stale",
        "trials",
        SUM,
        "carried trials cut as the step began, since what they had sampled was too old",
        "0, or few: else raise rollout.max_staleness",
    ),
    Metric(
        "rollout/family/<family>/continued", "trials", SUM, "continued trials of one family", "spread evenly"
    ),
    Metric(
        "rollout/length/<length>/kept",
        "trials",
        SUM,
        "trials kept, by third of the predicted durations; unknown before anything like them ended",
        "the same share of each third",
        choices=("short", "middle", "long", "unknown"),
    ),
    *(
        Metric(
            f"rollout/length/<length>/{fate}",
            "trials",
            SUM,
            f"trials {told}, by third of the predicted durations",
            "the same share of each third",
            choices=("short", "middle", "long", "unknown"),
        )
        for fate, told in (
            ("cut", "cut"),
            ("surplus", "that finished too late"),
            ("continued", "that go on in the next step"),
        )
    ),
    Metric(
        "rollout/survival/kept_frac",
        "fraction",
        MEAN,
        "usable trials that ended in this step and are in its batch",
        "batch over launches: 512 of 560 is 0.91",
    ),
    Metric(
        "rollout/survival/weight_max",
        "ratio",
        MAX,
        "largest weight that would undo the skim's selection by family and predicted length",
        "below 2",
    ),
    Metric(
        "rollout/survival/weight_ess_frac",
        "fraction",
        SAME,
        "effective sample size under these weights, over the kept trials",
        "above 0.9",
    ),
    Metric(
        "rollout/survival/reward_mean",
        "reward",
        SAME,
        "mean reward of the kept trials under these weights",
        "close to reward/mean",
    ),
    Metric(
        "rollout/survival/reward_bias",
        "reward",
        SAME,
        "reward/mean less that: what keeping the first to finish adds to the mean",
        "around 0",
    ),
)
