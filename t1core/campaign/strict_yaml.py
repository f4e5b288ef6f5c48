"""YAML as people write it: equal keys refused, errors that name the file."""

from pathlib import Path
from typing import Any

import yaml


class _UniqueKeys(yaml.SafeLoader):
    """YAML keeps the last of two equal keys in silence; this loader refuses them."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        if twice:
            raise ValueError(
                f"{self.name}, line {node.start_mark.line + 1}: {', '.join(twice)} is given twice"
            )
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, *, what: str) -> Any:
    """The content of a YAML file. ValueError, which calls the file `what`, where it is missing or no YAML."""
    try:
        with path.open() as file:
            return yaml.load(file, Loader=_UniqueKeys)
    except FileNotFoundError:
        raise ValueError(f"{what} {path} does not exist") from None
    except yaml.YAMLError as error:
        raise ValueError(f"{what} {path} is no YAML: {error}") from error
