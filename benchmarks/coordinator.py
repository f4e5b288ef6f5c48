"""What coordinating a step costs as trials grow: the campaigns' own scheduler over scripted trials in virtual time.

    python -m benchmarks.coordinator [--smallest 512] [--middle 1600] [--largest 5000] [--num-steps 4] [--keep]

All trials of a step are live at once, with turn times from a heavy tail, boxes paced at six a second, the last tenth
cut. A step's CPU seconds over its virtual seconds are the cores that coordinating it takes; the exponent is that of CPU
seconds against trials over the three sizes. Memory is what one more step leaves behind, after collection.
"""

import gc
import math
from typing import Any

import psutil

from benchmarks.kept import Comparison, command_line, finish
from benchmarks.pacing import simulate

_KEPT = 0.9


def exponent(costs: dict[int, float]) -> float:
    """Slope of log cost over log size, by least squares: 1 is linear."""
    points = [(math.log(size), math.log(cost)) for size, cost in costs.items()]
    mean_x, mean_y = (sum(axis) / len(points) for axis in zip(*points, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


def measure(*, sizes: tuple[int, ...], num_steps: int) -> dict[str, Any]:
    """For each size the step of least CPU time; bytes left by a step of the smallest size."""
    by_size = {}
    for size in sizes:
        steps = [simulate(size, keep=_KEPT, max_live=size, rate_per_s=6.0) for _ in range(num_steps)]
        by_size[size] = min(steps, key=lambda step: step["coordinator_cpu_s"])
    held = []
    for _ in range(num_steps):
        simulate(sizes[0], keep=_KEPT, max_live=sizes[0], rate_per_s=6.0)
        gc.collect()
        held.append(psutil.Process().memory_info().rss)
    return {
        "by_size": by_size,
        "exponent": exponent({size: step["coordinator_cpu_s"] for size, step in by_size.items()}),
        "bytes_left_by_a_step": (held[-1] - held[0]) / (num_steps - 1),
        "resident_bytes": held[-1],
    }


def main() -> None:
    given, keep = command_line(__doc__, smallest=512, middle=1600, largest=5000, num_steps=4)
    sizes = (given["smallest"], given["middle"], given["largest"])
    found = measure(sizes=sizes, num_steps=given["num_steps"])
    for size, step in found["by_size"].items():
        print(
            f"{size:6} trials  {step['coordinator_cpu_s']:.3f} CPU s  {step['cpu_us_per_trial']:.0f} us a trial  "
            f"step of {step['virtual_s']:.0f} virtual s"
        )
    print(f"a step leaves {found['bytes_left_by_a_step'] / 2**20:+.2f} MiB behind")
    first = found["by_size"][sizes[0]]
    comparisons = [
        Comparison(
            "exponent of CPU time in trials", "linear", "", found["exponent"], 1.0, is_more_better=False, target=1.1
        ),
        Comparison(
            f"coordinating {sizes[0]} trials", "one core", "cores", first["coordinator_cpu_s"] / first["virtual_s"],
            1.0, is_more_better=False, target=1.0,
        ),
    ]  # fmt: skip
    finish("coordinator", comparisons, parameters=given, detail=found, keep=keep)


if __name__ == "__main__":
    main()
