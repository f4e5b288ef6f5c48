"""The CPU trainer's PPO step beside its own matrix products alone.

    python -m benchmarks.cpu_step [--num-rows 20] [--length 600] [--num-steps 5] [--keep]

One process, one thread, the quickstart's model with random weights and rows of random tokens. The step is profiled once
for the shapes of its matrix products, and each shape is then timed by itself on random numbers: their sum is the
roofline of a step that does nothing else. It is set beside the CPU time of steps that nobody profiles. The profile's
largest operators, in CPU seconds of their own, say where the rest goes.
"""

import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu_model import write_random
from benchmarks.gpu_step import make_batch
from benchmarks.kept import Comparison, command_line, finish
from t1core.model.shape import ModelShape
from t1core.rollout.sglang.server import free_port
from t1core.train.settings import TrainSettings
from t1core.train.trainer import Trainer

_PRODUCTS = {"aten::mm": 2, "aten::bmm": 2, "aten::addmm": 3}  # operands; a form with `out` records one more
_WARM_UP = 2


@contextmanager
def nano_trainer() -> Iterator[Trainer]:
    """The quickstart's trainer on random weights, in this process."""
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "RANK": "0",
        "WORLD_SIZE": "1",
    }
    shape = ModelShape.nano(vocab_size=768)
    with tempfile.TemporaryDirectory() as scratch:
        write_random(shape, Path(scratch) / "model")
        settings = TrainSettings(actor_path=str(Path(scratch) / "model"), critic_path=None, shape=shape)
        trainer = Trainer(settings)
        trainer.setup()
        try:
            yield trainer
        finally:
            trainer.close()


def measure(*, num_rows: int, length: int, num_steps: int) -> dict[str, Any]:
    """CPU seconds of a step, of its products alone, and of its largest operators."""
    torch.set_num_threads(1)
    with nano_trainer() as trainer:
        shape = trainer.settings.shape

        def step(number: int) -> float:
            batch = make_batch(shape, num_rows=num_rows, length=length, seed=number, version=trainer.version)
            began = time.process_time()
            trainer.train_batch(batch, update_actor=True, expected_version_lag=0)
            took = time.process_time() - began
            trainer.rotate(trainer.version + 1)
            return took

        for number in range(_WARM_UP):
            step(number)
        steps_s = [step(_WARM_UP + number) for number in range(num_steps)]
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
            step(_WARM_UP + num_steps)
    shapes = Counter(
        (event.name, tuple(map(tuple, event.input_shapes[: _PRODUCTS[event.name]])))
        for event in profiled.events()
        if event.name in _PRODUCTS
    )
    alone_s = sum(count * product_s(name, sizes) for (name, sizes), count in shapes.items())
    largest = sorted(profiled.key_averages(), key=lambda event: -event.self_cpu_time_total)[:20]
    return {
        "step_s": float(np.median(steps_s)),
        "steps_s": steps_s,
        "products_alone_s": alone_s,
        "num_products": sum(shapes.values()),
        "largest": [
            {"name": event.key, "self_cpu_s": event.self_cpu_time_total * 1e-6, "calls": event.count}
            for event in largest
        ],
    }


def product_s(name: str, sizes: tuple[tuple[int, ...], ...], *, repeats: int = 3) -> float:
    """CPU seconds of one product of random matrices of these sizes, the best of some."""
    operands = [torch.randn(*size) for size in sizes]
    operator = getattr(torch, name.removeprefix("aten::"))
    operator(*operands)
    best = float("inf")
    for _ in range(repeats):
        began = time.process_time()
        operator(*operands)
        best = min(best, time.process_time() - began)
    return best


def main() -> None:
    given, keep = command_line(__doc__, num_rows=20, length=600, num_steps=5)
    found = measure(**given)
    for one in found["largest"]:
        print(f"{one['self_cpu_s']:8.3f} s  {one['calls']:6}  {one['name']}")
    beside = Comparison(
        "the nano model's training step", "its matrix products alone", "CPU s", found["step_s"],
        found["products_alone_s"], is_more_better=False,
    )  # fmt: skip
    finish("cpu_step", [beside], parameters=given, detail=found, keep=keep)


if __name__ == "__main__":
    main()
