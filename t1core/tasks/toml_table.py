"""A table of a TOML file, read key by key; every refusal names the task, the key, its value and the way out."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])(?:i?B)?", re.IGNORECASE)
_UNIT_MB = {"K": 2**-10, "M": 1, "G": 2**10, "T": 2**20}
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


class Table:
    """`values` of the task in `directory`; `above` is what stands before its keys in the file (`agent.`)."""

    def __init__(self, values: Mapping[str, Any], *, directory: Path, above: str = "") -> None:
        self.values, self.directory, self.above = values, directory, above

    def table(self, name: str) -> "Table":
        """A table in this one, empty when it is not there."""
        found = self.values.get(name)
        if found is not None and not isinstance(found, dict):
            raise self.refusal(name, "must be a table")
        return Table(found or {}, directory=self.directory, above=f"{self.above}{name}.")

    def tables(self, name: str) -> list["Table"]:
        """An array of tables in this one."""
        found = self.value(name) or []
        if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
            raise self.refusal(name, f"must be tables, each begun with [[{self.above}{name}]]")
        return [
            Table(item, directory=self.directory, above=f"{self.above}{name}[{index}].")
            for index, item in enumerate(found)
        ]

    def value(self, key: str) -> Any:
        """Whatever stands there, or None."""
        return self.values.get(key)

    def text(self, key: str) -> str:
        """A text or a whole number, as text; "" when it is not there."""
        value = self.value(key)
        if value is None:
            return ""
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise self.refusal(key, "must be text")
        return str(value)

    def needed_text(self, key: str) -> str:
        """A text that must be there."""
        if not self.text(key):
            raise self.refusal(key, "is missing here; write it")
        return self.text(key)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts."""
        found = self.value(key) or []
        if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
            raise self.refusal(key, "must be a list of texts")
        return tuple(found)

    def number(self, key: str, what: str) -> float | None:
        """A finite number above 0, or None when it is not there; `what` says what it should be."""
        return self._number(key, what, allows_zero=False)

    def seconds(self, key: str, default: float) -> float:
        """A number of seconds from 0 on."""
        found = self._number(key, "a number of seconds, 0 or more", allows_zero=True)
        return default if found is None else found

    def whole(self, key: str, default: int) -> int:
        """A whole number from 0 on."""
        value = self.value(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.refusal(key, "must be a whole number, 0 or more")
        return value

    def _number(self, key: str, what: str, *, allows_zero: bool) -> float | None:
        value = self.value(key)
        if value is None:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value < float("inf") or (value == 0 and not allows_zero):
            raise self.refusal(key, f"must be {what}")
        return float(value)

    def env(self, key: str = "env") -> Mapping[str, str]:
        """A table of names and values, variables of the host replaced by their defaults."""
        out = {}
        for name, value in self.table(key).values.items():
            if not isinstance(value, str | int | float) or isinstance(value, bool):
                raise self.table(key).refusal(name, "must be text")
            out[name] = _VARIABLE.sub(self._default(key, name), str(value))
        return out

    def _default(self, key: str, name: str) -> Callable[[re.Match[str]], str]:
        def replace(match: re.Match[str]) -> str:
            if match[2] is None:
                raise self.table(key).refusal(
                    name, f"the host's environment never reaches a box; write ${{{match[1]}:-default}}"
                )
            return match[2]

        return replace

    def megabytes(self, name: str) -> int | None:
        """`<name>_mb`, or Harbor's older `<name> = "2G"`."""
        size = self.number(f"{name}_mb", "a number of megabytes above 0")
        text = self.value(name)
        if text is None:
            return None if size is None else max(1, int(size))
        match = _SIZE.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None:
            raise self.refusal(name, 'must be a size such as "2G"')
        older = float(match[1]) * _UNIT_MB[match[2].upper()]
        if size is not None and int(size) != int(older):
            raise self.refusal(name, f"contradicts {name}_mb {size:g}; leave it out")
        return max(1, int(older))

    def refusal(self, key: str, reason: str) -> ValueError:
        """What is wrong with a key's value, to be raised."""
        return ValueError(f"task {self.directory}: {self.above}{key} {self.value(key)!r}: {reason}")
