"""The strict notebook runner: papermill, with names and types checked first, nothing lost when a cell fails.

A spec is a YAML file with two keys: `notebook`, a path relative to the spec's own folder, and `parameters`.
"""

import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape as html_escape
from pathlib import Path
from typing import Any

import nbformat
import yaml

from t1core.campaign.notebook_parameters import Parameter, check_parameters, parse_parameters
from t1core.campaign.strict_yaml import read_yaml
from t1core.store.atomic import DiskFull, naming_full_disk, write_atomic


@dataclass(frozen=True)
class NotebookSpec:
    """A notebook and the values its parameters are given; what is absent keeps its default."""

    notebook: Path
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class ExecutedNotebook:
    """Where the executed copy and its HTML twin lie."""

    notebook: Path
    html: Path | None
    seconds: float


class CellFailed(RuntimeError):
    """A cell raised. `cell` counts from 1 over all cells, as Jupyter shows them; the copy holds all output so
    far.
    """

    def __init__(self, *, cell: int, source: str, error: str, executed: ExecutedNotebook) -> None:
        first = next((line for line in source.splitlines() if line.strip()), "")
        super().__init__(
            f"cell {cell} ({first.strip()!r}) failed: {error}. Executed so far: {executed.notebook}"
        )
        self.cell = cell
        self.executed = executed


def read_spec(path: Path | str, *, changes: Mapping[str, str] | None = None) -> NotebookSpec:
    """A spec from its YAML file; `changes` are further parameters as YAML text (`{"seed": "1"}`), which win."""
    path = Path(path)
    content = read_yaml(path, what="notebook spec")
    if not isinstance(content, dict) or not isinstance(content.get("notebook"), str):
        raise ValueError(
            f"notebook spec {path}: needs a key `notebook` with a path, and may have `parameters`"
        )
    extra = sorted(map(str, set(content) - {"notebook", "parameters"}))
    if extra:
        raise ValueError(
            f"notebook spec {path}: unknown key {', '.join(extra)}; it has `notebook` and `parameters`"
        )
    parameters = content.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise ValueError(f"notebook spec {path}: `parameters` must be a mapping of names to values")
    notebook = (path.parent / content["notebook"]).resolve()
    changed = {name: yaml.safe_load(text) for name, text in (changes or {}).items()}
    return NotebookSpec(notebook, parameters | changed)


def declared_parameters(notebook: Path) -> dict[str, Parameter]:
    """What the cell tagged `parameters` declares; empty if there is none."""
    cells = [cell for cell in _read(notebook).cells if "parameters" in cell.metadata.get("tags", [])]
    if len(cells) > 1:
        raise ValueError(
            f"{notebook}: {len(cells)} cells are tagged `parameters`; papermill would use the first only"
        )
    try:
        return parse_parameters(cells[0].source) if cells else {}
    except ValueError as error:
        raise ValueError(f"{notebook.name}: {error}") from None


def run_notebook(
    notebook: Path | str,
    *,
    parameters: Mapping[str, Any],
    output: Path | str,
    html: bool = True,
) -> ExecutedNotebook:
    """Execute a notebook in a kernel of this interpreter; what its cells print streams to our output.

    Relative paths in its cells start at the caller's working directory.

    Writes `output` (.ipynb) and, with `html`, the twin beside it; both appear whole, also when a cell fails,
    which raises CellFailed. ValueError for an unknown parameter or a wrong type, before anything runs.
    """
    notebook, output = Path(notebook), Path(output)
    if output.suffix != ".ipynb":
        raise ValueError(f"output {output}: an executed notebook's name ends in .ipynb")
    values = check_parameters(declared_parameters(notebook), parameters)
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(f".{output.stem}.{os.getpid()}.ipynb")
    started = time.monotonic()
    failure = None
    try:
        with naming_full_disk(output):
            failure = _execute(notebook, partial, values)
    except DiskFull:
        partial.unlink(missing_ok=True)  # it was cut short, and must not replace an earlier one
        raise
    finally:
        # Also after Ctrl-C: what ran is kept.
        if partial.exists():
            partial.replace(output)
    twin = write_html(output) if html else None
    executed = ExecutedNotebook(output, twin, time.monotonic() - started)
    if failure is not None:
        cell, error = failure
        raise CellFailed(
            cell=cell, source=_read(notebook).cells[cell - 1].source, error=error, executed=executed
        )
    return executed


