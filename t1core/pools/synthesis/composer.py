"""The model-free proposer: recipes grown from the recipes of its parents, refused where they outgrow their bounds."""

from collections.abc import Sequence
from dataclasses import dataclass

from t1core.pools.synthesis.candidate import Candidate, Parent, task_files
from t1core.pools.synthesis.compose import build
from t1core.pools.synthesis.grow import grow
from t1core.pools.synthesis.recipe import Recipe, Seed, to_dict
from t1core.tasks.harbor import load_task
from t1core.tasks.practice.checks import test_module
from t1core.tasks.practice.draw import Draw
from t1core.tasks.practice.render import GENERATOR_VERSION

_COMMAND_S = 5.0  # of an agent's time, for each command of the reference solution


@dataclass(frozen=True)
class Bounds:
    """What a composed task may not pass: a policy reads its instruction, and every test is graded each time."""

    max_tests: int = 60
    max_instruction_chars: int = 4000

    def __post_init__(self) -> None:
        for name in ("max_tests", "max_instruction_chars"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")


class Composer:
    """Proposes compositions of practice exercises. The same seed proposes the same."""

    def __init__(self, *, seed: int, bounds: Bounds) -> None:
        self._seed, self._bounds = seed, bounds

    async def propose(self, parents: Sequence[Parent], *, round_number: int, index: int) -> Candidate:
        """A candidate one operator deeper than its parents."""
        recipes = {parent.task_id: _recipe(parent) for parent in parents}
        recipe, used = grow(recipes, draw=Draw(f"synthesis/{self._seed}/{round_number}/{index}"))
        made = build(recipe)
        origin = {"recipe": to_dict(recipe)}
        problem = ""
        if len(made.checks) > self._bounds.max_tests:
            problem = f"more than {self._bounds.max_tests} tests: {len(made.checks)}"
        elif len(made.instruction) > self._bounds.max_instruction_chars:
            problem = f"instruction longer than {self._bounds.max_instruction_chars}: {len(made.instruction)}"
        if problem:
            return Candidate(recipe.operator, used, origin, problem=problem)
        commands = made.demonstration.commands
        files = task_files(
            instruction=made.instruction,
            files=made.files,
            solution='#!/bin/bash\ncd "${T1_APP_ROOT:-/app}"\n' + "\n".join(commands) + "\n",
            tests=test_module(made.checks),
            family=f"composed-{recipe.operator}",
            lineage={"round": round_number, "parents": list(used), "operator": recipe.operator},
            agent_timeout_s=max(60.0, _COMMAND_S * len(commands)),
        )
        return Candidate(recipe.operator, used, origin, files=files, recipe=recipe)


def _recipe(parent: Parent) -> Recipe:
    """The parent's recipe, for a seed from what the practice generator wrote into its task.toml."""
    if parent.recipe is not None:
        return parent.recipe
    task = load_task(parent.directory)
    found = task.metadata
    if found.get("generator_version") != GENERATOR_VERSION:
        raise ValueError(
            f"task {parent.task_id} is not of practice generator {GENERATOR_VERSION}, whose tasks alone can be "
            "composed without a model; give a practice pool, or --endpoint and --model"
        )
    return Seed(task.family, found["seed"], found["index"], found["space"], found["level"])
