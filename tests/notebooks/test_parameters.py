"""Parameters: unknown names and wrong types are refused before anything runs, each with the way out."""

import re

import pytest

from t1core.campaign.notebook import read_spec
from t1core.campaign.notebook_parameters import check_parameters, parse_parameters

CELL = """
name: str = "quickstart"  # name of the run
lr: float = 1e-6  # learning rate
seed: int = 0  # seed
attach: bool = True  # re-attach
overrides: list[str] = []  # dotted overrides
sizes: dict[str, int] = {}  # sizes
limit: int | None = None  # at most so many
"""


def test_declarations_are_read_with_type_default_and_help():
    declared = parse_parameters(CELL)
    assert [(p.kind, p.default) for p in declared.values()] == [
        (str, "quickstart"),
        (float, 1e-6),
        (int, 0),
        (bool, True),
        (list[str], []),
        (dict[str, int], {}),
        (int | None, None),
    ]
    assert declared["seed"].help == "seed"


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"lr": "1e-6"}, {"lr": 1e-6}),
        ({"lr": 2}, {"lr": 2.0}),
        ({"limit": None}, {"limit": None}),
        ({"limit": 3}, {"limit": 3}),
        ({"overrides": ["a.b=1"]}, {"overrides": ["a.b=1"]}),
        ({"sizes": {"a": 1}}, {"sizes": {"a": 1}}),
    ],
)
def test_values_that_lose_nothing_are_taken(given, taken):
    values = check_parameters(parse_parameters(CELL), given)
    assert values == taken
    assert [type(value) for value in values.values()] == [type(value) for value in taken.values()]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"sed": 1}, "no parameter sed; it has name: str, lr: float, seed: int"),
        ({"seed": "1"}, "parameter seed: '1' is str, expected int"),
        ({"seed": True}, "parameter seed: True is bool, expected int"),
        ({"seed": 1.0}, "expected int; write 1"),
        ({"name": 12}, "expected str; put it in quotes: '12'"),
        ({"attach": 1}, "parameter attach: 1 is int, expected bool"),
        ({"attach": "yes"}, "expected bool"),
        ({"lr": "fast"}, "parameter lr: 'fast' is str, expected float"),
        ({"overrides": "a.b=1"}, "expected list; write [a.b=1]"),
        ({"overrides": ["a", 2]}, "parameter overrides[1]: 2 is int, expected str"),
        ({"sizes": {"a": "x"}}, "parameter sizes['a']: 'x' is str, expected int"),
        ({"limit": "3"}, "parameter limit: '3' is str, expected int"),
    ],
)
def test_wrong_values_are_refused_with_the_way_out(given, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        check_parameters(parse_parameters(CELL), given)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("a: int = 1\nb: int = a * 2", "the default of b, 'a * 2', is derived"),
        ("import os", "is not `name: type = default"),
        ("a = 1", "is not `name: type = default"),
        ("a: int", "a has no default"),
        ("a: int = 1\na: int = 2", "a is declared twice"),
        ("a: set = {1}", "a has type 'set'; use str, int"),
        ("a: int = '1'", "parameter a: '1' is str, expected int"),
    ],
)
def test_cells_that_hold_more_than_declarations_are_refused(source, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        parse_parameters(source)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("parameters: {}", "needs a key `notebook`"),
        ("notebook: a.ipynb\nparams: {}", "unknown key params"),
        ("notebook: a.ipynb\nparameters: {seed: 1, seed: 2}", "line 2: seed is given twice"),
        ("notebook: [", "is no YAML"),
        ("notebook: a.ipynb\nparameters: [1]", "must be a mapping"),
    ],
)
def test_a_spec_that_is_not_one_is_refused(tmp_path, text, says):
    (tmp_path / "spec.yaml").write_text(text)
    with pytest.raises(ValueError, match=re.escape(says)):
        read_spec(tmp_path / "spec.yaml")


def test_a_spec_names_its_notebook_from_its_own_folder_and_changes_win(tmp_path):
    (tmp_path / "papermill").mkdir()
    (tmp_path / "papermill" / "spec.yaml").write_text("notebook: ../n.ipynb\nparameters: {seed: 1, lr: 1e-6}")
    spec = read_spec(tmp_path / "papermill" / "spec.yaml", changes={"seed": "2", "overrides": "[a=1]"})
    assert spec.notebook == tmp_path / "n.ipynb"
    assert spec.parameters == {"seed": 2, "lr": "1e-6", "overrides": ["a=1"]}
