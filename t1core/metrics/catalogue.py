"""The catalogue: every metric that a run may record, with its unit, reducer, meaning and healthy look."""

from t1core.metrics.metric import Metric, Reducer
from t1core.metrics.selection import SELECTION
from t1core.records import Boundary, PrefixRelation, RewardSource, StopReason

MEAN, SUM, MAX, SAME = Reducer.MEAN, Reducer.SUM, Reducer.MAX, Reducer.SAME

ACTOR = (
    Metric(
        "actor/loss",
        "reward",
        SAME,
        "clipped policy loss over the global batch",
        "small; its sign says little",
    ),
    Metric("actor/clip_frac", "fraction", MEAN, "loss tokens where the clip was active", "below 0.1"),
    Metric("actor/ratio_mean", "ratio", MEAN, "mean of new to behaviour probability", "within 0.01 of 1"),
    Metric("actor/ratio_max", "ratio", MAX, "largest new-to-behaviour ratio", "single digits"),
    Metric("actor/grad_norm", "norm", SAME, "gradient norm before clipping", "steady, no spikes"),
    Metric(
        "actor/entropy",
        "nats",
        MEAN,
        "entropy of the policy at loss tokens, logged only",
        "falls slowly, not to 0",
    ),
    Metric(
        "actor/skipped",
        "count",
        SAME,
        "1 when the actor made no step because nothing of its loss was left: flat groups, or weights of 0",
        "0; absent in critic-only steps",
    ),
    Metric("actor/kl_behaviour", "nats", MEAN, "k3 estimate of KL(behaviour, new policy)", "below 0.01"),
    Metric(
        "actor/lr",
        "1",
        SAME,
        "actor learning rate of this step",
        "as configured; absent in critic-only steps",
    ),
)

CRITIC = (
    Metric("critic/loss", "reward^2", SAME, "clipped value loss over the global batch", "falls, then steady"),
    Metric("critic/clip_frac", "fraction", MEAN, "loss tokens where the value clip was active", "below 0.2"),
    Metric("critic/grad_norm", "norm", SAME, "gradient norm before clipping", "steady, no spikes"),
    Metric(
        "critic/explained_variance",
        "1",
        SAME,
        "1 - Var(return - V_old) / Var(return), from global moments; NaN where returns don't vary",
        "above 0.3, and above the num_tests baseline",
        ("critic/vf_explained_var",),
    ),
    Metric(
        "critic/ev_num_tests_baseline",
        "1",
        SAME,
        "explained variance of a predictor that knows only the task's number of tests",
        "below critic/explained_variance",
    ),
    Metric(
        "critic/r2", "1", SAME, "1 - mean squared error / Var(return): punishes bias too", "close to the EV"
    ),
    Metric("critic/value_bias", "reward", SAME, "mean of V_old - return", "around 0"),
    Metric(
        "critic/ev_quartile/<q>",
        "1",
        SAME,
        "explained variance within one quarter of each row's turns (a chunk of a split trial is a row), 1 the earliest",
        "rises from quarter 1 to 4",
        choices=("1", "2", "3", "4"),
    ),
    Metric("critic/lr", "1", SAME, "critic learning rate of this step", "as configured"),
    Metric(
        "critic/return_outside_bins_frac",
        "fraction",
        SAME,
        "loss tokens whose return lies outside the bins of an hl_gauss head",
        "0; else widen value_min and value_max",
    ),
)


def _gap(area: str, of: str, good: str, alias: tuple[str, ...] = ()) -> tuple[Metric, ...]:
    return (
        Metric(f"{area}/mean", "nats", MEAN, f"trainer minus rollout log-prob, signed, {of}", "around 0"),
        Metric(f"{area}/abs_mean", "nats", MEAN, f"mean absolute log-prob gap, {of}", good, alias),
        Metric(f"{area}/abs_max", "nats", MAX, f"largest absolute log-prob gap, {of}", "single digits"),
        Metric(f"{area}/k3", "nats", MEAN, f"k3 estimate of KL(rollout, trainer), {of}", "below 0.01"),
        Metric(
            f"{area}/prob_abs_mean",
            "probability",
            MEAN,
            f"mean absolute difference of probabilities, {of}",
            good,
        ),
        Metric(f"{area}/nonfinite", "tokens", SUM, f"loss tokens with a NaN or infinite log-prob, {of}", "0"),
    )


GAP_PARTS = ("policy_move", "routing", "kernel", "routing_and_kernel", "total")

