"""Quoted numbers that our own code, or arithmetic on other quoted numbers, gives again."""

from collections.abc import Callable
from dataclasses import dataclass

from t1core.capacity import published
from t1core.capacity.memory import GIB
from t1core.capacity.sizes import NAMED, delta_net_size
from t1core.config import CampaignConfig, load_config
from t1core.ledger.quoted import Quoted
from t1core.tito import relation
from t1core.verifier.reward import counted_reward
from t1core.verifier.shaping import LengthShaping


@dataclass(frozen=True)
class Computed:
    """`value` in the unit of the quoted number, and how it comes about."""

    value: float
    how: str


# Quoted keys by the name of the capacity model's own check.
CAPACITY_CHECKS = {
    "size/experts": "routed experts",
    "size/all": "all parameters",
    "size/dense": "dense parameters",
    "size/experts_share": "routed experts' share",
    "size/gdn": "GatedDeltaNet",
    "memory/logits_cp2": "logits at CP 2",
    "memory/logits_cp4": "logits at CP 4",
    "r3/bytes": "routes as int32",
    "r3/trajectory": "routes of 32,768 tokens",
    "gdn/per_token": "alpha",
    "gdn/ratio": "GatedDeltaNet peak, CP 1 over CP 4",
    "gdn/peak_cp4": "GatedDeltaNet peak at CP 4",
    "plan/ep": "widest EP",
    "plan/ep_at_dp1": "EP at DP 1",
    "plan/experts_at_dp1": "experts a GPU at EP 2",
    "split/rollout_1": "rollout, one replica",
    "split/rollout_3": "rollout, three replicas",
}


def computed_numbers(quoted: Quoted) -> dict[str, Computed]:
    """Every quoted number that can be computed, by key."""
    found = _capacity()
    for parts in (_scores(quoted), _rewards(quoted), _pools(quoted), _training(quoted), _lengths(quoted)):
        found |= parts
    return found


def settings_of_preset() -> dict[str, tuple[float, str]]:
    """Quoted settings as our preset of the published campaign has them: value and setting, by key."""
    config = load_config("t1-122b")
    return {key: (float(read(config)), name) for key, (name, read) in _SETTINGS.items()}


def _capacity() -> dict[str, Computed]:
    checks = {check.what: check for check in published.checks()}
    return {
        key: Computed(checks[what].computed, checks[what].note)
        for key, what in CAPACITY_CHECKS.items()
        if checks[what].computed is not None
    }


def _scores(quoted: Quoted) -> dict[str, Computed]:
    tasks = quoted.value("tb21/tasks")
    base, sft, best = (quoted.value(f"tb21/{name}") for name in ("base", "rst_sft", "t1"))

    def solved(count: float) -> Computed:
        return Computed(100 * count / tasks, f"{count:g} of {tasks:g} tasks would be it")

    return {
        "tb21/t1": solved(quoted.value("tb21/solved_110")),
        "tb21/headline_blog": solved(quoted.value("curve/t1_70_solved")),
        "tb21/rst_sft": solved(44),
        "tb21/base": solved(39),
        "curve/t1_10": solved(quoted.value("curve/t1_10_solved")),
        "curve/t1_20_60_low": solved(49),
        "curve/t1_20_60_high": solved(51),
        "curve/t1_70": solved(quoted.value("curve/t1_70_solved")),
        "curve/t1_110": solved(quoted.value("tb21/solved_110")),
        "curve/rst_10": solved(52),
        "curve/tmax_30": solved(42),
        "grpo/eval_10": solved(quoted.value("grpo/solved")),
        "grpo/eval_20": solved(quoted.value("grpo/solved")),
        "curve/rst_70": Computed(100 * 160 / (3 * tasks), "160 of 267 attempts would be it"),
        "curve/t1_110_low": Computed(100 * 53 / tasks, "53 of 89 tasks would be it"),
        "tb21/gain_sft": Computed(sft - base, "SFT less base"),
        "tb21/gain_rl": Computed(best - sft, "T1 less SFT"),
        "tb21/gain_total": Computed(best - base, "T1 less base"),
        "tb21/gain_rl_share": Computed(100 * (best - sft) / (best - base), "RL's gain over the whole"),
        "tb21/gain_relative": Computed(100 * (best - sft) / sft, "(64.0 - 49.4) / 49.4"),
        "domain/debugging_gpt": Computed(100 * 4 / 5, "4 of 5 would be it"),
        "domain/sysadmin_t1": Computed(100 * 8 / 9, "8 of 9 would be it"),
        "domain/sysadmin_gpt": Computed(100 * 5 / 9, "5 of 9 would be it"),
    }


