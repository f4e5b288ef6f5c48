"""`t1 notebook`: execute a notebook, keep the copy with the run it launched, and end that run when interrupted."""

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from t1core.campaign.launch import LAUNCHES_ENV, read_launch, read_launches
from t1core.campaign.notebook import CellFailed, ExecutedNotebook, read_spec, run_notebook
from t1core.store import Run

Say = Callable[[str], None]
# A campaign that is told to end gives boxes and engine 20 s each, and Ray some.
_END_DEADLINE_S = 90.0


def execute(spec: Path, *, overrides: Iterable[str], output: Path | None, say: Say) -> ExecutedNotebook:
    """Run the notebook of a YAML spec and say where it, its HTML twin and its run directory lie.

    Without `output` the executed copy goes into the notebooks folder of the run it launched, or, if it launched none,
    into `runs/notebooks`. Raises ValueError for a wrong spec, CellFailed when a cell fails, KeyboardInterrupt after
    having ended the campaigns it launched; the copy then holds what ran until there.
    """
    changes = dict(_split(override) for override in overrides)
    plan = read_spec(spec, changes=changes)
    target = output or Path("runs") / "notebooks" / f"{spec.stem}.ipynb"
    began, earlier = time.monotonic(), _written_ns(target)
    with tempfile.NamedTemporaryFile("r", prefix="t1-launches-") as launches:
        os.environ[LAUNCHES_ENV] = launches.name
        noted = Path(launches.name)
        try:
            executed = run_notebook(plan.notebook, parameters=plan.parameters, output=target)
        except CellFailed as failure:
            _place(failure.executed, noted, keep=output is not None, say=say)
            raise
        except KeyboardInterrupt:
            _end_launched(noted, say)
            if _written_ns(target) != earlier:  # not the copy of an earlier execution
                partial = ExecutedNotebook(target, None, time.monotonic() - began)
                _place(partial, noted, keep=output is not None, say=say)
            raise
        finally:
            del os.environ[LAUNCHES_ENV]
        return _place(executed, noted, keep=output is not None, say=say)


def _written_ns(path: Path) -> int | None:
    """When the file was written, or None where there is none."""
    return path.stat().st_mtime_ns if path.exists() else None


def _split(override: str) -> tuple[str, str]:
    name, separator, text = override.partition("=")
    if not separator:
        raise ValueError(f"parameter {override!r} is not of the form name=value")
    return name.strip(), text


def _place(executed: ExecutedNotebook, noted: Path, *, keep: bool, say: Say) -> ExecutedNotebook:
    runs = [run for _, run in read_launches(noted) if run.is_dir()]
    if runs and not keep:
        folder = runs[-1] / "notebooks"
        notebook = executed.notebook.rename(folder / executed.notebook.name)
        html = executed.html.rename(folder / executed.html.name) if executed.html else None
        executed = ExecutedNotebook(notebook, html, executed.seconds)
    say(f"executed notebook: {executed.notebook.resolve()}")
    if executed.html:
        say(f"HTML twin:         {executed.html.resolve()}")
    for run in runs:
        say(f"run directory:     {run}")
    return executed


def _end_launched(noted: Path, say: Say) -> None:
    """Tell the launched campaigns to end and wait until they have, so that their final status is what is said."""
    runs = [run for pid, run in read_launches(noted) if pid is not None]
    launches = {run: launch for run in runs if (launch := read_launch(run)) and launch.is_alive}
    for run, launch in launches.items():
        say(f"interrupted: ending the campaign of {run}")
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.kill(launch.pid, signal.SIGINT)
    deadline = time.monotonic() + _END_DEADLINE_S
    while time.monotonic() < deadline and any(launch.is_alive for launch in launches.values()):
        time.sleep(0.2)
    for run, launch in launches.items():
        if launch.is_alive:
            say(f"it has not ended within {_END_DEADLINE_S:g} s; end it with: kill -9 {launch.pid}")
        elif (run / "status.json").is_file():
            say(f"it ended as {Run.open(run).status().state}")
