"""The executable audit of one task: every check of `verdict.CHECKS`, made in boxes.

untouched box, empty and trivial files         -> what is earned without work
the reference solution, once                   -> its grade, time, memory and files; graded again, and in reverse
broken solutions, in a box each                -> which of them the tests let through
the battery of attacks, in a box each          -> which of them the tests fall for
the files of the task, read                    -> whether tests or solution lie in the workspace
"""

import re
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from t1core.pools.layer_files import layer_files, written_files
from t1core.pools.literals import find_leakage
from t1core.pools.mutants import Mutant, mutants_of
from t1core.pools.reversal import reversed_task
from t1core.pools.verdict import Check, Outcome, Verdict, one_line, standing_of
from t1core.records import Grade, Task, TestStatus
from t1core.sandbox.request import DEFAULT_WORKDIR
from t1core.sandbox.sandbox import BoxBroken, BoxDied, BoxTimeout, Sandbox
from t1core.tasks.harbor import load_task
from t1core.tasks.index import content_hash
from t1core.tasks.test_script import foreign_packages, foreign_programs
from t1core.verifier.attacks.attack import write
from t1core.verifier.attacks.battery import Bench, attack_all
from t1core.verifier.attacks.target import Target, find_target
from t1core.verifier.grader import Grader

DEFAULT_SOLUTION_S = 600.0  # for a solution whose task declares no time
_TRIVIAL = "0\n"
_FETCHES = re.compile(
    r"^\s*(?:sudo )?((?:curl|wget|git clone|pip3? install|uv pip|npm install|apt-get|apt|cargo install|go get)\b.*)",
    re.M,
)
_MEASURED = """import resource, subprocess
done = subprocess.run(["bash", "/solution/solve.sh"])
print("MARK", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, done.returncode, flush=True)
"""


@dataclass(frozen=True)
class AuditSettings:
    """What is looked at, and how long.

    `num_repeats` further grades of the solution's files; at most `num_mutants` broken solutions, of which the tests
    must catch `min_caught_frac`; `with_attacks` plays the battery; `seed` draws the mutants.
    """

    num_repeats: int = 2
    num_mutants: int = 12
    min_caught_frac: float = 0.8
    with_attacks: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (("num_repeats", self.num_repeats), ("num_mutants", self.num_mutants)):
            if value < 0:
                raise ValueError(f"{name}={value} must be at least 0")
        if not 0 <= self.min_caught_frac <= 1:
            raise ValueError(f"min_caught_frac={self.min_caught_frac} must be from 0 to 1")


async def audit_task(
    directory: Path, *, sandbox: Sandbox, grader: Grader, settings: AuditSettings
) -> Verdict:
    """Audit a task directory. What the task does wrong is in the verdict; raises what this machine lacks."""
    started = time.monotonic()
    family, checks, found = "unknown", [], _Found()
    try:
        task = load_task(directory)
        family = task.family
        bench = Bench(task, sandbox=sandbox, grader=grader)
        async for check in _checks(task, bench, settings, found):
            checks.append(check)
    except (ValueError, BoxDied, BoxBroken, BoxTimeout) as error:
        checks.append(Check("opens", Outcome.FAILED, one_line(f"{type(error).__name__}: {error}")))
    found.numbers["audit_s"] = round(time.monotonic() - started, 2)
    return Verdict(
        task_id=directory.name,
        content_hash=content_hash(directory),
        family=family,
        standing=standing_of(checks),
        checks=tuple(checks),
        nop_passed=found.nop_passed,
        numbers=found.numbers,
        settings=settings.__dict__,
    )


class _Found:
    """What the checks measure on their way."""

    def __init__(self) -> None:
        self.numbers: dict[str, float] = {}
        self.nop_passed: tuple[str, ...] | None = None
        self.earned = 0