def _rewards(quoted: Quoted) -> dict[str, Computed]:
    def dense(passed: int) -> Computed:
        reward = counted_reward("dense", passed=passed, total=passed).reward
        assert reward is not None
        return Computed(reward, f"our dense reward of {passed} tests passed")

    ev = quoted.value("ev/cold")
    return {
        "reward/forty_tests": dense(40),
        "reward/largest": dense(55),
        "reward/tests": Computed(0.35 * quoted.value("reward/scale"), "0.35 x 20"),
        "ev/residual_ratio": Computed(1 - ev, "EV = 1 - ratio, so the ratio is 1 + 33.6"),
        "shaping/free_turns": Computed(LengthShaping().healthy_turns, "our default, from the quoted one"),
    }


def _pools(quoted: Quoted) -> dict[str, Computed]:
    all_tasks = quoted.value("pool/t1")
    audit, counts = quoted.values("audit"), quoted.values("audit_count")
    found = {
        f"category/{name}": Computed(100 * count / all_tasks, f"{count:g} of {all_tasks:g}")
        for name, count in quoted.values("category_count").items()
    }
    largest = sorted(quoted.values("category").values(), reverse=True)[:5]
    verifier = audit["alignment"] + audit["fairness"] + audit["coverage"]
    return found | {
        "category_all/top_five": Computed(sum(largest), "sum of the five largest"),
        "audit_facet/verifier": Computed(verifier, "alignment, fairness, coverage"),
        "audit_facet/solution": Computed(audit["correctness"] + audit["reasonableness"], "sum of two"),
        "audit_facet/instruction": Computed(audit["clarity"] + audit["self_contained"], "sum of two"),
        "pool/t1": Computed(
            counts["accept"] + counts["borderline"] + counts["reject"], "sum of the audit's three counts"
        ),
        "pool/preflight": Computed(
            100 * quoted.value("pool/preflight_with") / quoted.value("pool/preflight_of"), "56 of 60"
        ),
    }


def _training(quoted: Quoted) -> dict[str, Computed]:
    steps = quoted.value("ppo/epochs") * quoted.value("pool/t1") / quoted.value("ppo/batch")
    shape = NAMED["122b"]
    return {
        "ppo/steps_planned": Computed(steps, "3 x 15,000 / 512, whole batches"),
        "lr/ratio_review": Computed(quoted.value("lr/critic") / quoted.value("lr/actor"), "1.5e-5 / 1.0e-6"),
        "gap/metric_factor": Computed(
            quoted.value("gap/metric_low") / quoted.value("gap/without"),
            "163 / 0.021: it is the loss tokens of a row",
        ),
        "tito/grid_prompt": Computed(relation.MAX_PROMPT_TRIM + 1, "our repair grid"),
        "tito/grid_completion": Computed(relation.MAX_OUTPUT_TRIM + 1, "our repair grid"),
        "tito/aligned": Computed(100 - quoted.value("tito/changed"), "100 less the changed positions"),
        "r3/layers": Computed(shape.num_layers, "our shape of the model"),
        "memory/vocabulary": Computed(shape.vocab_size, "our shape of the model"),
        "step/step": Computed(
            max(quoted.value("step/rollout"), quoted.value("step/train")), "the longer side, if they overlap"
        ),
        "split/step_1": Computed(
            quoted.value("split/rollout_1"), "the longer side is rollout: 58.9 at least"
        ),
    }