GAP = (
    *_gap(
        "logprob_gap",
        "routes as configured",
        "about 0.01, flat; a rise is the first sign of trouble",
        ("train/train_rollout_logprob_abs_diff",),
    ),
    *_gap("logprob_gap_free", "trainer routing freely (no replay)", "larger than with replay"),
    Metric(
        "logprob_gap_part/<part>/mean",
        "nats",
        SAME,
        "signed mean of one part of the gap; policy_move plus kernel is total, routing is what replay takes away",
        "around 0",
        choices=GAP_PARTS,
    ),
    Metric(
        "logprob_gap_part/<part>/abs_mean",
        "nats",
        SAME,
        "mean absolute size of one part of the gap",
        "kernel about 0.01 and flat; policy_move as the learning rate has it",
        choices=GAP_PARTS,
    ),
)

OFF_POLICY = (
    Metric(
        "off_policy/weight_mean",
        "ratio",
        SAME,
        "mean of denominator over engine probability",
        "within 0.01 of 1",
    ),
    Metric("off_policy/weight_max", "ratio", SAME, "largest of these weights", "single digits"),
    Metric(
        "off_policy/weight_ess_frac", "fraction", SAME, "effective sample size of the weights", "above 0.9"
    ),
    Metric(
        "off_policy/tis_clip_frac", "fraction", SAME, "loss tokens that TIS clips, or would", "below 0.01"
    ),
    Metric(
        "off_policy/mis_veto_row_frac", "fraction", SAME, "rows that MIS's veto leaves out, or would", "0"
    ),
    Metric(
        "off_policy/<scheme>_drop_frac",
        "fraction",
        SAME,
        "loss tokens that a band drops, or would if chosen",
        "below 0.01, more for mis_sequence on long rows",
        choices=("icepop", "mis_token", "mis_sequence", "mis_geometric"),
    ),
    Metric(
        "off_policy/gspo_clip_frac",
        "fraction",
        SAME,
        "loss tokens in rows that GSPO clips, or would",
        "steady",
    ),
    Metric(
        "off_policy/<loss>_mask_frac",
        "fraction",
        SAME,
        "loss tokens that a divergence mask leaves out, or would",
        "below 0.05",
        choices=("dppo_tv", "dppo_kl", "ipo"),
    ),
    Metric(
        "off_policy/sat_quantile",
        "nats",
        SAME,
        "quantile of |actor minus engine log-prob| up to which SAT leaves the clip alone",
        "small",
    ),
    Metric(
        "off_policy/sat_contract_frac",
        "fraction",
        SAME,
        "loss tokens whose clip SAT narrows, or would",
        "at most 1 - sat_quantile",
    ),
)

TRAIN = (
    Metric(
        "staleness/mean", "versions", MEAN, "weight versions between sampling and this update", "1 (0 first)"
    ),
    Metric("staleness/max", "versions", MAX, "the same, of the oldest token", "1 in one-step mode"),
    Metric(
        "staleness/updates",
        "updates",
        MEAN,
        "actor updates between sampling and this one, also those that were not published",
        "as staleness/mean, up to rollout.publish_every",
    ),
    Metric("train/tokens", "tokens", SUM, "tokens trained on, prompts included", "steady"),
    Metric("train/loss_tokens", "tokens", SUM, "tokens with a loss (sampled by the policy)", "steady"),
    Metric("train/micro_batches", "count", SUM, "micro-batches of one pass", "few: packing works"),
    Metric("train/skipped", "count", SAME, "1 when no optimiser step was taken (no usable row)", "0"),
)

REWARD = (
    Metric("reward/mean", "reward", MEAN, "mean reward over accepted trials", "rises"),
    Metric("reward/std", "reward", SAME, "standard deviation of the reward over accepted trials", "not 0"),
    Metric("reward/max", "reward", MAX, "largest reward among accepted trials", "more than the mean"),
    Metric(
        "reward/trained_mean",
        "reward",
        MEAN,
        "mean over rows of the reward trained on: shaped and scaled where so configured",
        "reward/mean, unless shaped",
    ),
    Metric("reward/solved_frac", "fraction", MEAN, "accepted trials that passed every test", "rises"),
    Metric(
        "reward/passed_frac", "fraction", MEAN, "tests passed over tests expected, accepted trials", "rises"
    ),
    Metric(
        "reward/zero_variance_group_frac",
        "fraction",
        MEAN,
        "groups of samples of one task trained on equal rewards: they teach nothing to a group baseline",
        "low; 1 means nothing is learnt",
    ),
    Metric(
        "reward/source/<source>",
        "trials",
        SUM,
        "graded trials by where their reward came from",
        "ctrf almost everywhere",
        choices=tuple(RewardSource),
    ),
    Metric(
        "reward/source_frac/<source>",
        "fraction",
        MEAN,
        "share of the graded trials whose reward came from there",
        "ctrf near 1",
        choices=tuple(RewardSource),
    ),
)

