"""Micro-batches whose first passes wait for a compiler, told from ranks that wait for one another.

The compiler is torch's own tracer, which compiles a function anew for each shape that it has not seen,
as kernels are on a first step.
"""

import time
from collections.abc import Sequence
from typing import Literal

import torch

Reading = Literal["compiling", "steady", "hanging"]


class CompiledStep:
    """A function that is compiled on first use for each of several shapes; `num_compiled` counts."""

    def __init__(self) -> None:
        self.num_compiled = 0
        torch.compiler.reset()
        self._step = torch.compile(_mixed, backend=self._counting, dynamic=False)

    def _counting(self, graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> torch.fx.GraphModule:
        self.num_compiled += 1
        return graph

    def warm_up(self, shapes: Sequence[int]) -> None:
        """One pass over each shape, before anything is timed."""
        for shape in shapes:
            self._step(torch.ones(shape, 8))

    def seconds(self, shapes: Sequence[int]) -> list[float]:
        """Wall seconds of a micro-batch of each shape, in turn."""
        found = []
        for shape in shapes:
            began = time.perf_counter()
            self._step(torch.ones(shape, 8))
            found.append(time.perf_counter() - began)
        return found


def reading(seconds: Sequence[float], *, waiting_s: float = 0.0) -> Reading:
    """What one rank's seconds a micro-batch say, and how long it has been in its present one.

    compiling: the last third takes at most a fifth of the first third. hanging: the present one has taken ten
    times the longest so far. Else steady.
    """
    if waiting_s > 10 * max(seconds):
        return "hanging"
    third = max(1, len(seconds) // 3)
    first, last = sum(seconds[:third]) / third, sum(seconds[-third:]) / third
    return "compiling" if last <= first / 5 else "steady"


def _mixed(x: torch.Tensor) -> torch.Tensor:
    for _ in range(20):
        x = torch.softmax(x @ x.T, -1) @ x + torch.tanh(x)
    return x
