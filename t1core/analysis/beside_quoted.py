"""Frames in which quoted numbers and ours stand side by side. Quoted frames have name, what, x, value; all values are
as they were published."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from t1core.analysis.heldout import heldout_gain
from t1core.analysis.learning import accepted, quarters
from t1core.analysis.noise import difference_z

_OWN = {
    "base": "base",
    "rst_sft": "SFT",
    "rl_tmax": "RL, TMax-15k",
    "rl_rst_38k": "RL, RST-38k",
    "t1": "T1",
    "t1_70": "T1, step 70",
}


def labelled(topic: pd.DataFrame, *, own: Sequence[str]) -> pd.DataFrame:
    """name, value, label and own of the scores of a benchmark: those of `own` and of other models, without stages in
    between."""
    scores = topic[(topic["unit"] == "%") & ~topic["name"].str.contains("gain|blog|rl_")]
    labels = [_OWN.get(name, _model(what)) for name, what in zip(scores["name"], scores["what"], strict=True)]
    frame = pd.DataFrame({"name": scores["name"], "value": scores["value"], "label": labels})
    return frame.assign(own=frame["name"].isin(own)).reset_index(drop=True)


def _model(what: str) -> str:
    return what.split(" on Terminal")[0].split(":")[0].split(" under ")[0]


def stage_table(
    tb21: Mapping[str, float], *, lhtb: Mapping[str, float], tbh: Mapping[str, float], tasks: int
) -> pd.DataFrame:
    """A row a stage of the one model: its scores, tasks that the first is, and standard errors of a difference from
    SFT."""
    stages = ("base", "rst_sft", "rl_tmax", "rl_rst_38k", "t1")
    sft = tb21["rst_sft"] / 100
    rows = [
        {
            "stage": _OWN[name],
            "terminal-bench": tb21[name],
            "tasks": tb21[name] * tasks / 100,
            "errors from SFT": difference_z(sft, tb21[name] / 100, tasks=tasks) if name != "rst_sft" else 0.0,
            "LHTB": lhtb.get(name, np.nan),
            "TBH": tbh.get(name, np.nan),
        }
        for name in stages
    ]
    return pd.DataFrame(rows).set_index("stage")


def campaign_points(topic: pd.DataFrame) -> pd.DataFrame:
    """campaign, x, value of the quoted points of three campaigns; and a row a band with band_from, band_to, low,
    high."""
    values = dict(zip(topic["name"], topic["value"], strict=True))
    points = topic[topic["x"].notna() & (topic["unit"] == "%")]
    frame = pd.DataFrame(
        {"campaign": points["name"].str.split("_").str[0], "x": points["x"], "value": points["value"]}
    )
    bands = pd.DataFrame(
        [
            ("t1", 20.0, 60.0, values["t1_20_60_low"], values["t1_20_60_high"]),
            ("t1", 107.0, 113.0, values["t1_110_low"], values["t1_110_high"]),
            ("rst", 10.0, 70.0, values["rst_low"], values["rst_high"]),
        ],
        columns=["campaign", "band_from", "band_to", "low", "high"],
    )
    return pd.concat([frame, bands], ignore_index=True)


def heldout_by_run(trials: Mapping[str, pd.DataFrame], *, split: str = "heldout") -> pd.DataFrame:
    """A row a run: its `heldout_gain` of one split, and the step of its last evaluation."""
    parts = []
    for name, frame in trials.items():
        gain = heldout_gain(frame)
        steps = int(frame.loc[frame["kind"] == "eval", "step"].max())
        parts.append(gain[gain["split"] == split].assign(run=name, steps=steps))
    frame = pd.concat(parts, ignore_index=True)
    return frame[["run", *[name for name in frame.columns if name != "run"]]]


def turns_and_tokens(trials: pd.DataFrame) -> pd.DataFrame:
    """step, turns and tokens (of the last context, so all that a trial took in or gave) of accepted training trials."""
    means = accepted(trials).groupby("step")[["num_turns", "context_tokens"]].mean()
    return means.rename(columns={"num_turns": "turns", "context_tokens": "tokens"}).reset_index()


def tests_per_extra_turn(trials: pd.DataFrame) -> float:
    """Tests gained over turns gained, last quarter of steps less the first; NaN where turns did not grow."""
    kept = accepted(trials)
    first, last = quarters(kept["step"])
    before, after = (
        kept[kept["step"].isin(steps)][["passed", "num_turns"]].mean() for steps in (first, last)
    )
    turns = after["num_turns"] - before["num_turns"]
    return float((after["passed"] - before["passed"]) / turns) if turns > 0 else float("nan")


def routing_beside_quoted(frame: pd.DataFrame, *, quoted: pd.DataFrame) -> pd.DataFrame:
    """A row a quantity of the routing-replay paper with the nano policy's beside it, where there is one: bf16 engine,
    fp32 trainer, long rows, the weights that sampled. `frame` is a measured routing gap."""
    here = frame.query(
        "model == 'policy' and horizon == 'long' and engine == 'bf16' and trainer == 'fp32' and layer == -1 and "
        "weights == 'those that sampled'"
    ).set_index("routing")
    ours = {
        "moe": here.loc["free", "k3"],
        "moe_r3": here.loc["replayed", "k3"],
        "flips": 100 * here.loc["free", "flip_frac"],
        "tokens": 100 * here.loc["free", "flip_token_frac"],
    }
    return quoted[["what", "unit"]].assign(quoted=quoted["value"], measured=quoted["name"].map(ours))


def audit_beside_quoted(shares: Mapping[str, float], *, quoted: Mapping[str, float]) -> pd.DataFrame:
    """what, quoted, measured, in percent. Ours are of boundaries for the first two: with none that changes, every
    position is aligned."""
    rows = [
        ("aligned", quoted["aligned"], shares["strict"]),
        ("retokenised or placeholder", quoted["changed"], shares["retokenized"] + shares["placeholder"]),
        ("drift in the loss region", quoted["drift"], shares["drift"]),
    ]
    return pd.DataFrame(rows, columns=["what", "quoted", "measured"])


def steps_beside_quoted(ours: Mapping[str, pd.DataFrame], *, quoted: Mapping[str, float]) -> pd.DataFrame:
    """where, rollout, train, step, unit, is_quoted: the quoted step in minutes, then the median step of each of ours,
    in seconds. `ours`: analysis.time_split by name."""
    rows = [("T1, 128 GPUs", quoted["rollout"], quoted["train"], quoted["step"], "min", True)]
    for name, frame in ours.items():
        medians = frame[["rollout_s", "train_s", "total_s"]].dropna().median()
        rows.append((name, medians["rollout_s"], medians["train_s"], medians["total_s"], "s", False))
    return pd.DataFrame(rows, columns=["where", "rollout", "train", "step", "unit", "is_quoted"])


def replica_times(groups: float, *, rate: float, most: int = 4) -> pd.DataFrame:
    """x, value: minutes that so many replicas take for `groups` groups, each `rate` a minute."""
    replicas = np.arange(1, most + 1)
    return pd.DataFrame({"x": replicas, "value": groups / (rate * replicas)})


def split_names(topic: pd.DataFrame, *, columns: tuple[str, str]) -> pd.DataFrame:
    """Names `a_b` as two columns, and value."""
    parts = topic["name"].str.rsplit("_", n=1, expand=True)
    return pd.DataFrame({columns[0]: parts[0], columns[1]: parts[1], "value": topic["value"]})


def domain_rows(topic: pd.DataFrame) -> pd.DataFrame:
    """label, model, value, tasks of the quoted domains."""
    models = {"t1": "T1", "gpt": "GPT-5.6 Sol"}
    labels = topic["what"].str.split(":").str[0]
    return pd.DataFrame(
        {
            "label": labels,
            "model": topic["name"].str.rsplit("_", n=1).str[1].map(models),
            "value": topic["value"],
            "tasks": topic["x"],
        }
    )


def our_cases(table: pd.DataFrame) -> pd.DataFrame:
    """trial, solved, turns, commands, repeated (percent) of `case_table`, whose trials are named solved and
    unsolved."""
    return pd.DataFrame(
        {
            "trial": "ours",
            "solved": table["trial"] == "solved",
            "turns": table["turns"],
            "commands": table["commands"],
            "repeated": 100 * table["repeated_frac"],
        }
    )


def quoted_cases(quoted: pd.DataFrame) -> pd.DataFrame:
    """The same of the four quoted trials; `quoted` is the frame of all quoted numbers."""
    values = dict(zip(quoted["key"], quoted["value"], strict=True))
    rows = [
        (
            f"{task}: {label}",
            solved,
            *(values[f"{case}/{who}_{what}"] for what in ("turns", "commands", "repetition")),
        )
        for case, task in (("case_a", "build-pov-ray"), ("case_b", "polyglot-c-py"))
        for who, label, solved in (("t1", "T1", True), ("sft", "SFT", False))
    ]
    return pd.DataFrame(rows, columns=["trial", "solved", "turns", "commands", "repeated"])
