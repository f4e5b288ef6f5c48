"""One hash for all that a figure is drawn from, so that changed data and a changed style can be told apart."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pydantic import BaseModel


def data_digest(*inputs: Any, **named: Any) -> str:
    """SHA-256 of a figure's inputs: frames by values, names and order, numbers to nine significant digits."""
    digest = hashlib.sha256()
    for name, value in (*((str(place), value) for place, value in enumerate(inputs)), *sorted(named.items())):
        digest.update(f"{name}\n{_text(value)}\n".encode())
    return digest.hexdigest()


def _text(value: Any) -> str:
    if isinstance(value, pd.DataFrame):
        return value.to_csv(index=False, float_format="%.9g")
    if isinstance(value, pd.Series):
        return value.to_csv(float_format="%.9g")
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, BaseModel):
        return _plain(value.model_dump())
    if isinstance(value, pd.DataFrame | pd.Series):
        return _text(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, str | bool | None):
        return value
    if isinstance(value, int | float | np.number):
        return f"{value:.9g}"
    if isinstance(value, Sequence | np.ndarray):
        return [_plain(entry) for entry in value]
    raise TypeError(f"a figure is drawn from frames, numbers and texts, and not from {type(value).__name__}")
