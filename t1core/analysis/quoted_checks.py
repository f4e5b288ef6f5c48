"""What must hold in the analyses that set quoted numbers beside ours: the last cell of each notebook. Each can fail,
by other data or by another rule of the product."""

import math
from collections.abc import Mapping

import pandas as pd

from t1core.analysis.checks import Check
from t1core.analysis.interval import Interval
from t1core.analysis.learning import QuarterGain


def check_scores(
    *, t1: float, tasks: int, solved: float, se_points: float, errors: Mapping[str, float]
) -> list[Check]:
    """t1: the quoted share; errors: quoted differences in standard errors of a difference."""
    return [
        Check(
            "57 of 89 tasks are the quoted score",
            abs(solved / tasks - t1) < 5e-4,
            f"{solved / tasks:.4f}, {t1}",
        ),
        Check("the standard error at 89 tasks is 5 points", 4.9 < se_points < 5.4, f"{se_points:.2f}"),
        Check(
            "SFT's gain over base is within luck",
            errors["base to SFT"] < 1.96,
            f"{errors['base to SFT']:.2f} errors",
        ),
        Check(
            "T1's gain over SFT is about two errors",
            1.9 < errors["SFT to T1"] < 2.1,
            f"{errors['SFT to T1']:.2f}",
        ),
    ]


def check_campaigns(
    heldout: pd.DataFrame, *, grpo: float, solved: float, tasks: int, sft: float, se_points: float
) -> list[Check]:
    """`heldout` is heldout_by_run, its first row the run that must have gained."""
    first = heldout.iloc[0]
    gain = Interval(first["solved_gain"], first["low"], first["high"])
    return [
        Check("46 of 89 tasks are GRPO's score", abs(100 * solved / tasks - grpo) < 0.05, f"{grpo}%"),
        Check(
            "GRPO is within luck of SFT",
            abs(grpo - sft) < se_points,
            f"{grpo - sft:+.1f}, one error is {se_points:.1f}",
        ),
        Check(f"more held-out tasks are solved after training: {first['run']}", gain.low > 0, str(gain)),
    ]


def check_rise(gains: Mapping[str, QuarterGain], *, tests_per_extra_turn: Mapping[str, float]) -> list[Check]:
    """Rewards rise, and what turns are added brings tests."""
    rises = [
        Check(f"reward rises: {name}", gain.gain.low > 0, str(gain.gain)) for name, gain in gains.items()
    ]
    return rises + [
        Check(f"an extra turn brings tests: {name}", rate > 0, f"{rate:.2f} tests a turn")
        for name, rate in tests_per_extra_turn.items()
    ]


