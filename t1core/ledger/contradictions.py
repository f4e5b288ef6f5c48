"""Where the sources contradict themselves or each other, with what arithmetic says; each has a row of its own."""

from dataclasses import dataclass

from t1core.ledger.computed import delta_net_billions, logits_as_printed
from t1core.ledger.quoted import Quoted


@dataclass(frozen=True)
class Contradiction:
    """`sides`: what is said where. `verdict`: what arithmetic says, and what we use. `keys`: the quoted numbers in
    it."""

    name: str
    sides: tuple[str, str]
    verdict: str
    keys: tuple[str, ...]


def contradictions(quoted: Quoted) -> list[Contradiction]:
    """All of them; the numbers in the verdicts are computed from the quoted ones."""
    return [*_scores(quoted), *_training(quoted), *_fidelity(quoted), *_machines(quoted)]


def _scores(quoted: Quoted) -> list[Contradiction]:
    v = quoted.value
    tasks, sft = v("tb21/tasks"), v("tb21/rst_sft")
    best = v("tb21/best_blog")
    return [
        Contradiction(
            "Headline score",
            (
                f"blog: {v('tb21/headline_blog'):g}% at step 70",
                f"paper, review: {v('tb21/t1'):g}% at step 110",
            ),
            "both are single evaluations, 55 and 57 of 89; we use the paper's",
            ("tb21/headline_blog", "tb21/t1"),
        ),
        Contradiction(
            "57 of 89",
            (f"blog: {best:g}% is {v('tb21/solved_best_blog'):g}/89", f"paper: {v('tb21/t1'):g}% is 57/89"),
            f"57/89 is {100 * 57 / tasks:.2f}%; {best:g}% would be {best * tasks / 100:.1f} tasks, or "
            f"{3 * best * tasks / 100:.1f} of 267 attempts, and neither is a whole number",
            ("tb21/best_blog", "tb21/solved_best_blog", "tb21/solved_110", "curve/t1_110_high"),
        ),
        Contradiction(
            "Relative gain of RL",
            (
                f"paper, abstract: {v('tb21/gain_relative_abstract'):g}%",
                f"paper, sec. 6.4: {v('tb21/gain_relative'):g}%",
            ),
            f"(64.0 - 49.4) / 49.4 is {100 * (v('tb21/t1') - sft) / sft:.1f}%; with the blog's 63.5 it is "
            f"{100 * (best - sft) / sft:.1f}%, left over from there",
            ("tb21/gain_relative", "tb21/gain_relative_abstract"),
        ),
        Contradiction(
            "Limits of evaluation",
            (
                f"paper, sec. 6.1: {v('limit/turns_paper'):g} turns, {v('limit/context_paper'):,.0f} tokens",
                f"paper, appendix C: {v('limit/turns_appendix'):g} turns, {v('limit/context_appendix'):,.0f} tokens "
                f"for T1, {v('limit/sft_turns_appendix'):g} turns for SFT",
            ),
            f"a mean of {v('eval_turns/t1'):g} turns is above {v('limit/turns_paper'):g}: only the appendix can be",
            (
                "limit/turns_paper",
                "limit/turns_appendix",
                "limit/context_paper",
                "limit/context_appendix",
                "eval_turns/t1",
            ),
        ),
        Contradiction(
            "Context of T1 on its failures",
            (
                f"blog: {v('failure/context_t1'):,.0f} tokens",
                f"paper, appendix C: {v('limit/context_appendix'):,.0f}",
            ),
            "the appendix gives 56,000 tokens and 8,192 out to SFT, not to T1",
            ("failure/context_t1", "failure/output_t1", "limit/output_appendix"),
        ),
        Contradiction(
            "RST-SFT on TBH",
            (
                f"paper, fig. 11: {v('tbh/rst_sft'):g}%",
                f"RST: {v('rst/tbh_122b'):g} +- {v('rst/tbh_122b_error'):g}% for 122B",
            ),
            f"RST's {v('rst/tbh_27b'):g}% is its 27B row",
            ("tbh/rst_sft", "rst/tbh_122b", "rst/tbh_27b"),
        ),
        Contradiction(
            "TBH and the pools",
            ("paper: no suite contributes to any pool", "RST: TBH is drawn from TMax-15k"),
            "the binary campaign trained its actor on TMax-15k, and T1's critic was warmed there; T1's actor was not",
            ("tbh/t1",),
        ),
    ]


