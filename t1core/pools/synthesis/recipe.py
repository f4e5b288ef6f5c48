"""A recipe: how a task is composed of practice exercises, as a tree that its task and the lineage file carry.

seed        a practice exercise, by family, seed, index, space and level
nest        a part in a directory of its own, its instruction moved into a note that must be read first
chain       parts one after the other, each in a directory of its own
constrain   a part in a directory, and one more demand on all the files that it leaves
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

_PLAIN = re.compile(r"[a-z0-9]+(\.[a-z]+)?")

Demand = Literal["listed", "joined", "counted", "sealed"]
DEMANDS: tuple[Demand, ...] = get_args(Demand)


@dataclass(frozen=True)
class Seed:
    family: str
    seed: int
    index: int
    space: str
    level: int

    operator = "seed"


@dataclass(frozen=True)
class Nest:
    folder: str
    part: "Recipe"

    operator = "nest"


@dataclass(frozen=True)
class Chain:
    """`folders` differ, one a part."""

    folders: tuple[str, ...]
    parts: tuple["Recipe", ...]

    operator = "chain"


@dataclass(frozen=True)
class Constrain:
    """`file` is what the demand writes; "sealed" writes none."""

    folder: str
    demand: Demand
    file: str
    part: "Recipe"

    operator = "constrain"


Recipe = Seed | Nest | Chain | Constrain


def seeds_of(recipe: Recipe) -> Iterator[Seed]:
    """The exercises at the leaves, in order."""
    if isinstance(recipe, Seed):
        yield recipe
    else:
        for part in recipe.parts if isinstance(recipe, Chain) else (recipe.part,):
            yield from seeds_of(part)


def to_dict(recipe: Recipe) -> dict[str, Any]:
    """JSON-like, with the operator beside the fields."""
    row: dict[str, Any] = {"operator": recipe.operator}
    for name, value in vars(recipe).items():
        if isinstance(value, Recipe):
            row[name] = to_dict(value)
        elif name == "parts":
            row[name] = [to_dict(part) for part in value]
        else:
            row[name] = list(value) if isinstance(value, tuple) else value
    return row


def from_dict(row: Mapping[str, Any]) -> Recipe:
    """Read what `to_dict` wrote. ValueError for another operator or a name that no draw makes (names are typed into a
    shell), KeyError or TypeError for other fields."""
    fields = {name: value for name, value in row.items() if name != "operator"}
    for name in (*fields.get("folders", ()), fields.get("folder", "a"), fields.get("file") or "a"):
        if not _PLAIN.fullmatch(name):
            raise ValueError(f"recipe: the name {name!r} is not plain, like moon or moon.txt")
    match row["operator"]:
        case "seed":
            return Seed(**fields)
        case "nest":
            return Nest(**fields | {"part": from_dict(fields["part"])})
        case "chain":
            parts: Sequence[Any] = fields["parts"]
            return Chain(tuple(fields["folders"]), tuple(from_dict(part) for part in parts))
        case "constrain":
            return Constrain(**fields | {"part": from_dict(fields["part"])})
    raise ValueError(f"operator {row['operator']!r} is none of seed, nest, chain, constrain")