def check_warm_critic(variance: pd.DataFrame, *, cold: float) -> list[Check]:
    """`variance` is explained_variance of our run; cold: the quoted cold start."""
    last = variance.tail(max(1, len(variance) // 4))
    critic, baseline = last["critic"].mean(), last["num_tests_baseline"].mean()
    first = variance["critic"].iloc[0]
    return [
        Check("our warm critic starts above -1", first > -1, f"{first:.2f}"),
        Check(
            "it ends above the line through the number of tests",
            critic > baseline,
            f"{critic:.2f}, {baseline:.2f}",
        ),
        Check("the quoted cold start is far below", cold < variance["critic"].min(), f"{cold:g}"),
    ]


def check_fidelity(
    gaps: Mapping[str, pd.DataFrame], *, shares: Mapping[str, float], sizes: pd.DataFrame, quoted_bytes: float
) -> list[Check]:
    """`gaps`: logprob_gap by run; `shares`: audit_shares; `sizes`: route_sizes."""
    size = dict(zip(sizes["encoding"], sizes["bytes"], strict=True))
    lower = [
        Check(
            f"replay lowers the gap: {name}", gap["replayed"].mean() < gap["free"].mean(), "means over steps"
        )
        for name, gap in gaps.items()
    ]
    over = size["packed"] / size["the least possible"]
    return [
        *lower,
        Check("no drift in the loss region", shares["drift"] == 0, f"{shares['drift']}%"),
        Check("every trained token was delivered", shares["delivered"] == 100, f"{shares['delivered']}%"),
        Check("packed routes are within 10% of the least", 1 <= over < 1.1, f"{over:.3f} times"),
        Check("48 layers of 8 ids of 4 bytes are quoted", quoted_bytes == 48 * 8 * 4, f"{quoted_bytes:g} B"),
    ]


def check_capacity(
    terms: pd.DataFrame,
    *,
    logits: Mapping[str, float],
    sweep: pd.DataFrame,
    operator: pd.DataFrame,
    peaks: pd.DataFrame,
) -> list[Check]:
    """`terms`: plan_terms; `logits`: quoted, by plan; `sweep`: expert_parallel_terms; `operator`:
    context_parallel_peaks; `peaks`: predicted_peaks."""
    computed = terms[terms["term"] == "logits"].set_index("plan")["gib"]
    apart = max(abs(computed[plan] - value) for plan, value in logits.items())
    worst = peaks["residual_gib"].abs().max()
    return [
        Check("quoted logits are computed", apart < 0.1, f"{apart:.3f} GiB apart at most"),
        Check(
            "expert parallelism leaves the optimiser alone",
            sweep["optimiser_gib"].nunique() == 1,
            "one value",
        ),
        Check("slices give the whole's bits", bool(operator["is_bit_exact"].all()), f"{len(operator)} cases"),
        Check("every peak is predicted within 0.1 GiB", worst < 0.1, f"{worst:.3f} GiB"),
    ]


def check_throughput(
    times: pd.DataFrame, *, warm: pd.DataFrame, lost: pd.DataFrame, quoted: Mapping[str, float]
) -> list[Check]:
    """`times`: time_split of a run; `warm`: step and train_s on a GPU; `lost`: lost_by_family; `quoted`: topic step."""
    over = float((times["total_s"] / times[["rollout_s", "train_s"]].max(axis=1)).median())
    shift = lost["turns"].corr(lost["lost_frac"])
    return [
        Check("a step takes little more than its longer side", over < 1.1, f"{over:.3f} times"),
        Check(
            "the quoted step is the sum of its sides",
            quoted["rollout"] + quoted["train"] == quoted["step"],
            "16 + 41",
        ),
        Check(
            "the first step on a GPU is the slowest",
            warm["train_s"].idxmax() == warm.index[0],
            f"{warm['train_s'].max():.1f} s",
        ),
        Check("families with more turns are lost more often", shift > 0.3, f"correlation {shift:.2f}"),
    ]


def check_rewards(table: pd.DataFrame, *, pays: pd.DataFrame, largest: float) -> list[Check]:
    """`table`: reward_by_passed with a task of 55 tests; `pays`: farming_pays; largest: the quoted largest reward."""
    found = table[table["kind"] == "dense"]["reward"].max()
    farming = dict(zip(pays["shaping"], pays["farming_pays"], strict=True))
    return [
        Check("55 tests are the largest quoted reward", math.isclose(found, largest), f"{found}"),
        Check(
            "no ratio and no binary reward exceeds 1",
            table[table["kind"] != "dense"]["reward"].max() == 1,
            "1",
        ),
        Check(
            "farming pays without shaping and under the penalty",
            farming["none"] and farming["additive"],
            f"{farming}",
        ),
        Check("and loses under the discount", not farming["multiplicative"], f"{farming}"),
    ]


def check_context(regions: pd.DataFrame, *, asked: int, refusal: str) -> list[Check]:
    """`regions`: summary_regions; refusal: what our budget says to the trigger in the quoted region."""
    at = dict(zip(regions["bound"], regions["tokens"], strict=True))
    over = at["seen"] + asked - at["window"]
    return [
        Check("the quoted prompt is 717 tokens too long", over == 717, f"{over}"),
        Check(
            "it is asked only where none fits",
            at["asked from"] > at["longest feasible"],
            f"{at['asked from']:,}",
        ),
        Check("ours asks where one fits", at["ours"] < at["longest feasible"], f"{at['ours']:,}"),
        Check(
            "a trigger in the quoted region is refused",
            "outside the feasible region" in refusal,
            refusal[:90],
        ),
    ]


def check_behaviour(
    trials: pd.DataFrame, *, tests: pd.DataFrame, changes: pd.DataFrame, gain: Interval
) -> list[Check]:
    """`tests`: Run.all_tests; `changes`: assertion_changes; gain: window_gain of the two windows."""
    counted = tests.assign(ok=tests["status"] == "passed").groupby("trial_id")["ok"].sum()
    graded = trials[trials["trial_id"].isin(counted.index)].set_index("trial_id")["passed"]
    apart = int((graded != counted.reindex(graded.index)).sum())
    return [
        Check("the mean reward of the windows is the same", not gain.excludes_zero, str(gain)),
        Check(
            "tests and rewards tell the same counts", apart == 0, f"{apart} of {len(graded)} trials differ"
        ),
        Check(
            "every kind has an interval",
            bool(changes[["low", "high"]].notna().all().all()),
            f"{len(changes)} kinds",
        ),
    ]


def check_pools(
    weights: pd.DataFrame,
    *,
    outcome: pd.DataFrame,
    shares: Mapping[str, float],
    counts: Mapping[str, float],
    tasks: float,
) -> list[Check]:
    """Quoted audit weights and outcome (accept, borderline, reject first), category shares and counts, tasks of the
    pool."""
    apart = max(abs(100 * count / tasks - shares[name]) for name, count in counts.items())
    return [
        Check("audit weights add up to 100", weights["value"].sum() == 100, f"{weights['value'].sum():g}"),
        Check("audit outcomes add up to the pool", outcome["value"].iloc[:3].sum() == tasks, f"{tasks:,.0f}"),
        Check("category shares stay below 100%", sum(shares.values()) < 100, f"{sum(shares.values()):.1f}%"),
        Check("category counts are their shares", apart < 0.006, f"{apart:.4f} points apart at most"),
    ]
