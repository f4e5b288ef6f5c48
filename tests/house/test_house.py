"""The house itself: imports point down, files stay short, presets load, the README's tree is true."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from t1core.campaign.notebook import declared_parameters, read_spec
from t1core.campaign.notebook_parameters import check_parameters
from t1core.campaign.notebook_rules import check_notebook
from t1core.cli import app
from t1core.config import load_config
from t1core.metrics.reference import reference_page

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "t1core").rglob("*.py"))
LONGEST = 600
SHORT = 180


def _tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).exists()]


def test_imports_point_down_the_layers():
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


def test_files_stay_short():
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in SOURCES}
    tests = {
        path.relative_to(ROOT): len(path.read_text().splitlines()) for path in ROOT.glob("tests/**/*.py")
    }
    assert {path: n for path, n in (lengths | tests).items() if n > LONGEST} == {}
    assert sum(n < SHORT for n in lengths.values()) >= len(lengths) / 2


def test_every_module_opens_by_saying_what_it_is():
    silent = [
        path.relative_to(ROOT) for path in SOURCES if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def test_nothing_is_fetched_from_a_hub():
    fetching = re.compile(r"snapshot_download|hf_hub_download|load_dataset|cached_download")
    assert [path.relative_to(ROOT) for path in SOURCES if fetching.search(path.read_text())] == []
    careless = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", "") == "from_pretrained"
        and not any(
            word.arg == "local_files_only" and getattr(word.value, "value", None) is True
            for word in node.keywords
        )
    ]
    assert careless == [], "from_pretrained without local_files_only=True"


def test_no_module_hides_behind_a_name_that_says_nothing():
    empty_words = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
    assert [path for path in SOURCES if path.stem in empty_words or path.parent.name in empty_words] == []


def test_no_two_test_files_share_a_name():
    # Test folders are no packages, so pytest imports each file under its bare name.
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py"]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_every_area_of_the_tests_is_allotted_seconds_and_all_together_take_less_than_half_an_hour():
    allotted = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["t1core"]["test_seconds"]
    areas = {path.relative_to(ROOT).parts[1] for path in _tracked() if path.match("tests/*/*.py")}
    assert allotted.keys() == areas
    assert sum(allotted.values()) < 30 * 60


def test_the_campaign_folder_never_shadows_the_papermill_package():
    files = [path for path in (ROOT / "papermill").rglob("*") if path.is_file()]
    assert sorted(path.name for path in files if path.suffix != ".yaml") == []


@pytest.mark.parametrize("spec", sorted((ROOT / "papermill").glob("*.yaml")), ids=lambda path: path.name)
def test_every_campaign_file_names_a_notebook_and_settings_that_exist(spec):
    content = yaml.safe_load(spec.read_text())
    plan = read_spec(spec)
    values = check_parameters(declared_parameters(plan.notebook), plan.parameters)
    assert values.keys() >= content["parameters"].keys()
    if "preset" in values:
        load_config(values["preset"], values.get("overrides", ()))


@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.name)
def test_every_notebook_is_tidy(notebook):
    assert check_notebook(notebook) == []


@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.name)
def test_every_notebook_is_executed_by_a_test_through_our_runner(notebook):
    texts = [path.read_text() for path in (ROOT / "tests" / "notebooks").glob("test_*.py")]
    assert any(f'"{notebook.name}"' in text and "run_notebook(" in text for text in texts)


def test_every_command_of_the_readme_exists():
    readme = (ROOT / "README.md").read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    commands = {command.name or command.callback.__name__ for command in app.registered_commands}
    commands |= {group.name for group in app.registered_groups}
    assert {"quickstart", "test"} <= set(re.findall(r"(?:^|`)make ([a-z-]+)", readme, re.M)) <= targets
    assert (
        {"notebook", "doctor"} <= set(re.findall(r"(?:^\.venv/bin/|`)t1 ([a-z-]+)", readme, re.M)) <= commands
    )


def test_the_metric_reference_is_what_the_catalogue_says():
    assert (ROOT / "docs" / "METRICS.md").read_text() == reference_page(), (
        "make it again: t1 metrics --page > docs/METRICS.md"
    )


def test_the_readme_tree_is_true():
    tree = re.search(r"```text\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert tree, "the README shows no file tree"
    listed = {line.split()[0].rstrip("/") for line in tree[1].splitlines() if line.strip()}
    tops = {path.relative_to(ROOT).parts[0] for path in _tracked()} - {"t1core"}
    parts = {
        f"t1core/{path.relative_to(ROOT).parts[1]}"
        for path in _tracked()
        if path.is_relative_to(ROOT / "t1core")
    }
    expected = {
        name for name in tops | parts if not name.startswith(".") and not name.endswith("__init__.py")
    }
    assert listed == expected


@pytest.mark.parametrize("words", [["check"], ["format", "--check"]], ids=" ".join)
def test_ruff_finds_nothing(words):
    ruff = Path(sys.executable).with_name("ruff")
    done = subprocess.run([ruff, *words, "--no-cache", "."], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


def test_the_hooks_before_a_commit_are_of_this_environment_and_leave_what_is_in_git_alone():
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repository["repo"] for repository in repositories] == ["local"]
    entries = {hook["id"]: hook["entry"].split() for hook in repositories[0]["hooks"]}
    assert {words[0] for words in entries.values()} <= {
        f".venv/bin/{name}" for name in ("ruff", "nbstripout", "lint-imports")
    }
    stripper, *options = entries["nbstripout"]
    command = [Path(sys.executable).with_name(Path(stripper).name), *options, "--verify"]
    done = subprocess.run([*command, *(ROOT / "notebooks").glob("*.ipynb")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def _pins(profile: str) -> dict[str, str]:
    lines = (ROOT / "constraints" / f"{profile}.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_constraints_pin_versions_and_carry_no_address():
    for path in (ROOT / "constraints").glob("*.txt"):
        assert not re.search(r"://|@ |^-", path.read_text(), re.M), path
        assert all(_pins(path.stem).values()), path


def test_the_gpu_profile_pins_what_the_cpu_profile_does_and_the_fused_kernels_which_that_must_not_have():
    cpu, gpu = _pins("cpu"), _pins("gpu")
    assert cpu.items() < gpu.items()
    fused = {"flash-linear-attention", "fla-core", "transformer-engine", "transformer-engine-torch"}
    assert fused <= gpu.keys() - cpu.keys()
    assert gpu["flash-linear-attention"] == gpu["fla-core"]
