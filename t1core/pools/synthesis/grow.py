"""Growing recipes: an operator and its partners drawn from a seed, so that a round is the same each time."""

from collections.abc import Mapping

from t1core.pools.synthesis.recipe import DEMANDS, Chain, Constrain, Nest, Recipe
from t1core.tasks.practice.draw import Draw

OPERATORS = ("chain", "constrain", "nest")
OPERATOR_MIX = (0.45, 0.35, 0.2)


def grow(parents: Mapping[str, Recipe], *, draw: Draw) -> tuple[Recipe, tuple[str, ...]]:
    """(a recipe one operator deeper, the ids of the parents that it is made of).

    A chain takes two different parents, or is a constraint where there is only one.
    """
    ids = draw.shuffled(sorted(parents))
    operator = OPERATORS[draw.level(OPERATOR_MIX) - 1]
    first, folder = ids[0], draw.word()
    if operator == "chain" and len(ids) > 1:
        second = ids[1]
        return Chain((folder, draw.word()), (parents[first], parents[second])), (first, second)
    if operator == "nest":
        return Nest(folder, parents[first]), (first,)
    demand = DEMANDS[draw.number(0, len(DEMANDS) - 1)]
    return Constrain(folder, demand, "" if demand == "sealed" else draw.name(), parents[first]), (first,)
