"""What the docs name is there: files, metrics, settings and commands."""

import re
from pathlib import Path

import pytest

from t1core.cli import app
from t1core.config.load import known_keys
from t1core.metrics import CATALOGUE, lookup
from t1core.tasks.task_toml import SCHEMA

ROOT = Path(__file__).resolve().parents[2]
# Two are made by machine, and the log tells of what was.
MADE = ("METRICS.md", "LEDGER.md", "LOG.md")
PAGES = [path for path in sorted((ROOT / "docs").rglob("*.md")) if path.name not in MADE]
CONCEPTS = [path for path in PAGES if path.parent.name == "concepts"] + [ROOT / "docs" / "CAPACITY.md"]
COMMANDS = {
    (command.name or command.callback.__name__).replace("_", "-"): command
    for command in app.registered_commands
} | {group.name: group for group in app.registered_groups}
TASK_KEYS = {f"{table}.{key}" for table, keys in SCHEMA.items() if keys for key in keys}
FILES = re.compile(r"\.(json|txt|yaml)$")
SECTIONS = {key.rpartition(".")[0] for key in known_keys()} - {""}
AREAS = {metric.name.split("/")[0] for metric in CATALOGUE}


def wrong_names(text: str) -> list[str]:
    """What a page names in code marks and is not there."""
    prose = re.sub(r"```[a-z]+ file=.*?```", "", text, flags=re.S)
    wrong = []
    for word in re.findall(r"`([^`\n]+)`", prose):
        if re.fullmatch(r"(t1core|tests|docs|notebooks|figures)/[\w./]+", word):
            if not (ROOT / word).exists():
                wrong.append(word)
        elif re.fullmatch(r"[a-z_]+/[\w/<>]+", word) and word.split("/")[0] in AREAS:
            if not _is_metric(word):
                wrong.append(word)
        elif FILES.search(word):
            continue
        elif re.fullmatch(r"[a-z_]+(\.[a-z_]+)+(=.*)?", word) and word.split(".")[0] in SECTIONS:
            wrong += [word] * (word.partition("=")[0] not in {*known_keys(), *TASK_KEYS})
    for command in re.findall(r"`(?:[^`\n]*\s)?t1 ([a-z-]+)", prose):
        if command not in COMMANDS:
            wrong.append(f"t1 {command}")
    return wrong


def _is_metric(word: str) -> bool:
    if any(word == metric.name for metric in CATALOGUE):
        return True
    try:
        lookup(word)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_file_metric_setting_and_command_that_a_page_names_exists(page):
    assert wrong_names(page.read_text()) == []


def test_a_name_that_is_not_there_is_found():
    text = "`t1core/none.py` `critic/nothing` `train.nothing=1` `t1 nothing` `critic/r2` `train.gamma` `t1 tail RUN`"
    assert wrong_names(text) == ["t1core/none.py", "critic/nothing", "train.nothing=1", "t1 nothing"]


def test_the_readme_leads_to_every_page():
    readme = (ROOT / "README.md").read_text()
    assert [page.name for page in PAGES if str(page.relative_to(ROOT)) not in readme] == []


@pytest.mark.parametrize("page", CONCEPTS, ids=lambda path: path.name)
def test_every_concept_has_its_invariant_and_a_notebook_that_shows_it(page):
    text = page.read_text()
    assert text.count("**Invariant.**") == 1
    shown = re.search(r"\*\*Where it is shown\.\*\*(.*?)(\n\n|\Z)", text, re.S)
    assert shown is not None and re.search(r"`notebooks/[\w/]+\.ipynb`", shown[1])
    assert re.search(r"`tests/[\w/]+\.py`", shown[1])
