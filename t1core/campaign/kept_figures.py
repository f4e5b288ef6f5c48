"""`t1 figures`: every kept figure anew from the kept results, or what has changed since.

figures/analyses.yaml lists notebooks with parameters. Each leaves a dict `figures` behind, by name; whatever a
parameter names as a file or directory is an input, and is hashed. To add a figure: keep a result, add an entry.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from t1core.campaign.notebook import declared_parameters
from t1core.campaign.notebook_cells import run_cells
from t1core.ledger.page import LEDGER, ledger_page
from t1core.store import Run
from t1core.view.keep import Change, change_of, keep_figure, read_manifest
from t1core.view.style import Picture

ANALYSES = Path("figures") / "analyses.yaml"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Analysis:
    """One notebook with the parameters that differ from its defaults."""

    notebook: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Drawn:
    """A figure as it is now, with what it was drawn from."""

    name: str
    figure: Picture
    notebook: str
    parameters: Mapping[str, Any]
    inputs: Mapping[str, str]
    measured_at: Mapping[str, str]


def read_analyses(path: Path = ANALYSES, *, only: Sequence[str] = ()) -> list[Analysis]:
    """The list of analyses, or those whose notebooks are named in `only`. ValueError where there is no list here, for
    an entry that is not one, and for a notebook that is not in it."""
    if not path.exists():
        raise ValueError(f"{path} is not here: run this in a checkout of t1core, where figures are kept")
    entries = yaml.safe_load(path.read_text())
    found = []
    for entry in entries:
        extra = sorted(set(entry) - {"notebook", "parameters"})
        if extra or "notebook" not in entry:
            raise ValueError(f"{path}: an entry has `notebook` and may have `parameters`; this one: {entry}")
        found.append(Analysis(entry["notebook"], entry.get("parameters") or {}))
    unknown = sorted(set(only) - {Path(one.notebook).stem for one in found})
    if unknown:
        names = ", ".join(sorted({Path(one.notebook).stem for one in found}))
        raise ValueError(f"--only {unknown[0]} is not a notebook of {path}: choose of {names}")
    return [one for one in found if not only or Path(one.notebook).stem in only]


def draw(analyses: list[Analysis]) -> Iterator[Drawn]:
    """Every figure of every analysis. ValueError for two figures of one name, NotebookCellFailed for a broken
    analysis."""
    seen: dict[str, str] = {}
    for one in analyses:
        names = run_cells(one.notebook, parameters=one.parameters)
        values = _values(one, names)
        inputs = {path: digest for path in _paths(values) if (digest := _digest(Path(path)))}
        measured_at = {path: commit for path in inputs if (commit := _commit(Path(path)))}
        for name, figure in names["figures"].items():
            if name in seen:
                raise ValueError(f"{one.notebook} and {seen[name]} both draw a figure {name!r}: rename one")
            seen[name] = one.notebook
            yield Drawn(name, figure, one.notebook, one.parameters, inputs, measured_at)


def build(folder: Path = Path("figures"), *, say: Say, only: Sequence[str] = ()) -> int:
    """Draw and keep every figure, or those of the notebooks named, and write the ledger; returns how many figures."""
    count = 0
    for one in draw(read_analyses(only=only)):
        change = keep_figure(
            one.figure,
            folder=folder,
            name=one.name,
            notebook=one.notebook,
            parameters=one.parameters,
            inputs=one.inputs,
            measured_at=one.measured_at,
        )
        say(f"{change:14} {one.name}")
        count += 1
    LEDGER.write_text(ledger_page())
    say(f"{count} figures in {folder}, ledger in {LEDGER}")
    return count


def check(folder: Path = Path("figures"), *, say: Say, only: Sequence[str] = ()) -> dict[str, Change]:
    """What is different from what is kept, by figure, and `ledger`; changes nothing."""
    found: dict[str, Change] = {}
    for one in draw(read_analyses(only=only)):
        found[one.name] = change_of(one.figure, folder=folder, name=one.name)
        say(f"{found[one.name]:14} {one.name}")
    for name in sorted(read_manifest(folder).keys() - found.keys()) if not only else ():
        say(f"{'not drawn':14} {name}: no analysis draws it, its data are not kept")
    is_same = LEDGER.exists() and LEDGER.read_text() == ledger_page()
    found["ledger"] = "same" if is_same else "data changed"
    say(f"{found['ledger']:14} {LEDGER}")
    return found


def _values(one: Analysis, names: Mapping[str, Any]) -> dict[str, Any]:
    return {name: names[name] for name in declared_parameters(Path(one.notebook))}


def _paths(values: Mapping[str, Any]) -> list[str]:
    texts = [text for value in values.values() for text in (value if isinstance(value, list) else [value])]
    return sorted({text for text in texts if isinstance(text, str) and text and Path(text).exists()})


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            digest.update(f"{file.relative_to(path.parent)}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def _commit(path: Path) -> str | None:
    """The commit that a kept run was measured at."""
    if not (path / "provenance.json").exists():
        return None
    return Run.open(path).provenance()["git"].get("commit")