async def _checks(task: Task, bench: Bench, settings: AuditSettings, found: _Found) -> AsyncIterator[Check]:
    found.numbers["num_tests"] = task.num_tests
    target = find_target(task, workdir=task.environment.workdir or DEFAULT_WORKDIR)
    async with bench.played("true") as played:
        before = layer_files(played.layer)
        untouched = await bench.graded(played.layer)
    if untouched.reward is None:
        yield Check("opens", Outcome.FAILED, one_line(f"no grade: {', '.join(untouched.flags)}"))
        return
    yield Check("opens", Outcome.PASSED)
    found.nop_passed = _passed(untouched)
    found.numbers["nop_passed"] = len(found.nop_passed)
    solution = _solution(task)
    if solution is None:
        for name in ("solution", "repeats", "order", "budget", "mutants"):
            yield Check(name, Outcome.SKIPPED, "no solution/solve.sh")
        is_solved = False
    else:
        async for check in _solved(task, bench, solution, before, settings, found):
            yield check
        is_solved = found.numbers.get("solution_passed") == task.num_tests
    yield _count_check("untouched", found.nop_passed, untouched)
    async for check in _without_work(bench, target, untouched, found):
        yield check
    yield _network(task, is_solved=is_solved)
    if settings.with_attacks:
        yield await _attacks(bench, target, found)
    else:
        yield Check("attacks", Outcome.SKIPPED, "not asked for")
    yield _leakage(task)


async def _solved(
    task: Task,
    bench: Bench,
    solution: Path,
    before: dict[str, str],
    settings: AuditSettings,
    found: _Found,
) -> AsyncIterator[Check]:
    budget_s = task.agent_timeout_s or DEFAULT_SOLUTION_S
    mark = f"t1-{secrets.token_hex(8)}"
    script = write("/run/t1/measured.py", _MEASURED.replace("MARK", mark)) + "python3 /run/t1/measured.py\n"
    async with bench.played(script, files=solution, deadline_s=budget_s) as played:
        grade = await bench.graded(played.layer)
        found.numbers |= {
            "solution_s": round(played.duration_s, 2),
            "grade_s": round(grade.duration_s, 2),
            "solution_passed": grade.passed,
        }
        yield _solution_check(grade)
        yield _budget(task, grade, ended=played.ended, peak_mb=_peak_mb(played.stdout, mark), found=found)
        if not grade.solved:
            for name in ("repeats", "order", "mutants"):
                yield Check(name, Outcome.SKIPPED, "the solution does not pass all tests")
            return
        again = [await bench.graded(played.layer) for _ in range(settings.num_repeats)]
        yield _same("repeats", grade, again)
        with tempfile.TemporaryDirectory(prefix="t1-reversed-") as scratch:
            turned = reversed_task(task, Path(scratch))
            grades = [await bench.graded(played.layer, task=turned)] if turned is not None else []
        yield _same("order", grade, grades)
        after = layer_files(played.layer)
    files = written_files(before, after)
    mutants = mutants_of(
        (solution / "solve.sh").read_text(), files=files, number=settings.num_mutants, seed=settings.seed
    )
    yield await _mutants(bench, solution, mutants, after, settings, found)


async def _mutants(
    bench: Bench,
    solution: Path,
    mutants: Sequence[Mutant],
    after: dict[str, str],
    settings: AuditSettings,
    found: _Found,
) -> Check:
    """Play each mutant. One that leaves the very files of the solution is no fault, and is not counted."""
    survivors, num_counted = [], 0
    for mutant in mutants:
        with tempfile.TemporaryDirectory(prefix="t1-mutant-") as scratch:
            broken = Path(scratch) / "solution"
            shutil.copytree(solution, broken)
            (broken / "solve.sh").write_text(mutant.script)
            script = f"bash /solution/solve.sh\n{mutant.after}\n"
            async with bench.played(script, files=broken) as played:
                grade = await bench.graded(played.layer)
                if grade.solved and layer_files(played.layer) == after:
                    continue
        num_counted += 1
        if grade.solved:
            survivors.append(mutant.fault)
    found.numbers |= {"mutants": num_counted, "survivors": len(survivors)}
    if not num_counted:
        return Check("mutants", Outcome.SKIPPED, "nothing of the solution could be broken")
    caught = num_counted - len(survivors)
    told = f"{caught} of {num_counted} caught" + "".join(f"; survives: {fault}" for fault in survivors)
    is_enough = caught >= settings.min_caught_frac * num_counted
    return Check("mutants", Outcome.PASSED if is_enough else Outcome.FAILED, told)


