"""A notebook's parameters: what its `parameters` cell declares, and the values that are let in.

The cell holds only lines `name: type = default  # help`, defaults being literals. papermill would take any
name, take the string that YAML makes of `1e-6`, and leave values derived in the cell stale; here each is
refused with a way out.
"""

import ast
import io
import tokenize
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SCALARS: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict}


@dataclass(frozen=True)
class Parameter:
    """One declared parameter; `kind` is str, int, float, bool, list, dict, list[X], dict[str, X] or X | None."""

    name: str
    kind: Any
    default: Any
    help: str


def parse_parameters(source: str) -> dict[str, Parameter]:
    """The parameters that a cell declares. ValueError at the first line that is anything else."""
    comments = _comments(source)
    found: dict[str, Parameter] = {}
    for statement in ast.parse(source).body:
        line = ast.get_source_segment(source, statement) or ""
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            raise ValueError(f"parameters cell: {line!r} is not `name: type = default  # help`")
        name = statement.target.id
        if statement.value is None:
            raise ValueError(f"parameters cell: {name} has no default")
        try:
            default = ast.literal_eval(statement.value)
        except ValueError:
            raise ValueError(
                f"parameters cell: the default of {name}, {ast.unparse(statement.value)!r}, is derived. "
                "A value given from outside would leave it stale: give a literal here, derive in a later cell"
            ) from None
        if name in found:
            raise ValueError(f"parameters cell: {name} is declared twice")
        kind = _kind(statement.annotation, name=name)
        found[name] = Parameter(
            name, kind, _admit(name, kind, default), comments.get(statement.end_lineno or 0, "")
        )
    return found


def check_parameters(declared: Mapping[str, Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """The given values, converted where nothing is lost (1 and '1e-6' for a float). ValueError otherwise."""
    unknown = sorted(set(given) - set(declared))
    if unknown:
        known = ", ".join(f"{name}: {show_kind(parameter.kind)}" for name, parameter in declared.items())
        raise ValueError(f"the notebook has no parameter {', '.join(unknown)}; it has {known or 'none'}")
    return {name: _admit(name, declared[name].kind, value) for name, value in given.items()}


def show_kind(kind: Any) -> str:
    return kind.__name__ if type(kind) is type else str(kind)


def _admit(name: str, kind: Any, value: Any) -> Any:
    """The value as `kind`, or ValueError with the way out."""
    if isinstance(kind, types.UnionType):
        if value is None:
            return None
        (inner,) = [part for part in kind.__args__ if part is not type(None)]
        return _admit(name, inner, value)
    if isinstance(kind, types.GenericAlias):
        outer, inner = kind.__origin__, kind.__args__[-1]
        _admit(name, outer, value)
        if outer is list:
            return [_admit(f"{name}[{index}]", inner, item) for index, item in enumerate(value)]
        return {key: _admit(f"{name}[{key!r}]", inner, item) for key, item in value.items()}
    if type(value) is kind:
        return value
    if kind is float:
        if type(value) is int:
            return float(value)
        if isinstance(value, str):
            try:
                return float(value)
            except ValueError:
                pass
    way_out = ""
    if kind is str and isinstance(value, int | float | bool):
        way_out = f"; put it in quotes: '{value}'"
    elif kind is int and type(value) is float and value.is_integer():
        way_out = f"; write {int(value)}"
    elif kind is list:
        way_out = f"; write [{value}]"
    raise ValueError(
        f"parameter {name}: {value!r} is {type(value).__name__}, expected {show_kind(kind)}{way_out}"
    )


def _kind(annotation: ast.expr, *, name: str) -> Any:
    match annotation:
        case ast.Name(id=word) if word in _SCALARS:
            return _SCALARS[word]
        case ast.Subscript(value=ast.Name(id="list"), slice=inner):
            return list[_kind(inner, name=name)]
        case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[ast.Name(id="str"), inner])):
            return dict[str, _kind(inner, name=name)]
        case ast.BinOp(left=inner, op=ast.BitOr(), right=ast.Constant(value=None)):
            return _kind(inner, name=name) | None
    raise ValueError(
        f"parameters cell: {name} has type {ast.unparse(annotation)!r}; "
        "use str, int, float, bool, list, dict, list[X], dict[str, X] or X | None"
    )


def _comments(source: str) -> dict[int, str]:
    """Line number to the comment that ends the line."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
