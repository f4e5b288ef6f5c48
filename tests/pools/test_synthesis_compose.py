"""Composing exercises: every part works in its place, demands expect what the parts leave, growth is reproducible."""

import json

import pytest

from t1core.pools.synthesis.compose import build, files_left
from t1core.pools.synthesis.grow import grow
from t1core.pools.synthesis.recipe import Chain, Constrain, Nest, Seed, from_dict, seeds_of, to_dict
from t1core.tasks.practice.draw import Draw
from t1core.tasks.practice.families import TRAINED

WRITE = Seed("write", 0, 0, "train", 1)
APPEND = Seed("append", 0, 0, "train", 1)


def passing(made, *, without=()):
    """Names of the checks that hold after the reference solution, some of its commands left out."""
    import os
    import subprocess
    import tempfile
    from pathlib import Path

    from t1core.tasks.practice.checks import test_module

    with tempfile.TemporaryDirectory() as root:
        for name, text in made.files.items():
            (Path(root) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(root) / name).write_text(text)
        typed = [line for number, line in enumerate(made.demonstration.commands) if number not in without]
        subprocess.run(["bash", "-c", "\n".join(typed)], cwd=root, capture_output=True, timeout=30)
        os.environ["T1_APP_ROOT"] = root
        try:
            module = {}
            exec(test_module(made.checks), module)
        finally:
            del os.environ["T1_APP_ROOT"]
        held = set()
        for check in made.checks:
            try:
                module[f"test_{check.name}"]()
                held.add(check.name)
            except Exception:
                continue
        return held


def everything(made):
    return range(len(made.demonstration.commands))


RECIPES = {
    "nest": Nest("moon", WRITE),
    "chain": Chain(("moon", "oak"), (WRITE, APPEND)),
    "listed": Constrain("moon", "listed", "lake.md", APPEND),
    "joined": Constrain("moon", "joined", "lake.md", WRITE),
    "counted": Constrain("moon", "counted", "lake.md", Chain(("oak", "pine"), (WRITE, APPEND))),
    "sealed": Constrain("moon", "sealed", "", Nest("oak", APPEND)),
}


@pytest.mark.parametrize("name", RECIPES)
def test_the_solution_passes_all_and_nothing_passes_none(name):
    made = build(RECIPES[name])
    names = {check.name for check in made.checks}
    assert passing(made) == names
    assert passing(made, without=everything(made)) == set()


def test_every_family_of_the_practice_pool_can_be_a_part():
    for family in TRAINED:
        made = build(Constrain("moon", "listed", "lake.md", Seed(family, 0, 1, "train", 2)))
        assert passing(made) == {check.name for check in made.checks}, family


def test_a_nested_part_is_told_by_a_note_and_read_first():
    part, made = build(WRITE), build(RECIPES["nest"])
    assert part.instruction not in made.instruction and "moon.todo" in made.instruction
    assert made.files["moon.todo"] == part.instruction + "\n"
    assert made.demonstration.steps[0] == ("cat moon.todo", part.instruction + "\n")
    assert len(made.checks) == len(part.checks)


def test_a_chain_keeps_both_parts_apart_in_words_files_and_checks():
    made = build(Chain(("moon", "oak"), (APPEND, APPEND)))  # the same names in both, and no clash
    part = build(APPEND)
    assert set(made.files) == {f"{folder}/{name}" for folder in ("moon", "oak") for name in part.files}
    assert len({check.name for check in made.checks}) == 2 * len(part.checks)
    assert made.instruction.count(part.instruction) == 2
    assert "1. In the directory moon" in made.instruction and "2. In the directory oak" in made.instruction


def test_what_a_demand_expects_is_what_the_part_leaves():
    listed, joined = build(RECIPES["listed"]), build(RECIPES["joined"])
    left = files_left(listed)
    below = sorted(name for name in left if name.startswith("moon/"))
    assert left["lake.md"] == "".join(f"{name}\n" for name in below) and below
    left = files_left(joined)
    assert left["lake.md"] == "".join(left[name] for name in sorted(left) if name.startswith("moon/"))


def test_a_demand_is_lost_when_its_command_is_left_out_and_the_parts_are_not():
    made = build(RECIPES["counted"])
    last = len(made.demonstration.commands) - 1
    lost = {check.name for check in made.checks} - passing(made, without=[last])
    assert lost == {"lake_md_exists", "lake_md_length", "lake_md_content"}
    sealed = build(RECIPES["sealed"])
    last = len(sealed.demonstration.commands) - 1
    lost = {check.name for check in sealed.checks} - passing(sealed, without=[last])
    assert lost and all(name.endswith("_is_read_only") for name in lost)


def test_a_recipe_comes_back_from_json_and_builds_the_same():
    for recipe in RECIPES.values():
        again = from_dict(json.loads(json.dumps(to_dict(recipe))))
        assert again == recipe and build(again) == build(recipe)
    assert list(seeds_of(RECIPES["counted"])) == [WRITE, APPEND]
    with pytest.raises(ValueError, match="operator 'mix' is none of"):
        from_dict({"operator": "mix"})
    for field, name in (("folder", "a; reboot"), ("folder", "../a"), ("file", "$HOME")):
        with pytest.raises(ValueError, match="is not plain"):
            from_dict(to_dict(RECIPES["listed"]) | {field: name})


def test_growth_is_a_function_of_the_seed_and_uses_every_operator():
    parents = {"a": WRITE, "b": APPEND, "c": Seed("copy", 0, 0, "train", 1)}
    grown = [grow(parents, draw=Draw(f"x/{number}")) for number in range(30)]
    assert grown == [grow(parents, draw=Draw(f"x/{number}")) for number in range(30)]
    assert {recipe.operator for recipe, _ in grown} == {"chain", "constrain", "nest"}
    for recipe, used in grown:
        assert len(used) == (2 if recipe.operator == "chain" else 1)
        assert list(seeds_of(recipe)) == [parents[name] for name in used]


def test_one_parent_alone_makes_no_chain():
    operators = {grow({"a": WRITE}, draw=Draw(f"x/{number}"))[0].operator for number in range(30)}
    assert operators == {"constrain", "nest"}