ROLLOUT = (
    Metric(
        "rollout/launched",
        "trials",
        SUM,
        "trials launched this step",
        "accepted + surplus + cut + failed + quarantined + empty + continued - carried",
    ),
    Metric("rollout/accepted", "trials", SUM, "trials that make the training batch", "the batch size"),
    Metric(
        "rollout/cut", "trials", SUM, "trials cancelled as the step's tail", "launched minus the batch size"
    ),
    Metric(
        "rollout/surplus",
        "trials",
        SUM,
        "graded trials that finished after the batch was full, or without the rest of their group",
        "0 with tail=cut and single samples",
    ),
    Metric("rollout/failed", "trials", SUM, "trials that something other than the model broke", "0"),
    Metric(
        "rollout/quarantined", "trials", SUM, "graded trials held back as suspicious", "0, or few and read"
    ),
    Metric(
        "rollout/empty", "trials", SUM, "graded trials that sampled nothing", "0; else prompts do not fit"
    ),
    Metric(
        "rollout/retried", "trials", SUM, "launches that repeat one which infrastructure broke", "0, or few"
    ),
    Metric(
        "rollout/unresolved", "trials", SUM, "failed trials whose calls' order could not be resolved", "0"
    ),
    Metric(
        "rollout/distinct_tasks", "tasks", SUM, "different tasks in the training batch", "as many as can be"
    ),
    Metric(
        "rollout/groups",
        "groups",
        SUM,
        "groups of samples of one task in the training batch",
        "as configured",
    ),
    Metric(
        "rollout/group_idle_s",
        "s",
        SUM,
        "seconds that finished trials waited for the slowest of their group, added up over trials",
        "small beside the trials' own time",
    ),
    Metric(
        "rollout/group_idle_frac",
        "fraction",
        MEAN,
        "that wait over wait plus the trials' own time",
        "below 0.3",
    ),
    Metric("rollout/turns_mean", "turns", MEAN, "turns of an accepted trial", "depends on the tasks"),
    Metric(
        "rollout/response_tokens_mean", "tokens", MEAN, "sampled tokens of an accepted trial", "no runaway"
    ),
    Metric(
        "rollout/prompt_tokens_mean",
        "tokens",
        MEAN,
        "tokens of an accepted trial that it was given",
        "steady",
    ),
    Metric(
        "rollout/parse_error_frac", "fraction", MEAN, "turns whose answer didn't parse", "falls towards 0"
    ),
    Metric("rollout/generated_tokens_per_s", "tokens/s", SAME, "sampled tokens over rollout time", "steady"),
    Metric(
        "rollout/stop/<reason>",
        "trials",
        SUM,
        "launched trials by why they ended",
        "completed leads",
        choices=tuple(StopReason),
    ),
    Metric(
        "rollout/failure/<boundary>",
        "trials",
        SUM,
        "failed trials by the part that broke",
        "0",
        choices=tuple(Boundary),
    ),
    Metric(
        "rollout/family/<family>/launched",
        "trials",
        SUM,
        "trials of one family, launched or carried in",
        "as sampled",
    ),
    Metric(
        "rollout/family/<family>/accepted",
        "trials",
        SUM,
        "accepted trials of one family",
        "same share as launched",
    ),
    *(
        Metric(
            f"rollout/family/<family>/{outcome}",
            "trials",
            SUM,
            f"{outcome} trials of one family",
            "spread evenly",
        )
        for outcome in ("surplus", "quarantined", "empty", "cut", "failed")
    ),
    Metric("rollout/family/<family>/reward_mean", "reward", MEAN, "mean reward of one family", "rises"),
)

AGENT = (
    Metric("agent/summaries", "calls", SUM, "histories summarised in accepted trials", "0, or few"),
    Metric("agent/summary_success_frac", "fraction", MEAN, "summaries that could be used", "above 0.9"),
    Metric("agent/lost_summary_frac", "fraction", MEAN, "accepted trials that lost a summary", "0"),
    Metric(
        "agent/repeated_command_frac",
        "fraction",
        MEAN,
        "turns with commands that typed what an earlier turn of the trial had typed",
        "low; a rise with turns is work done again",
    ),
    Metric(
        "agent/wait_expired_frac",
        "fraction",
        MEAN,
        "turns with commands whose wait ran out",
        "low, if tasks are quick",
    ),
    Metric(
        "agent/no_command_frac", "fraction", MEAN, "turns that typed nothing", "the completion's confirmation"
    ),
    Metric(
        "agent/repaired_frac", "fraction", MEAN, "turns whose answer had to be mended to be used", "falls"
    ),
    Metric("agent/timeout_frac", "fraction", MEAN, "accepted trials whose time ran out", "near 0"),
    Metric(
        "agent/capped_time_frac",
        "fraction",
        MEAN,
        "accepted trials given less time than their task asks for",
        "known",
    ),
    Metric("agent/tests_passed_mean", "tests", MEAN, "tests passed by an accepted trial", "rises"),
    Metric(
        "agent/tests_per_extra_turn",
        "tests/turn",
        SAME,
        "slope of tests passed on turns, within families of the step",
        "not below 0",
    ),
    Metric(
        "agent/turn_growth/<cause>",
        "turns",
        SAME,
        "turns gained since the first steps, under their likely cause; absent while they have not grown",
        "absent, or useful_work",
        choices=("context_loss", "farming", "useful_work"),
    ),
)

