"""Metrics for other programs' eyes: TensorBoard and W&B, read from the run's journal as it is written.

A sink is a follower like any other. What goes wrong in one is said and ends the sink alone, never the campaign. Each
value goes out under its own name and under those that readers of other stacks search for.
"""

import asyncio
import contextlib
import importlib.util
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Protocol

from t1core.metrics.names import with_aliases
from t1core.store import MetricRow, Run

_log = logging.getLogger(__name__)
_PERIOD_S = 2.0
# The package of each sink; the extra that installs it has the sink's name.
PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb"}


class Sink(Protocol):
    """Takes rows in the order of the journal; called from one thread at a time."""

    def write(self, row: MetricRow) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in the run's own folder `tensorboard`, train and eval apart."""

    def __init__(self, run: Run) -> None:
        from tensorboard.summary import Writer

        folder = run.path / "tensorboard"
        self._writers = {kind: Writer(str(folder / kind)) for kind in ("train", "eval")}

    def write(self, row: MetricRow) -> None:
        for name, value in with_aliases(row.values).items():
            self._writers[row.kind].add_scalar(name, value, row.step)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


class WandB:
    """A W&B run of the campaign's name as project; its own environment variables say where to and whether online."""

    def __init__(self, run: Run) -> None:
        import wandb

        config = run.config()
        self._run = wandb.init(
            project=config.get("name", run.path.parent.name),
            name=run.path.name,
            config=dict(config),
            dir=str(run.path),
        )
        # Evaluations are recorded out of order, and a resumed run repeats steps.
        self._run.define_metric("*", step_metric="step")

    def write(self, row: MetricRow) -> None:
        self._run.log({"step": row.step, **with_aliases(row.values)})

    def close(self) -> None:
        self._run.finish()


SINKS: dict[str, type[Sink]] = {"tensorboard": TensorBoard, "wandb": WandB}


def missing_packages(sinks: Sequence[str]) -> Iterator[str]:
    """A sentence for each sink whose package is not installed, with the command that installs it."""
    for sink in sinks:
        if importlib.util.find_spec(PACKAGES[sink]) is None:
            yield (
                f"sinks names {sink!r} and the package {PACKAGES[sink]} is not installed; fix: "
                f"pip install 't1core[{sink}]', or leave it out"
            )


@contextlib.asynccontextmanager
async def feeding(run: Run, sinks: Sequence[str], *, period_s: float = _PERIOD_S) -> AsyncIterator[None]:
    """While the block runs, pass new metrics to the sinks; what is left at its end is passed on before it is over."""
    feeders = [asyncio.create_task(_feed(run, sink, period_s)) for sink in sinks]
    try:
        yield
    finally:
        for feeder in feeders:
            feeder.cancel()
        await asyncio.gather(*feeders, return_exceptions=True)


async def _feed(run: Run, name: str, period_s: float) -> None:
    try:
        sink = await asyncio.to_thread(SINKS[name], run)
        offset = 0
        try:
            while True:
                offset = await asyncio.to_thread(_pass_on, run, sink, offset)
                await asyncio.sleep(period_s)
        finally:
            _pass_on(run, sink, offset)
            sink.close()
    except Exception as error:  # another program's trouble is not the campaign's
        _log.warning("nothing more goes to %s: %s: %s", name, type(error).__name__, error)


def _pass_on(run: Run, sink: Sink, offset: int) -> int:
    for row, after in run.metric_rows(offset=offset):
        sink.write(row)
        offset = after
    return offset
