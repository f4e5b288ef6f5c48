"""The tail of a run: what is new in its metrics and its status, read while another process writes."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from t1core.store.journal import read_entries
from t1core.store.live import InFlight, read_live
from t1core.store.status import Status, read_status


@dataclass(frozen=True)
class MetricRow:
    """Metrics that were recorded together. `time` is Unix seconds, `kind` is train or eval."""

    step: int
    kind: str
    time: float
    values: Mapping[str, float]


@dataclass(frozen=True)
class Update:
    """What changed since the last look: the status now, the metric rows that are new, and the trials in flight (None
    where the run does not say, as when it has ended)."""

    status: Status
    rows: tuple[MetricRow, ...]
    live: InFlight | None = None


def read_metric_rows(path: Path, *, offset: int = 0) -> Iterator[tuple[MetricRow, int]]:
    """(row, offset after it) for every complete line of a metrics journal from a byte offset on."""
    for entry, after in read_entries(path, offset=offset):
        values = {name: float(value) for name, value in entry["values"].items()}
        yield MetricRow(entry["step"], entry["kind"], entry["time"], values), after


def follow(*, metrics: Path, status: Path, live: Path, poll_s: float) -> Iterator[Update]:
    """An Update whenever something changed, the first at once; the last when the run has ended or died.

    Reads only; any number of followers may come and go.
    """
    offset, seen = 0, (None, None)
    while True:
        now = read_status(
            status
        )  # before the metrics: a final status then never hides rows written before it
        ended = now.state.is_final or not now.is_alive
        news = list(read_metric_rows(metrics, offset=offset))
        flying = None if ended else read_live(live)
        if news or (now, flying) != seen:
            yield Update(now, tuple(row for row, _ in news), flying)
            seen = now, flying
        offset = news[-1][1] if news else offset
        if ended:
            return
        time.sleep(poll_s)
