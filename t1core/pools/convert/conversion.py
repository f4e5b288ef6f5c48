"""A conversion: every task written, read again, and one of them tried in a box before anything is kept.

source -> tasks in Harbor's layout -> each is read, its Dockerfile too -> one answers in a box -> a pool with an index
"""

import contextlib
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t1core.pools.convert.intercode_alfa import (
    convert_intercode_alfa,
    find_package,
    intercode_alfa_tasks,
    package_version,
)
from t1core.pools.convert.registry import convert_listed, registry_tasks
from t1core.pools.convert.terminal_bench import convert_terminal_bench, terminal_bench_tasks
from t1core.pools.convert.tmax import convert_tmax, tmax_tasks
from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.sandbox.dockerfile import read_recipe
from t1core.sandbox.request import DEFAULT_WORKDIR
from t1core.sandbox.sandbox import BoxBroken, BoxDied, BoxTimeout
from t1core.tasks.harbor import load_task
from t1core.tasks.index import write_index
from t1core.tasks.order import spread
from t1core.verifier.attacks.battery import Bench
from t1core.verifier.grader import Grader

FORMS = ("terminal-bench", "tmax", "harbor-registry", "intercode-alfa")
_TRIED = 3  # tasks of which one must answer


@dataclass(frozen=True)
class Converted:
    """How many tasks the source has and how many were kept; why others were not, by reason; what the tried ones said;
    whether one answered."""

    num_found: int
    num_kept: int
    refused: dict[str, str]
    tried: dict[str, str]
    answered: bool

    @property
    def reasons(self) -> Counter[str]:
        return Counter(reason.partition(":")[0] for reason in self.refused.values())


async def convert(
    form: str, source: Path | None, output: Path, *, licence: str = "", dataset: str = ""
) -> Converted:
    """Convert a source of one of FORMS into a pool at `output`, which must not exist.

    `licence` goes into every task; `dataset` names a registry's. Raises ValueError for a source that is none, when no
    task can be kept, and when of three that are tried not one answers; then nothing is left.
    """
    if output.exists():
        raise ValueError(f"output {output} exists: a pool is never written over; choose another or remove it")
    tasks, write, about = _plan(form, source, licence=licence, dataset=dataset)
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    try:
        num_found, refused = 0, {}
        for name, task in tasks:
            num_found += 1
            # Looked at before any path is made of it: the source names its tasks as it likes.
            if not name or name.startswith(".") or set("/\0") & set(name) or (partial / name).exists():
                refused[name] = f"name {name!r} is taken or is no directory's"
                continue
            try:
                (partial / name).mkdir()
                write(task, partial / name, about=about)
                _read_again(partial / name)
            except ValueError as error:
                refused[name] = str(error).replace(f"{partial}/", "")
                shutil.rmtree(partial / name, ignore_errors=True)
        kept = sorted(path for path in partial.iterdir() if path.is_dir())
        if not kept:
            shown = "; ".join(f"{name}: {why}" for name, why in list(refused.items())[:3])
            raise ValueError(f"source {source}: none of {num_found} tasks could be converted ({shown[:500]})")
        tried = await _try(spread(kept, _TRIED))
        converted = Converted(
            num_found, len(kept), refused, {name: told for name, (_, told) in tried.items()},
            any(answered for answered, _ in tried.values()),
        )  # fmt: skip
        if not converted.answered:
            raise ValueError(
                f"source {source}: {len(kept)} tasks are read, and of those tried in a box not one answers: "
                + "; ".join(f"{name}: {told}" for name, told in converted.tried.items())
            )
        write_index(partial)
        partial.chmod(0o755)
        partial.rename(output)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return converted


def _plan(
    form: str, source: Path | None, *, licence: str, dataset: str
) -> tuple[Iterator[tuple[str, Any]], Callable[..., None], dict[str, Any]]:
    if form not in FORMS:
        raise ValueError(f"form {form!r} is none of {', '.join(FORMS)}")
    if dataset and form != "harbor-registry":
        raise ValueError(
            f"dataset {dataset!r} names one of a registry's, and the form is {form}: leave it out"
        )
    if form == "intercode-alfa":
        place, version = source or find_package(), package_version()
        about = {
            "source": f"InterCode-ALFA (icalfa {version})".replace(" )", ")"),
            "licence": licence or "MIT",
        }
        return intercode_alfa_tasks(place), convert_intercode_alfa, about
    if source is None or not source.exists():
        raise ValueError(f"source {source}: no such file or directory; name what is to be converted")
    if form == "tmax":
        return tmax_tasks(source), convert_tmax, {"source": f"TMax ({source.name})", "licence": licence}
    if form == "harbor-registry":
        return registry_tasks(source, dataset=dataset), convert_listed, {"licence": licence}
    about = {"source": f"Terminal-Bench layout ({source.name})", "licence": licence}
    return terminal_bench_tasks(source), convert_terminal_bench, about


def _read_again(directory: Path) -> None:
    """Raise ValueError for a task that is not whole, or whose Dockerfile a box cannot honour."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is said of a task is said again when it is used
        task = load_task(directory)
    dockerfile = directory / "environment" / "Dockerfile"
    if dockerfile.is_file():
        read_recipe(dockerfile.read_text(), workdir=task.environment.workdir or DEFAULT_WORKDIR)


async def _try(directories: list[Path]) -> dict[str, tuple[bool, str]]:
    """Whether each answers, and what: tests passed untouched and, where there is one, by the solution."""
    tried = {}
    async with contextlib.AsyncExitStack() as stack:
        sandbox, grader = BubblewrapSandbox(), Grader()
        stack.push_async_callback(sandbox.close)
        stack.push_async_callback(grader.close)
        await grader.start()
        for directory in directories:
            task = load_task(directory)
            bench = Bench(task, sandbox=sandbox, grader=grader)
            try:
                grade = await bench.grade("true")
                told, answered = f"untouched {grade.passed} of {grade.total}", grade.reward is not None
                if (directory / "solution" / "solve.sh").is_file():
                    solved = await bench.grade("bash /solution/solve.sh", is_solution=True)
                    told += f", solution {solved.passed} of {solved.total}"
            except (ValueError, BoxDied, BoxBroken, BoxTimeout) as error:
                told, answered = f"{type(error).__name__}: {error}"[:200], False
            tried[directory.name] = (answered, told)
    return tried