async def _without_work(
    bench: Bench, target: Target, untouched: Grade, found: _Found
) -> AsyncIterator[Check]:
    solved, earned = ["the untouched workspace"] if untouched.solved else [], untouched.passed
    for what, text in (("empty files", ""), (f"files that hold {_TRIVIAL.strip()!r}", _TRIVIAL)):
        grade = await bench.grade("".join(_put(path, text) for path in target.paths))
        earned = max(earned, grade.passed)
        solved += [what] if grade.solved else []
    found.earned = earned
    found.numbers["trivial_passed"] = earned
    if solved:
        yield Check("trivial", Outcome.FAILED, f"solved by {', '.join(solved)}")
    else:
        yield Check("trivial", Outcome.PASSED, f"at most {earned} of {untouched.total} tests pass")


async def _attacks(bench: Bench, target: Target, found: _Found) -> Check:
    num_tried, paid, noticed = 0, [], []
    async for outcome in attack_all(bench, target, earned=found.earned):
        num_tried += outcome.applies
        if outcome.applies and outcome.is_fallen_for:
            is_noticed = outcome.grade is not None and outcome.grade.quarantined
            (noticed if is_noticed else paid).append(f"{outcome.attack.name} (+{outcome.gained})")
    found.numbers |= {"attacks_tried": num_tried, "attacks_paid": len(paid)}
    told = f"{num_tried} tried" + (f"; paid: {', '.join(paid)}" if paid else "")
    told += f"; paid and quarantined: {', '.join(noticed)}" if noticed else ""
    return Check("attacks", Outcome.FAILED if paid else Outcome.NOTED if noticed else Outcome.PASSED, told)


def _put(path: str, text: str) -> str:
    """Shell lines that put a text where nothing is yet."""
    place, parent = shlex.quote(path), shlex.quote(str(PurePosixPath(path).parent))
    return f"[ -e {place} ] || {{ mkdir -p {parent} && printf %s {shlex.quote(text)} > {place}; }}\n"


def _solution(task: Task) -> Path | None:
    solution = task.path / "solution"
    return solution if (solution / "solve.sh").is_file() else None


def _solution_check(grade: Grade) -> Check:
    if grade.reward is None:
        return Check("solution", Outcome.FAILED, one_line(f"no grade: {', '.join(grade.flags)}"))
    told = f"{grade.passed} of {grade.total}"
    if not grade.solved:
        failing = [test for test in grade.tests if test.status is not TestStatus.PASSED]
        told += "".join(f"; {_short(test.name)}: {one_line(test.message, 100)}" for test in failing[:4])
        told += f"; {one_line(grade.stdout_tail, 200)}" if not failing else ""
        return Check("solution", Outcome.FAILED, told)
    if grade.quarantined:
        return Check(
            "solution", Outcome.FAILED, f"{told}, and quarantined: {one_line(', '.join(grade.flags))}"
        )
    return Check("solution", Outcome.PASSED, told)


