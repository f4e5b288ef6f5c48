"""What a setting means and where a configuration differs from another: the settings' own docstrings and values."""

import difflib
import json
import types
import typing
from typing import Any, Literal

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from t1core.config.campaign import CampaignConfig
from t1core.config.load import known_keys

_BOUNDS = {Ge: (">=", "ge"), Gt: (">", "gt"), Le: ("<=", "le"), Lt: ("<", "lt")}


def explain(key: str, config: CampaignConfig) -> list[str]:
    """What one setting means, what it may be, its default and its value in `config`; of a section, every setting with
    its value. ValueError for a key that there is not, with the nearest.
    """
    model: Any = CampaignConfig
    value: Any = config
    field: FieldInfo | None = None
    for part in key.split("."):
        if not (isinstance(model, type) and issubclass(model, BaseModel) and part in model.model_fields):
            raise ValueError(f"{key!r} is no setting{_nearest(key)}")
        field = model.model_fields[part]
        model, value = field.annotation, getattr(value, part)
    assert field is not None
    if isinstance(value, BaseModel):
        return [f"{key}: a section", *_section_lines(value, key)]
    default = field.get_default(call_default_factory=True)
    return [
        f"{key} = {_shown(value)}" + ("" if value == default else f"  (default {_shown(default)})"),
        f"  {_kind(field.annotation)}{_bounds(field)}",
        f"  {' '.join((field.description or '').split())}",
    ]


def difference_lines(config: CampaignConfig, other: CampaignConfig, *, name: str) -> list[str]:
    """A line for each setting whose value is not that of `other`, which is called `name`."""
    ours, theirs = flat(config.model_dump(mode="json")), flat(other.model_dump(mode="json"))
    return [
        f"{key} = {_shown(value)}  ({name}: {_shown(theirs[key])})"
        for key, value in ours.items()
        if value != theirs[key]
    ]


def _section_lines(section: BaseModel, key: str) -> list[str]:
    lines = []
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        told = "a section" if isinstance(value, BaseModel) else _shown(value)
        first = " ".join((field.description or "").split()).split(". ")[0]
        lines.append(f"  {key}.{name} = {told}" + (f"  # {first}" if first else ""))
    return lines


def _nearest(key: str) -> str:
    keys = known_keys()
    sections = {known.rpartition(".")[0] for known in keys} - {""}
    near = difflib.get_close_matches(key, [*keys, *sections], n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else "; `t1 config` prints all of them"


def _kind(annotation: Any) -> str:
    origin = typing.get_origin(annotation)
    if origin is Literal:
        return "one of " + ", ".join(map(str, typing.get_args(annotation)))
    if origin in (types.UnionType, typing.Union):
        return " or ".join(
            "nothing" if part is type(None) else _kind(part) for part in typing.get_args(annotation)
        )
    return annotation.__name__ if isinstance(annotation, type) and origin is None else str(annotation)


def _bounds(field: FieldInfo) -> str:
    told = [
        f"{sign} {getattr(bound, attribute):g}"
        for bound in field.metadata
        for kind, (sign, attribute) in _BOUNDS.items()
        if isinstance(bound, kind)
    ]
    return ", " + ", ".join(told) if told else ""


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested mapping with dotted keys."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


def _shown(value: Any) -> str:
    return json.dumps(value, default=str)
