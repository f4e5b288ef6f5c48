"""The same tests in reverse order: a copy of a task whose test functions stand the other way round."""

import ast
import shutil
from dataclasses import replace
from pathlib import Path

from t1core.records import Task


def reversed_task(task: Task, scratch: Path) -> Task | None:
    """A task whose tests/ are a copy below `scratch`, reversed; None where there is nothing to reverse."""
    shutil.copytree(task.path / "tests", scratch / "tests")
    changed = False
    for path in sorted((scratch / "tests").glob("*.py")):
        text = path.read_text()
        turned = reversed_source(text)
        if turned != text:
            path.write_text(turned)
            changed = True
    return replace(task, path=scratch) if changed else None


def reversed_source(source: str) -> str:
    """A test module with its tests last, in reverse order, and the methods of its test classes likewise. A function is
    bound when it is called, so all else stays as it was. What does not parse is given back."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return source
    for node in tree.body:
        if _is_test_class(node):
            node.body = _turned(node.body)
    body = _turned(tree.body)
    if body == tree.body and not any(map(_is_test_class, body)):
        return source
    return ast.unparse(ast.Module(body=body, type_ignores=[])) + "\n"


def _turned(body: list[ast.stmt]) -> list[ast.stmt]:
    tests = [node for node in body if _is_test(node) or _is_test_class(node)]
    if len(tests) < 2:
        return body
    return [node for node in body if node not in tests] + tests[::-1]


def _is_test(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")


def _is_test_class(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef) and node.name.startswith("Test")
