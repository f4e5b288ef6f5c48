"""A run's step time beside the longer of its two sides, and what both sides take of the processors.

    python -m benchmarks.overlap RUN [--keep]

Reads a run that has ended. Rollout and training of one step run at once, so on disjoint devices a step takes as long as
the longer side. On shared cores it still does, but each side is slower than it would be alone: the CPU seconds of all
parts over the step's wall time and the machine's cores say how full the machine was.
"""

import argparse
from pathlib import Path
from typing import Any

from benchmarks.kept import Comparison, finish
from t1core.analysis.cost import CPU_PARTS, cpu_budget, time_split
from t1core.store import Run


def measure(run: Run, *, num_cpus: int) -> dict[str, Any]:
    """Medians over the run's steps in seconds; the share of the processors that was used."""
    metrics = run.metrics()
    split = time_split(metrics).dropna(subset=["total_s", "rollout_s", "train_s"])
    longer = split[["rollout_s", "train_s"]].max(axis=1)
    budget = cpu_budget(metrics, num_cpus=num_cpus).set_index("part")["share"]
    return {
        "num_steps": len(split),
        "step_s": float(split["total_s"].median()),
        "longer_side_s": float(longer.median()),
        "ratio_by_step": (split["total_s"] / longer).tolist(),
        "processors_used": float(sum(budget[part] for part in CPU_PARTS)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="directory of a run that has ended")
    parser.add_argument("--num-cpus", type=int, default=2, help="cores that it had")
    parser.add_argument("--keep", action="store_true", help="write the result where git keeps it")
    given = parser.parse_args()
    found = measure(Run.open(given.run), num_cpus=given.num_cpus)
    print(
        f"{found['processors_used']:.0%} of {given.num_cpus} cores' time used by the parts that are counted"
    )
    beside = Comparison(
        "a step", "the longer of rollout and training", "s", found["step_s"], found["longer_side_s"],
        is_more_better=False, target=1.05,
    )  # fmt: skip
    finish(
        "overlap",
        [beside],
        parameters={"run": given.run.name, "num_cpus": given.num_cpus},
        detail=found,
        keep=given.keep,
    )


if __name__ == "__main__":
    main()
