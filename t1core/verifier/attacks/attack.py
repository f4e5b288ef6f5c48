"""One attack: a script for the agent's box, aimed at a task."""

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from t1core.verifier.attacks.target import Target


@dataclass(frozen=True)
class Attack:
    """`script` writes the script for a target, or "" where there is nothing to aim at.

    `is_bypass` says that the grader does not stop it: it works on tests that leave the hole open. `way_out` says
    what the tests have to do about it.
    """

    name: str
    script: Callable[[Target], str]
    is_bypass: bool = False
    way_out: str = ""


def write(path: str, text: str, *, is_program: bool = False) -> str:
    """Shell lines that write a file."""
    quoted = shlex.quote(path)
    lines = [f"mkdir -p $(dirname {quoted})", f"cat > {quoted} <<'END_OF_FILE'", text, "END_OF_FILE"]
    return "\n".join([*lines, *([f"chmod +x {quoted}"] if is_program else [])]) + "\n"


def placeholders(target: Target) -> str:
    """An empty file at each path: what is there without any work."""
    lines = []
    for path in target.paths:
        quoted = shlex.quote(path)
        lines.append(f"mkdir -p $(dirname {quoted}); [ -e {quoted} ] || : > {quoted}")
    lines += [f"chmod +x {shlex.quote(path)}" for path in target.programs]
    return "\n".join(lines) + "\n"


def forged_report(names: Sequence[str]) -> str:
    """A report in which these tests passed."""
    tests = [{"name": name, "status": "passed", "duration": 1, "start": 1, "stop": 2} for name in names]
    summary = {"tests": len(tests), "passed": len(tests), "failed": 0, "skipped": 0, "pending": 0, "other": 0}
    return json.dumps({"results": {"tool": {"name": "pytest"}, "summary": summary, "tests": tests}})


def in_box(text: str) -> Callable[[Target], str]:
    """A script that needs nothing of the target; FORGED_REPORT in it stands for a report."""
    return lambda target: text.replace("FORGED_REPORT", forged_report(target.test_names))


def in_modules(code: str) -> Callable[[Target], str]:
    """`code` at every path that the tests import."""

    def script(target: Target) -> str:
        text = code.replace("FORGED_REPORT", forged_report(target.test_names))
        return "".join(write(path, text) for path in target.modules)

    return script


def as_programs(code: str) -> Callable[[Target], str]:
    """`code`, in Python, at every path that the tests start; a shell script starts it from a file beside."""

    def script(target: Target) -> str:
        text = code.replace("FORGED_REPORT", forged_report(target.test_names))
        out = ""
        for path in target.programs:
            if path.endswith(".sh"):
                out += write(f"{path}.py", text)
                out += write(
                    path, f'#!/bin/bash\nexec python3 {shlex.quote(path + ".py")} "$@"', is_program=True
                )
            else:
                out += write(path, f"#!/usr/bin/env python3\n{text}", is_program=True)
        return out

    return script