def _lengths(quoted: Quoted) -> dict[str, Computed]:
    total = quoted.value("summary/prompt") + quoted.value("summary/asked")
    return {
        "summary/sum": Computed(total, "78,541 + 8,192: 717 above the window"),
        "memory/wall": Computed(84 * 1024, "84 x 1,024"),
        "scale/step_hours": Computed(quoted.value("step/step") / 60, "57 / 60"),
    }


def delta_net_billions() -> float:
    """All parameters of GatedDeltaNet as our shape of the model has them."""
    shape = NAMED["122b"]
    layers = sum(not shape.is_full_attention(layer) for layer in range(shape.num_layers))
    return layers * delta_net_size(shape) / 1e9


def logits_as_printed(quoted: Quoted, *, cp: int) -> float:
    """GiB of logits by the formula as the paper prints it, 4 |V| T / cp."""
    return 4 * quoted.value("memory/vocabulary") * quoted.value("memory/wall") / cp / GIB


_Read = Callable[[CampaignConfig], float]
_SETTINGS: dict[str, tuple[str, _Read]] = {
    "ppo/clip": ("train.eps_clip", lambda c: c.train.eps_clip),
    "ppo/value_clip": ("train.value_clip", lambda c: c.train.value_clip),
    "ppo/gamma": ("train.gamma", lambda c: c.train.gamma),
    "ppo/lambda": ("train.lambd", lambda c: c.train.lambd),
    "ppo/samples": ("rollout.samples_per_task", lambda c: c.rollout.samples_per_task),
    "ppo/batch": ("rollout.rollout_batch_size", lambda c: c.rollout.rollout_batch_size),
    "ppo/launched": ("rollout.over_sampling_batch_size", lambda c: c.rollout.over_sampling_batch_size),
    "ppo/adam_beta1": ("train.actor.adam_beta1", lambda c: c.train.actor.adam_beta1),
    "ppo/adam_beta2": ("train.actor.adam_beta2", lambda c: c.train.actor.adam_beta2),
    "ppo/weight_decay": ("train.actor.weight_decay", lambda c: c.train.actor.weight_decay),
    "ppo/critic_only": ("train.num_critic_only_steps", lambda c: c.train.num_critic_only_steps),
    "ppo/steps_logged": ("num_steps", lambda c: c.num_steps),
    "lr/actor": ("train.actor.lr", lambda c: c.train.actor.lr),
    "lr/critic": ("train.critic.lr", lambda c: c.train.critic.lr),
    "reward/scale": ("reward.scale", lambda c: c.reward.scale),
    "limit/turns_paper": ("agent.max_turns", lambda c: c.agent.max_turns),
    "limit/agent_wall_s": ("agent.agent_timeout_s", lambda c: c.agent.agent_timeout_s),
    "limit/verifier_s": ("rollout.verifier_timeout_s", lambda c: c.rollout.verifier_timeout_s),
    "limit/remote_s": ("rollout.trial_deadline_s", lambda c: c.rollout.trial_deadline_s),
    "limit/temperature": ("evaluation.temperature", lambda c: c.evaluation.temperature),
    "sandbox/rate": ("sandbox.create_rate_per_s", lambda c: c.sandbox.create_rate_per_s),
    "plan/tp": ("train.tensor_parallel", lambda c: c.train.tensor_parallel),
    "plan/dp": ("train.data_parallel", lambda c: c.train.data_parallel),
    "memory/gpu": ("capacity.gpu_memory_gib", lambda c: c.capacity.gpu_memory_gib),
    "timeout/gloo": ("train.group_timeout_s", lambda c: c.train.group_timeout_s / 60),
    "timeout/nccl_cp": ("train.parallel_group_timeout_s", lambda c: c.train.parallel_group_timeout_s / 60),
    "timeout/probe_grace": ("cluster.probe_grace_s", lambda c: c.cluster.probe_grace_s),
    "timeout/probe_period": ("cluster.probe_period_s", lambda c: c.cluster.probe_period_s),
    "timeout/probe_deadline": ("cluster.control_deadline_s", lambda c: c.cluster.control_deadline_s),
    "checkpoint/every": ("checkpoint_every", lambda c: c.checkpoint_every),
}