FIDELITY = (
    Metric(
        "tito/relation/<relation>",
        "fraction",
        MEAN,
        "turns by how their prompt continues the tokens before it",
        "strict 1.0 with our own agent",
        choices=tuple(PrefixRelation),
    ),
    Metric("tito/delivered_token_frac", "fraction", MEAN, "sampled tokens that reached the loss", "1.0"),
    Metric("tito/drift_frac", "fraction", MEAN, "loss tokens that differ from what was sampled", "exactly 0"),
    Metric(
        "tito/aligned_frac", "fraction", MEAN, "tokens that a call was given or sampled as they are", "1.0"
    ),
    Metric(
        "tito/retokenised_frac", "fraction", MEAN, "trained tokens of a call's text but of other ids", "0"
    ),
    Metric("tito/placeholder_frac", "fraction", MEAN, "tokens that stand in for something lost", "0"),
    Metric(
        "routing/rows", "rows", SUM, "routing rows replayed, tokens - 1 a training row", "tokens minus rows"
    ),
    Metric("routing/missing", "rows", SUM, "training rows without a recorded route", "0"),
    Metric(
        "routing/flip_frac",
        "fraction",
        MEAN,
        "router choices of loss tokens for which the trainer, left free, takes another set of experts",
        "small and flat; it grows with bf16 and with depth",
    ),
    Metric(
        "routing/flip_token_frac", "fraction", MEAN, "loss tokens with such a choice in any layer", "the same"
    ),
)

_PHASES = {
    "step": "one whole step",
    "rollout": "the rollout side of the step",
    "train": "the training side of the step",
    "wait": "waiting for a batch to train on",
    "barrier": "everything between the two sides and the next step",
    "publish": "handing the new weights to every engine",
    "evaluate": "held-out evaluation",
    "quiesce": "waiting for generation to stop",
    "transfer": "moving weights or batches between processes",
    "verify": "checking what was published, and keeping it as the behaviour snapshot",
    "resume": "having generation go on after a publication",
    "pack": "cutting a batch into micro-batches and moving it to the device",
    "critic": "the critic's passes and updates",
    "behaviour_forward": "scoring a batch under the weights that sampled it",
    "free_routing_forward": "scoring it once more, routing freely",
    "actor": "the actor's update",
    "offload": "moving a network off the device to make room for the other",
    "reload": "bringing a network back to the device",
}
TIME = tuple(
    Metric(f"time/{phase}_s", "s", MAX, f"wall time of {meaning}", "steady")
    for phase, meaning in _PHASES.items()
)

_CPU = {
    "generate": "sampling in the engines",
    "box": "the trial host, its boxes, and what agents ran in them",
    "grade": "grading",
    "train": "actor and critic passes",
    "driver": "the driver",
}
CPU = tuple(
    Metric(f"cpu/{part}_s", "CPU s", SUM, f"processor time of {meaning}", "steady")
    for part, meaning in _CPU.items()
)

EVAL = (
    Metric("eval/<split>/solved_frac", "fraction", MEAN, "held-out trials that passed every test", "rises"),
    Metric("eval/<split>/reward_mean", "reward", MEAN, "mean held-out reward", "rises"),
    Metric(
        "eval/<split>/passed_frac", "fraction", MEAN, "held-out tests passed over tests expected", "rises"
    ),
    Metric("eval/<split>/count", "trials", SUM, "held-out trials graded", "the split's size"),
)

MEMORY = tuple(
    Metric(
        f"memory/{part}_mb",
        "MB",
        MAX,
        f"resident memory of the {part} as the step ends",
        "flat, after a few steps",
    )
    for part in ("driver", "trainer", "engine", "host")
)

CATALOGUE: tuple[Metric, ...] = (
    *ACTOR,
    *CRITIC,
    *GAP,
    *OFF_POLICY,
    *TRAIN,
    *REWARD,
    *ROLLOUT,
    *SELECTION,
    *AGENT,
    *FIDELITY,
    *TIME,
    *CPU,
    *EVAL,
    *MEMORY,
)
