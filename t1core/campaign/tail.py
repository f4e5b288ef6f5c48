"""Watching a run in the terminal: a line a step as it ends, and below it how far the run is, at what rate, what its
trials in flight are doing and when it should be done. It only reads: leaving it does nothing to the run.
"""

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence

from t1core.store import InFlight, MetricRow, Run, RunState, Status

_RECENT = 10
_SLOWEST = 3
_STALE_S = 30.0
Say = Callable[[str], None]


def watch(run: Run, *, once: bool, say: Say) -> None:
    """Say what there is, then what is new until the run has ended. With `once` only the first. Where a person looks on,
    the overview is redrawn in place; elsewhere it is said at the start and at the end.
    """
    if sys.stdout.isatty() and not once:
        _watch_in_place(run)
        return
    rows: list[MetricRow] = []
    for number, update in enumerate(run.follow()):
        new = [line for row in update.rows if (line := step_line(row, update.status))]
        rows += update.rows
        for line in new[-_RECENT:] if number == 0 else new:
            say(line)
        if number == 0 or update.status.state.is_final or update.status.died:
            for line in overview_lines(update.status, rows, update.live, now=time.time()):
                say(line)
        if once:
            return


def _watch_in_place(run: Run) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    rows: list[MetricRow] = []
    with Live(console=Console(highlight=False), refresh_per_second=2) as display:
        for number, update in enumerate(run.follow()):
            new = [line for row in update.rows if (line := step_line(row, update.status))]
            rows += update.rows
            for line in new[-_RECENT:] if number == 0 else new:
                display.console.print(Text(line))
            told = overview_lines(update.status, rows, update.live, now=time.time())
            display.update(Text("\n".join(told), no_wrap=True))


def step_line(row: MetricRow, status: Status) -> str:
    """One line for the metrics of a step; "" for a row that holds nothing to say."""
    values = row.values
    if row.kind == "eval":
        solved = {
            name.split("/")[1]: value
            for name, value in values.items()
            if name.startswith("eval/") and name.endswith("/solved_frac")
        }
        told = "  ".join(f"{split} {value:.1%}" for split, value in solved.items())
        return f"held out, solved after step {row.step}: {told}" if told else ""
    shown = {
        "reward": ("reward/mean", "{:.3f}"),
        "solved": ("reward/solved_frac", "{:.1%}"),
        "EV": ("critic/explained_variance", "{:+.2f}"),
        "gap": ("logprob_gap/abs_mean", "{:.4f}"),
        "s/step": ("time/step_s", "{:.1f}"),
    }
    parts = [
        f"{name} {form.format(values[key])}"
        for name, (key, form) in shown.items()
        if math.isfinite(values.get(key, math.nan))
    ]
    return f"step {row.step + 1:3d}/{status.num_steps or '?'}  {'  '.join(parts)}" if parts else ""


def overview_lines(
    status: Status, rows: Sequence[MetricRow], live: InFlight | None, *, now: float
) -> list[str]:
    """State and progress, rates over the last steps, time left, trials in flight by state and the slowest of them.
    `now` is Unix seconds."""
    done, total = status.step + 1, status.num_steps
    head = f"{status.state}: {done} of {total or '?'} steps, attempt {status.attempt}"
    if status.died:
        head = f"died without a word: {done} of {total or '?'} steps, attempt {status.attempt}"
    elif not status.state.is_final and status.phase:
        head += f", {status.phase}"
    lines = [head]
    if status.error:
        lines.append(f"error: {status.error}")
    steps = list({row.step: row for row in rows if row.kind == "train"}.values())[-_RECENT:]
    if rate := _rate_line(steps):
        lines.append(rate)
    if status.state is RunState.RUNNING and not status.died and steps and total:
        step_s = _mean([row.values.get("time/step_s", math.nan) for row in steps])
        if math.isfinite(step_s):
            lines.append(
                f"time left: {_duration((total - done) * step_s)} at this rate, without held-out evaluation"
            )
    if live is not None and not status.died and not status.state.is_final:
        lines += _live_lines(live, age_s=now - live.at)
    return lines


def _rate_line(steps: Sequence[MetricRow]) -> str:
    seconds = [row.values.get("time/step_s", math.nan) for row in steps]
    total_s = math.fsum(value for value in seconds if math.isfinite(value))
    if not total_s:
        return ""
    told = [f"{_mean(seconds):.1f} s a step"]
    for name, unit in (("rollout/launched", "trials/min"), ("train/tokens", "trained tokens/s")):
        number = math.fsum(
            row.values.get(name, 0.0)
            for row, value in zip(steps, seconds, strict=True)
            if math.isfinite(value)
        )
        told.append(f"{number / total_s * (60 if unit.endswith('min') else 1):.1f} {unit}")
    return f"rates over the last {len(steps)} steps: {', '.join(told)}"


def _live_lines(live: InFlight, *, age_s: float) -> list[str]:
    counts = Counter(trial.state for trial in live.trials)
    told = ", ".join(f"{state} {number}" for state, number in counts.most_common()) or "none"
    lines = [f"trials in flight: {told}" + (f" (seen {age_s:.0f} s ago)" if age_s > _STALE_S else "")]
    for trial in sorted(live.trials, key=lambda one: -one.age_s)[:_SLOWEST]:
        lines.append(
            f"  slowest: {trial.trial_id}, task {trial.task_id}: {trial.age_s:.0f} s, {trial.num_turns} turns, "
            f"{trial.sampled_tokens} tokens; in {trial.state} for {trial.state_s:.0f} s"
        )
    return lines


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    return f"{minutes:.1f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return math.fsum(known) / len(known) if known else math.nan
