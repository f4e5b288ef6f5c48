"""What our kept runs and benchmarks measured of the quantities that are quoted, at our scale, with 95% intervals.

Intervals are over steps, or trials, by Student's t. Our runs have a model of 1.4M parameters and practice tasks of
two to four turns: a value here says what the same quantity is there, and neither confirms nor denies the quoted one.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from t1core import analysis
from t1core.analysis import Interval, mean_interval
from t1core.analysis.tests_per_task import quantile
from t1core.store import Run

RESULTS = Path("figures") / "results"
_IDLE, _GPU = "run nano_idle", "run h200x1"


@dataclass(frozen=True)
class Measured:
    """A mean with its interval (NaN bounds where there is one value alone), in `unit`, and what it is of."""

    interval: Interval
    unit: str
    of: str


def measured_numbers(results: Path = RESULTS) -> dict[str, Measured]:
    """Every quoted quantity that was measured, by key."""
    kept = _Kept(results)
    return kept.learning() | kept.fidelity() | kept.time() | kept.memory()


@dataclass(frozen=True)
class _Kept:
    results: Path

    @cached_property
    def nano(self) -> Run:
        return Run.open(self.results / "nano_idle")

    @cached_property
    def trials(self) -> pd.DataFrame:
        return self.nano.trials()

    @cached_property
    def steps(self) -> pd.DataFrame:
        return self.nano.metrics("train")

    @cached_property
    def gpu_steps(self) -> pd.DataFrame:
        return Run.open(self.results / "h200x1").metrics("train")

    def json(self, name: str) -> dict:
        return json.loads((self.results / f"{name}.json").read_text())

    def learning(self) -> dict[str, Measured]:
        kept = analysis.accepted(self.trials)
        size = self.steps.index.nunique() // 4
        ends = {
            "start": kept[kept["step"] < size],
            "end": kept[kept["step"] >= self.steps.index.max() + 1 - size],
        }
        ev = analysis.explained_variance(self.steps, trials=self.trials)["critic"].dropna()
        told = {"start": f"first {size} steps, {_IDLE}", "end": f"last {size} steps, {_IDLE}"}
        tests = analysis.tests_per_task(self.trials)
        found = {
            "reward/start": Measured(mean_interval(ends["start"]["reward"]), "", told["start"]),
            "reward/plateau_high": Measured(mean_interval(ends["end"]["reward"]), "", told["end"]),
            "reward/tests": Measured(mean_interval(ends["end"]["passed"]), "tests", told["end"]),
            "turns/start": Measured(mean_interval(ends["start"]["num_turns"]), "turns", told["start"]),
            "turns/end": Measured(mean_interval(ends["end"]["num_turns"]), "turns", told["end"]),
            "tokens/start": Measured(mean_interval(ends["start"]["context_tokens"]), "tokens", told["start"]),
            "tokens/end": Measured(mean_interval(ends["end"]["context_tokens"]), "tokens", told["end"]),
            "ev/warm_start": Measured(mean_interval(ev.iloc[:5]), "", f"first five steps, {_IDLE}"),
            "ev/warm_high": Measured(mean_interval(ev.iloc[-size:]), "", told["end"]),
            "pool/tests_median": _one(quantile(tests, 0.5), "tests", f"practice tasks, {_IDLE}"),
            "pool/tests_p90": _one(quantile(tests, 0.9), "tests", f"practice tasks, {_IDLE}"),
            "pool/tests_max": _one(quantile(tests, 1.0), "tests", f"practice tasks, {_IDLE}"),
            "reward/largest": _one(kept["reward"].max(), "", _IDLE),
        }
        ended = self.trials[(self.trials["kind"] == "train") & (self.trials["outcome"] != "failed")]
        lost = 100 * (ended["outcome"] != "accepted").astype(float)
        return found | {
            "skim/cut": Measured(mean_interval(lost), "% of launched", f"{len(ended)} trials, {_IDLE}")
        }

    def fidelity(self) -> dict[str, Measured]:
        steps, shares = self.steps, analysis.audit_shares(self.steps)
        boundaries = f"{shares['boundaries']:,.0f} boundaries, {_IDLE}"
        routing = pd.read_parquet(self.results / "routing_gap.parquet")
        here = routing.query(
            "model == 'policy' and horizon == 'long' and engine == 'bf16' and trainer == 'fp32' and weights == "
            "'those that sampled' and layer == -1"
        ).set_index("routing")
        packed = self.json("route_storage")["detail"]["bytes_per_token"]["packed"]
        of = "nano policy, bf16 engine, fp32 trainer, routing_gap"
        dense = routing.query(
            "model == 'dense' and num_layers == 12 and horizon == 'long' and engine == 'bf16' and trainer == 'fp32' "
            "and weights == 'those that sampled' and layer == -1 and routing == 'free'"
        )
        return {
            "gap/with": Measured(mean_interval(steps["logprob_gap/abs_mean"]), "nats", f"replayed, {_IDLE}"),
            "gap/without": Measured(
                mean_interval(steps["logprob_gap_free/abs_mean"]), "nats", f"routing free, {_IDLE}"
            ),
            "gap/band_low": _one(steps["logprob_gap/abs_mean"].min(), "nats", f"lowest step, {_IDLE}"),
            "gap/band_high": _one(steps["logprob_gap/abs_mean"].max(), "nats", f"highest step, {_IDLE}"),
            "gap/loss_tokens": _one(
                steps["train/loss_tokens"].sum() / steps["rollout/accepted"].sum(),
                "tokens",
                f"loss tokens a trial, {_IDLE}",
            ),
            "tito/aligned": _one(shares["strict"], "% strict", boundaries),
            "tito/changed": _one(shares["retokenized"], "% retokenised", boundaries),
            "tito/placeholder": _one(shares["placeholder"], "%", _IDLE),
            "tito/drift": _one(
                shares["drift"], "%", f"{int(steps['train/loss_tokens'].sum()):,} loss tokens, {_IDLE}"
            ),
            "tito/flag_false": _one(100 - shares["strict"], "% of boundaries", boundaries),
            "r3/bytes": _one(packed, "B", "48 layers, 8 of 256, packed, route_storage"),
            "r3kl/moe": _one(here.loc["free", "k3"], "nats (k3)", of),
            "r3kl/moe_r3": _one(here.loc["replayed", "k3"], "nats (k3)", of),
            "r3kl/dense": _one(
                dense["k3"].iloc[0], "nats (k3)", "dense nano model of 12 layers, routing_gap"
            ),
            "r3kl/flips": _one(100 * here.loc["free", "flip_frac"], "%", of),
            "r3kl/tokens": _one(100 * here.loc["free", "flip_token_frac"], "%", of),
        }

    def time(self) -> dict[str, Measured]:
        gpu = self.gpu_steps.iloc[len(self.gpu_steps) // 2 :]
        found = {
            f"step/{name}": Measured(
                mean_interval(gpu[f"time/{name}_s"].dropna()), "s", f"last {len(gpu)} steps, {_GPU}"
            )
            for name in ("rollout", "train", "step")
        }
        return found | {
            "jit/first": _one(
                self.gpu_steps["time/train_s"].iloc[0], "s", f"training of the first step, {_GPU}"
            ),
            "jit/last": _one(
                gpu["time/train_s"].median(), "s", f"median of the last {len(gpu)} steps, {_GPU}"
            ),
        }

    def memory(self) -> dict[str, Measured]:
        operator = analysis.context_parallel_peaks(self.json("gdn_context_parallel"))
        four = operator[operator["slices"] == 4]
        calibration = self.json("capacity_calibration")
        peaks = analysis.predicted_peaks(calibration)
        held_out = peaks[peaks["part"] == "held out"]
        alpha = calibration["coefficients"]["alpha_bytes"] / 1024
        return {
            "gdn/ratio": _one(
                1 / four["peak_over_whole"].max(), "x", "operator in four slices, H200, gdn_context_parallel"
            ),
            "gdn/gradient": _one(
                operator["gradient"].max(), "", "decay's gradient, fp32, relative, gdn_context_parallel"
            ),
            "gdn/per_token": _one(alpha, "KiB", "a layer of the 122B width, H200, capacity_calibration"),
            "memory/crash_error": _one(
                held_out["residual_gib"].abs().max(),
                "GiB",
                "seven held-out peaks, H200, capacity_calibration",
            ),
        }


def _one(value: float, unit: str, of: str) -> Measured:
    return Measured(Interval(float(value), float("nan"), float("nan")), unit, of)
