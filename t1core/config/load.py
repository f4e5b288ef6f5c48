"""From a preset, a file and flags to one resolved `CampaignConfig`; later wins, unknown keys fail by name."""

import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from t1core.config.campaign import CampaignConfig

PRESETS = Path(__file__).parent / "presets"
PROTOCOLS = Path(__file__).parent / "protocols"


def list_presets() -> tuple[str, ...]:
    """Names of the presets that ship with the package."""
    return tuple(sorted(path.stem for path in PRESETS.glob("*.toml")))


def protocol_path(protocol: str) -> Path:
    """Path of an evaluation's protocol by name, or of a TOML file given by path. ValueError when there is neither."""
    path = Path(protocol) if protocol.endswith(".toml") else PROTOCOLS / f"{protocol}.toml"
    if not path.is_file():
        names = ", ".join(sorted(known.stem for known in PROTOCOLS.glob("*.toml")))
        raise ValueError(f"protocol={protocol!r} is not one of {names}, nor the path of a TOML file")
    return path


def preset_path(preset: str) -> Path:
    """Path of a preset by name, or of a TOML file given by path. ValueError when there is neither."""
    if preset.endswith(".toml"):
        path = Path(preset)
        if not path.is_file():
            raise ValueError(f"preset={preset!r}: no such file")
        return path
    path = PRESETS / f"{preset}.toml"
    if not path.is_file():
        raise ValueError(
            f"preset={preset!r} is not one of {', '.join(list_presets())}, nor a path ending in .toml"
        )
    return path


def load_config(preset: str, overrides: Iterable[str] = (), **fields: Any) -> CampaignConfig:
    """Resolve defaults, preset, then `key.path=value` overrides, then top-level `fields`.

    Values of overrides are read as TOML, and as a plain string where they are not TOML. ValueError names the key, the
    value and the nearest known key.
    """
    path = preset_path(preset)
    try:
        tree = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"preset {path}: not valid TOML: {error}") from None
    for override in overrides:
        _apply(tree, override)
    tree |= {key: value for key, value in fields.items() if value is not None}
    return resolve(tree, origin=str(path))


def resolve(tree: Mapping[str, Any], *, origin: str) -> CampaignConfig:
    """Validate a nested mapping. ValueError lists every field that is wrong, its value and the way out."""
    try:
        return CampaignConfig.model_validate(tree)
    except ValidationError as error:
        lines = [_explain(item) for item in error.errors()]
        raise ValueError(f"configuration from {origin} is refused:\n  " + "\n  ".join(lines)) from None


def changed(tree: Mapping[str, Any], overrides: Sequence[str], *, origin: str) -> CampaignConfig:
    """A stored configuration with dotted overrides. Raises as `resolve` does."""
    copied = json.loads(json.dumps(tree))
    for override in overrides:
        _apply(copied, override)
    return resolve(copied, origin=origin)


def to_json(config: CampaignConfig) -> str:
    """The resolved configuration, as every run directory stores it."""
    return json.dumps(config.model_dump(mode="json"), indent=2, sort_keys=True)


def _apply(tree: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key.strip():
        raise ValueError(f"override {override!r} is not of the form section.key=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *sections, leaf = key.strip().split(".")
    node = tree
    for section in sections:
        node = node.setdefault(section, {})
        if not isinstance(node, dict):
            raise ValueError(f"override {override!r}: {section!r} is a value, not a section")
    node[leaf] = value


def _explain(item: Mapping[str, Any]) -> str:
    location = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        keys = known_keys()
        sections = {key.rpartition(".")[0] for key in keys} - {""}
        near = difflib.get_close_matches(location, [*keys, *sections], n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        return f"{location}={item['input']!r}: unknown key{hint}"
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "value_error":
        # A check over several fields names them itself; its input is the whole section.
        return f"{location}: {message}" if location else message
    return f"{location}={item['input']!r}: {message}"


def known_keys(model: type[BaseModel] = CampaignConfig, prefix: str = "") -> list[str]:
    """Every dotted key of the configuration."""
    keys = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            keys += known_keys(kind, f"{prefix}{name}.")
        else:
            keys.append(prefix + name)
    return keys
