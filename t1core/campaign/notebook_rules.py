"""The rules a notebook in git keeps: a sentence and a short call at a time, logic in the package, no stored
output.
"""

import ast
from pathlib import Path

import nbformat

from t1core.campaign.notebook_parameters import parse_parameters

_MAX_LINES = 15
_CELL_METADATA = {"tags"}
_METADATA = {"kernelspec", "language_info"}


def check_notebook(path: Path | str) -> list[str]:
    """What breaks the rules, one sentence each with the cell's number from 1; empty when the notebook is
    tidy.
    """
    notebook = nbformat.read(path, as_version=4)
    found = _check_whole(notebook)
    for number, cell in enumerate(notebook.cells, start=1):
        before = notebook.cells[number - 2] if number > 1 else None
        found += [f"cell {number}: {complaint}" for complaint in _check_cell(cell, before)]
    return found


def _check_whole(notebook: nbformat.NotebookNode) -> list[str]:
    found = []
    cells = notebook.cells
    if not cells or cells[0].cell_type != "markdown" or not cells[0].source.startswith("# "):
        return ["cell 1: begin with a title, the question, and what a good answer looks like"]
    if len([part for part in cells[0].source.split("\n\n") if part.strip()]) < 3:
        found.append("cell 1: after the title, ask the question and say what a good answer looks like")
    if sum(_is_parameters(cell) for cell in cells) > 1:
        found.append("more than one cell is tagged `parameters`")
    last = cells[-1]
    if last.cell_type != "code" or "provenance" not in last.source or "assert" not in last.source:
        found.append("the last cell prints the provenance and runs the metric assertions")
    extra = set(notebook.metadata) - _METADATA
    if extra or notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        found.append(f"metadata: keep a kernelspec named python3 and nothing of {sorted(extra)}")
    ids = [cell.get("id") for cell in cells]
    if (notebook.nbformat, notebook.nbformat_minor) < (4, 5) or None in ids or len(set(ids)) < len(ids):
        found.append("every cell needs an id of its own (nbformat 4.5)")
    return found


def _check_cell(cell: nbformat.NotebookNode, before: nbformat.NotebookNode | None) -> list[str]:
    found = []
    if extra := set(cell.metadata) - _CELL_METADATA:
        found.append(f"metadata {sorted(extra)} does not belong in git")
    if cell.cell_type != "code":
        return found
    if cell.outputs or cell.execution_count is not None:
        found.append("strip outputs and execution counts")
    if _is_parameters(cell):
        return found + _check_parameters(cell.source)
    if before is None or before.cell_type != "markdown":
        found.append("say in a sentence before the call what it is for")
    lines = [line for line in cell.source.splitlines() if line.strip()]
    if len(lines) > _MAX_LINES:
        found.append(f"{len(lines)} lines; at most {_MAX_LINES}, the rest belongs in the package")
    if any(line.lstrip().startswith(("!", "%")) for line in lines):
        return [*found, "no shell and no magics"]
    try:
        tree = ast.parse(cell.source)
    except SyntaxError as error:
        return [*found, f"no Python: {error.msg}, line {error.lineno}"]
    return found + _check_code(tree)


def _check_parameters(source: str) -> list[str]:
    try:
        parameters = parse_parameters(source)
    except (ValueError, SyntaxError) as error:
        return [str(error)]
    return [f"parameter {name} has no help comment" for name, entry in parameters.items() if not entry.help]


def _check_code(tree: ast.Module) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            found.append(f"class {node.name} belongs in the package")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) > node.lineno:
            found.append(f"function {node.name} is longer than a line: it belongs in the package")
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if (node.value.id, node.attr) == ("sys", "path"):
                found.append("no sys.path: install the package")
            if (node.value.id, node.attr) in (
                ("os", "system"),
                ("subprocess", "run"),
                ("subprocess", "Popen"),
            ):
                found.append("no shell: launch through the package")
    return found


def _is_parameters(cell: nbformat.NotebookNode) -> bool:
    return "parameters" in cell.metadata.get("tags", [])
