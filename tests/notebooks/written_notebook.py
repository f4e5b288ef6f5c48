"""Small notebooks written by the tests of the runner."""

from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

TITLE = "# A title\n\nWhat is the question?\n\nA good answer is a number above zero."
LAST = "provenance = {}\nprint(provenance)\nassert total > 0"


def write_notebook(
    path: Path, *code: str, parameters: str = "seed: int = 0  # which run", last: str = ""
) -> Path:
    cells = [new_markdown_cell(TITLE, id="title")]
    if parameters:
        cells.append(new_code_cell(parameters, id="parameters", metadata={"tags": ["parameters"]}))
    for number, source in enumerate([*code, *([last] if last else [])]):
        cells.append(new_markdown_cell(f"Sentence {number}.", id=f"sentence-{number}"))
        cells.append(new_code_cell(source, id=f"code-{number}"))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
    return path
