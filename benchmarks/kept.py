"""What a benchmark found: its last lines, and its result with the machine and versions it was measured on.

A result is written to build/benchmarks, or with --keep to figures/results, which git keeps; regression.py compares
the two.
"""

import argparse
import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KEPT, FRESH = ROOT / "figures" / "results", ROOT / "build" / "benchmarks"
_LIBRARIES = ("numpy", "pyarrow", "torch", "transformers", "megatron-core")


@dataclass(frozen=True)
class Comparison:
    """A quantity in `unit` beside the same quantity of what bounds it. `target` bounds measured over limit, from below
    where more is better; None where none was set.
    """

    what: str
    against: str
    unit: str
    measured: float
    limit: float
    is_more_better: bool
    target: float | None = None

    @property
    def ratio(self) -> float:
        return self.measured / self.limit

    @property
    def holds(self) -> bool | None:
        if self.target is None:
            return None
        return self.ratio >= self.target if self.is_more_better else self.ratio <= self.target

    def line(self) -> str:
        told = ""
        if self.target is not None:
            bound = "at least" if self.is_more_better else "at most"
            told = f"; target {bound} {self.target:g}: {'held' if self.holds else 'missed'}"
        return (
            f"{self.what} against {self.against}: {self.measured:.4g} {self.unit}, limit {self.limit:.4g} {self.unit}, "
            f"ratio {self.ratio:.3f}{told}"
        )


def command_line(doc: str | None, **numbers: int) -> tuple[dict[str, int], bool]:
    """The whole numbers that a benchmark takes as options, defaults given, and whether its result is to be kept."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in numbers.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--keep", action="store_true", help="write the result where git keeps it")
    given = vars(parser.parse_args())
    return given, given.pop("keep")


def medians(taken: Mapping[str, Sequence[tuple[float, float]]]) -> dict[str, float]:
    """NAME_wall_s and NAME_cpu_s: medians of the (wall, CPU) seconds taken by each name."""
    return {
        f"{name}_{kind}_s": statistics.median(pair[place] for pair in pairs)
        for name, pairs in taken.items()
        for place, kind in enumerate(("wall", "cpu"))
    }


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "kernel": platform.release(),
        "python": platform.python_version(),
    } | {name: metadata.version(name) for name in _LIBRARIES}


def finish(
    name: str,
    comparisons: Sequence[Comparison],
    *,
    parameters: dict[str, Any],
    detail: dict[str, Any],
    keep: bool,
) -> Path:
    """Write the result of benchmark `name`, and print ratios and limits last. Returns where it was written."""
    directory = KEPT if keep else FRESH
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.json"
    told = [asdict(one) | {"ratio": one.ratio, "holds": one.holds} for one in comparisons]
    found = {"parameters": parameters, "comparisons": told, "detail": detail, "machine": machine()}
    path.write_text(json.dumps(found, indent=2) + "\n")
    print(f"written to {path}")
    for one in comparisons:
        print(one.line())
    return path