def _training(quoted: Quoted) -> list[Contradiction]:
    v = quoted.value
    actor, critic, canonical = v("lr/actor"), v("lr/critic"), v("lr/canonical")
    epochs = v("ppo/steps_run") * v("ppo/batch") / v("pool/t1")
    rollout, train, step = (v(f"step/{name}") for name in ("rollout", "train", "step"))
    return [
        Contradiction(
            "Critic's learning rate over the actor's",
            (f"blog: {v('lr/ratio_blog'):g} times", f"review: {v('lr/ratio_review'):g} times"),
            f"{critic:g} / {actor:g} is {critic / actor:.0f}; {critic / canonical:.0f} is over the canonical "
            f"{canonical:g}; we use the rates themselves",
            ("lr/ratio_blog", "lr/ratio_review"),
        ),
        Contradiction(
            "Number of steps",
            (
                f"blog: 3 epochs are {v('ppo/steps_planned'):g} steps",
                f"paper: the best checkpoint is step {v('ppo/steps_run'):g}",
            ),
            f"3 x 15,000 / 512 is {3 * v('pool/t1') / v('ppo/batch'):.1f}; {v('ppo/steps_run'):g} steps are "
            f"{epochs:.2f} epochs; not explained",
            ("ppo/steps_planned", "ppo/steps_run", "ppo/steps_logged", "ppo/epochs"),
        ),
        Contradiction(
            "57 = 16 + 41",
            (
                f"review: rollout of {rollout:g} min hides under {train:g} min of training",
                f"review: a step takes {step:g} min",
            ),
            f"the longer side is {max(rollout, train):g} and the sum {rollout + train:g}: there was no overlap, or "
            f"other work takes {step - max(rollout, train):g} min",
            ("step/rollout", "step/train", "step/step"),
        ),
        Contradiction(
            "Batch and data parallel size",
            (
                f"paper, sec. 4.4: batch {v('ppo/batch_other'):g}, data parallel {v('plan/dp_other'):g}",
                f"paper, sec. 7.2: 256 micro-batches a rank, data parallel {v('plan/dp'):g}",
            ),
            f"{v('ppo/batch'):g} / {v('plan/dp'):g} is {v('ppo/batch') / v('plan/dp'):g}; we use these",
            ("ppo/batch_other", "plan/dp_other", "plan/dp"),
        ),
        Contradiction(
            "Turns of training trials",
            (
                f"paper, fig. 13: {v('turns/start'):g} to {v('turns/end'):g}",
                f"blog: healthy at {v('turns/healthy'):g}, horizon of 60",
            ),
            "22 to 30 and 22 to more than 50 are of other campaigns, of a 27B model",
            ("turns/end", "turns/healthy", "summary/turns_before", "shaping/turns_before"),
        ),
        Contradiction(
            "Tokens of a trial at last",
            (f"paper, fig. 13: {v('tokens/end'):,.0f}", f"paper, text: {v('tokens/end_text'):,.0f}"),
            "last value and plateau, perhaps; not said",
            ("tokens/end", "tokens/end_text"),
        ),
        Contradiction(
            "Name and numbering",
            ("blog: Strategy-15k; iterations 9, 29, 69, 109", "paper: T1-15k; steps 10, 30, 70, 110"),
            "the same pool, and steps counted from 0 and from 1",
            ("curve/t1_10", "curve/tmax_30"),
        ),
        Contradiction(
            "The binary campaign",
            ("blog: 47.2% within 40 steps, at iteration 29", "paper: at step 30, from the base model"),
            "step 30 from the base model; a digest that has it start from SFT is wrong",
            ("tb21/rl_tmax", "curve/tmax_30"),
        ),
    ]


def _fidelity(quoted: Quoted) -> list[Contradiction]:
    v = quoted.value
    low, high = (v(f"gap/metric_{end}") / v("gap/without") for end in ("low", "high"))
    return [
        Contradiction(
            "What the log-prob gap is",
            (
                "paper, eq. 15: trainer's policies of two steps",
                "paper, eq. 24: trainer less engine, one policy",
            ),
            "we measure the second: same weights, two implementations",
            ("gap/with", "gap/without"),
        ),
        Contradiction(
            "How much the wrong reducer inflated",
            (
                f"blog: about {v('gap/metric_factor'):,.0f} times",
                f"blog: {v('gap/metric_low'):g} to {v('gap/metric_high'):g} where the truth is about 0.02",
            ),
            f"{low:,.0f} to {high:,.0f} times: the mean number of loss tokens of a row, which the blog has at about "
            f"{v('gap/loss_tokens'):,.0f}",
            ("gap/metric_factor", "gap/metric_low", "gap/metric_high"),
        ),
        Contradiction(
            "Residual variance of the cold critic",
            (
                f"blog: EV {v('ev/cold'):g}",
                f"blog: about {v('ev/residual_ratio'):g} times the returns' variance",
            ),
            f"EV {v('ev/cold'):g} is a ratio of {1 - v('ev/cold'):.1f}",
            ("ev/cold", "ev/residual_ratio"),
        ),
    ]


def _machines(quoted: Quoted) -> list[Contradiction]:
    v = quoted.value
    return [
        Contradiction(
            "Bytes of a logit",
            (
                f"blog: {v('memory/logits_cp2'):g} and {v('memory/logits_cp4'):g} GB at CP 2 and 4",
                "paper, eq. 21: 4 |V| T / cp",
            ),
            f"as printed it is {logits_as_printed(quoted, cp=2):.1f} and {logits_as_printed(quoted, cp=4):.1f} GiB; 6 "
            "bytes a logit over TP 2 give the blog's numbers, in GiB",
            ("memory/logits_cp2", "memory/logits_cp4"),
        ),
        Contradiction(
            "Parameters of GatedDeltaNet",
            (f"blog: {v('size/gdn'):g} B", "the model's own shape"),
            f"{delta_net_billions():.3f} B; the quoted number has one of the query and key projections",
            ("size/gdn",),
        ),
        Contradiction(
            "Pace of boxes",
            (f"paper: quota of {v('sandbox/quota'):g} a minute", f"blog: {v('sandbox/rate'):g} a second"),
            f"the quota is {v('sandbox/quota') / 60:g} a second: headroom, no error",
            ("sandbox/quota", "sandbox/rate"),
        ),
        Contradiction(
            "Routes of a trajectory",
            (f"blog: 33k tokens are {v('r3/trajectory'):g} MiB", f"blog: {v('r3/bytes'):,.0f} B a token"),
            f"33,000 tokens are {33_000 * v('r3/bytes') / 2**20:.1f} MiB, 32,768 are "
            f"{32_768 * v('r3/bytes') / 2**20:g}",
            ("r3/trajectory",),
        ),
    ]