def write_html(notebook: Path) -> Path:
    """The HTML twin of an executed notebook, in one file that loads nothing from elsewhere."""
    from nbconvert import HTMLExporter

    quiet = logging.getLogger("t1core.nbconvert")
    quiet.setLevel(logging.ERROR)
    exporter = HTMLExporter(mathjax_url="", require_js_url="", jquery_url="", mermaid_js_url="", log=quiet)
    executed = _read(notebook)
    body, _ = exporter.from_notebook_node(executed, resources={"metadata": {"name": notebook.stem}})
    path = notebook.with_suffix(".html")
    write_atomic(path, [_describe_images(body, executed).encode()])
    return path


def _describe_images(body: str, notebook: nbformat.NotebookNode) -> str:
    """The page with each figure's title as its alternative text, which nbconvert's template leaves out."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    titles = [
        output.metadata.get("image/png", {}).get("alt")
        for output in outputs
        if "image/png" in output.get("data", {})
    ]
    blank = 'alt="No description has been provided for this image"'
    pieces = body.split(blank)
    if len(pieces) - 1 != len(titles):
        return body
    described = [f'alt="{html_escape(title, quote=True)}"' if title else blank for title in titles]
    return "".join(piece + text for piece, text in zip(pieces, [*described, ""], strict=True))


def _execute(notebook: Path, output: Path, values: Mapping[str, Any]) -> tuple[int, str] | None:
    """Run all cells. (number of the failing cell in the source notebook from 1, error) or None."""
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError
    from traitlets.config import Config

    # papermill guesses at the parameters too and warns of types it can't read; ours are checked already.
    for name in ("papermill", "papermill.translators"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with _own_kernel():
        try:
            papermill.execute_notebook(
                str(notebook),
                str(output),
                parameters=dict(values),
                kernel_name="python3",
                progress_bar=False,
                stdout_file=sys.stdout,
                stderr_file=sys.stderr,
                cwd=str(Path.cwd()),
                # Sockets on disk instead of TCP ports: no other user of the machine can reach the kernel.
                config=Config({"KernelManager": {"transport": "ipc"}}),
            )
        except PapermillExecutionError as error:
            if error.ename == "KeyboardInterrupt":
                # Ctrl-C in a terminal reaches the kernel too, and its answer may be the first to arrive.
                raise KeyboardInterrupt from error
            return _failed_cell(output), f"{error.ename}: {error.evalue}"
        except DeadKernelError:
            return _failed_cell(output), "the kernel died (killed, or out of memory)"
    return None


def _failed_cell(executed: Path) -> int:
    """Number from 1, in the source notebook, of the last cell that began: papermill adds cells of its own."""
    added = {"injected-parameters", "papermill-error-cell-tag"}
    cells = [cell for cell in _read(executed).cells if not added & set(cell.metadata.get("tags", []))]
    return max(
        n for n, cell in enumerate(cells, start=1) if cell.metadata.get("papermill", {}).get("start_time")
    )


@contextmanager
def _own_kernel() -> Iterator[None]:
    """This environment's kernel, whatever the user installed under its name, without the user's start-up
    files.
    """
    with tempfile.TemporaryDirectory(prefix="t1-ipython-") as profile:
        ours = {"JUPYTER_PREFER_ENV_PATH": "1", "IPYTHONDIR": profile}
        before = {name: os.environ.get(name) for name in ours}
        os.environ.update(ours)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


def _read(notebook: Path) -> nbformat.NotebookNode:
    try:
        return nbformat.read(notebook, as_version=4)
    except FileNotFoundError:
        raise ValueError(f"notebook {notebook} does not exist") from None
