"""What a task's tests touch of the agent's work, read from their source and the instruction.

A guess by names, good enough to aim at: paths that the tests or the instruction spell out, modules that the tests
import and nobody else provides, and whether the tests start programs at all.
"""

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import PurePosixPath

from t1core.records import Task
from t1core.sandbox.dockerfile import RESERVED

_LOADERS = re.compile(r"spec_from_file_location|run_path|SourceFileLoader|import_module|__import__|\bexec\(")
_STARTERS = re.compile(r"\bsubprocess\b|os\.system|os\.popen|pexpect|os\.exec|os\.spawn")
_ABSOLUTE = re.compile(r"/[\w.-]+(?:/[\w.-]+)+")
_RELATIVE = re.compile(r"[\w-][\w.-]*(?:/[\w.-]+)*")
_PROVIDED = sys.stdlib_module_names | {
    "pytest",
    "_pytest",
    "ctrf",
    "pluggy",
    "packaging",
    "iniconfig",
    "pygments",
}


@dataclass(frozen=True)
class Target:
    """Paths in the box. `modules` are run in the tests' own process, `programs` are started by the tests, `files`
    are looked at; a path may be several of these."""

    modules: tuple[str, ...]
    programs: tuple[str, ...]
    files: tuple[str, ...]
    test_names: tuple[str, ...]
    instruction: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """All of them, once each."""
        return tuple(dict.fromkeys((*self.modules, *self.programs, *self.files)))


def find_target(task: Task, *, workdir: str = "/app") -> Target:
    """Read the tests and the instruction, of all steps. Tests that do not parse, and a script alone, give the
    instruction's paths."""
    places = dict.fromkeys(place for stage in task.stages for place in stage.tests)
    test_files = [path for place in places for path in sorted(place.glob("*.py"))]
    source = "\n".join(path.read_text() for path in test_files)
    instruction = "\n".join(stage.instruction for stage in task.stages)
    try:
        tree: ast.AST = ast.parse(source)
        strings = [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
    except SyntaxError:
        tree, strings = ast.Module([], []), []
    named = [path for text in (*strings, instruction) for path in _ABSOLUTE.findall(text)]
    words = set(re.findall(r"[\w./-]*[\w-]", instruction)) | _joined(tree)
    named += [
        f"{workdir}/{text}"
        for text in strings
        if _RELATIVE.fullmatch(text) and "." in text[1:] and text in words
    ]
    files = [path for path in dict.fromkeys(named) if _is_the_agents(path)]
    beside = {path.stem for path in test_files}
    names = [name for name in _imports(tree) if name not in beside]
    imported = [f"{place}/{name}.py" for name in names for place in _search_path(tree, workdir)]
    loaded = [path for path in files if path.endswith(".py")] if _LOADERS.search(source) else []
    modules = tuple(dict.fromkeys((*imported, *loaded)))
    programs = tuple(
        path for path in files if PurePosixPath(path).suffix in ("", ".py", ".sh") and path not in modules
    )
    return Target(
        modules=modules,
        programs=programs if _STARTERS.search(source) else (),
        files=tuple(files),
        test_names=task.test_names,
        instruction=instruction,
    )


def _is_the_agents(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return len(parts) > 2 and parts[1] not in RESERVED and ".." not in parts and not path.startswith("/logs/")


def _imports(tree: ast.AST) -> list[str]:
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module.split(".")[0])
    return [name for name in dict.fromkeys(names) if name not in _PROVIDED]


def _search_path(tree: ast.AST, workdir: str) -> list[str]:
    """Directories that the tests put on `sys.path`, else the working directory."""
    places = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("sys.path.insert", "sys.path.append"):
            places += [
                part.value
                for argument in node.args
                for part in ast.walk(argument)
                if isinstance(part, ast.Constant)
                and isinstance(part.value, str)
                and part.value.startswith("/")
            ]
    return list(dict.fromkeys(place.rstrip("/") for place in places)) or [workdir]


def _joined(tree: ast.AST) -> set[str]:
    """Names joined to a directory: the right side of `ROOT / "name"`."""
    return {
        node.right.value
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Div)
        and isinstance(node.right, ast.Constant)
        and isinstance(node.right.value, str)
    }