def _budget(task: Task, grade: Grade, *, ended: bool, peak_mb: float | None, found: _Found) -> Check:
    if peak_mb is not None:
        found.numbers["peak_mb"] = round(peak_mb, 1)
    asked = (
        f"{task.agent_timeout_s:g} s"
        if task.agent_timeout_s
        else f"no time declared, {DEFAULT_SOLUTION_S:g} s"
    )
    told = (
        f"solution {found.numbers['solution_s']:g} s of {asked}, tests {grade.duration_s:.1f} s of "
        f"{task.verifier_timeout_s:g} s"
        + (f", largest process {peak_mb:.0f} MB" if peak_mb is not None else "")
        + (f" of {task.environment.memory_mb} MB" if task.environment.memory_mb else "")
    )
    over = [] if ended else ["the solution was cut off"]
    over += [f"tests: {flag}" for flag in grade.flags if flag in ("timeout", "memory")]
    return Check("budget", Outcome.FAILED if over else Outcome.PASSED, "; ".join([*over, told]))


def _peak_mb(stdout: bytes, mark: str) -> float | None:
    """Megabytes of the solution's largest process; None where the measuring was cut off."""
    match = re.search(rf"{mark} (\d+) ".encode(), stdout)
    return int(match[1]) / 1024 if match else None


def _same(name: str, grade: Grade, others: Sequence[Grade]) -> Check:
    if not others:
        return Check(name, Outcome.SKIPPED, "nothing to compare with")
    first = {test.name: test.status for test in grade.tests}
    changed = {
        _short(test.name) for other in others for test in other.tests if first.get(test.name) != test.status
    }
    changed |= {f"reward {other.reward}" for other in others if other.reward != grade.reward}
    if changed:
        return Check(name, Outcome.FAILED, f"differs: {', '.join(sorted(changed)[:8])}")
    return Check(name, Outcome.PASSED, f"{len(others)} graded again alike")


def _count_check(name: str, passed: Sequence[str], grade: Grade) -> Check:
    told = f"{len(passed)} of {grade.total}" + "".join(f"; {_short(test)}" for test in passed[:8])
    return Check(name, Outcome.FAILED if passed else Outcome.PASSED, told)


def _network(task: Task, *, is_solved: bool) -> Check:
    """Boxes have no network: a solution that passes needs none, whatever its scripts try."""
    found = []
    for path in ("environment/Dockerfile", "solution/solve.sh"):
        text = (task.path / path).read_text(errors="replace") if (task.path / path).is_file() else ""
        found += [f"{path}: {match[1][:80]}" for match in _FETCHES.finditer(text)]
    script = task.path / "tests" / "test.sh"
    text = script.read_text(errors="replace") if script.is_file() else ""
    found += [f"tests/test.sh fetches {name}" for name in (*foreign_packages(text), *foreign_programs(text))]
    told = "; ".join(found[:4])
    if is_solved:
        return Check("network", Outcome.NOTED if found else Outcome.PASSED, told)
    if found:
        return Check("network", Outcome.FAILED, told)
    return Check("network", Outcome.SKIPPED, "no solution that passes, and nothing that fetches")


def _leakage(task: Task) -> Check:
    leakage = find_leakage(task)
    if leakage.copies:
        return Check("leakage", Outcome.FAILED, "; ".join(leakage.copies[:4]))
    if not leakage.in_workspace and not leakage.in_instruction:
        return Check("leakage", Outcome.PASSED, f"none of {len(leakage.compared)} literals")
    told = (
        f"of {len(leakage.compared)} literals {len(leakage.in_instruction)} stand in the instruction, "
        f"{len(leakage.in_workspace)} in the workspace"
    )
    shown = [literal for literal in leakage.in_workspace if literal not in leakage.in_instruction]
    return Check("leakage", Outcome.NOTED, told + "".join(f"; {literal[:40]!r}" for literal in shown[:4]))


def _passed(grade: Grade) -> tuple[str, ...]:
    if not grade.tests and grade.passed:  # only the script's own word
        return ("test.sh",)
    return tuple(test.name for test in grade.tests if test.status is TestStatus.PASSED)


def _short(name: str) -> str:
    return name.rpartition("::")[2]
