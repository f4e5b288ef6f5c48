"""A notebook's cells run in this process: no kernel, no executed copy, the names that they leave behind.

For building many figures, where a kernel each would take longer than the work. `run_notebook` is for everything else.
"""

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat

from t1core.campaign.notebook import declared_parameters
from t1core.campaign.notebook_parameters import check_parameters


class NotebookCellFailed(RuntimeError):
    """A cell raised; the message names notebook, cell (from 1, as Jupyter shows them) and error."""


def run_cells(notebook: Path | str, *, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Run all code cells in one namespace and return it; relative paths start at the working directory.

    What cells print is dropped. ValueError for an unknown or ill-typed parameter, NotebookCellFailed where a cell
    raises.
    """
    notebook = Path(notebook)
    declared = declared_parameters(notebook)
    values = {name: one.default for name, one in declared.items()} | check_parameters(declared, parameters)
    names: dict[str, Any] = {"__name__": "__main__"} | values
    for number, cell in enumerate(nbformat.read(notebook, as_version=4).cells, start=1):
        if cell.cell_type != "code" or "parameters" in cell.metadata.get("tags", []):
            continue
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(cell.source, f"{notebook.name}, cell {number}", "exec"), names)
        except Exception as error:
            raise NotebookCellFailed(
                f"{notebook}: cell {number} failed: {type(error).__name__}: {error}"
            ) from error
    return names
