"""The directory SGLang is started from: our checkpoint's weights beside a config.json that SGLang reads
correctly.

Three things differ from what transformers writes for Qwen3.5-MoE. SGLang ignores `layer_types` and wants
`full_attention_interval`; it ignores `rope_parameters.partial_rotary_factor` and silently rotates a quarter
of each head unless the factor stands at the top level; and it stops at the config's end-of-text id on top
of the request's stop ids.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ARCHITECTURE = "Qwen3_5MoeForCausalLM"


@dataclass(frozen=True)
class ServedModel:
    """What the client must know of the model it serves. `shapes`: Hugging Face name -> shape, experts
    stacked.
    """

    path: Path
    vocab_size: int
    num_layers: int
    num_experts: int
    experts_per_token: int
    shapes: Mapping[str, tuple[int, ...]]
    is_tied: bool


def serving_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A transformers config.json as SGLang must see it. Raises ValueError for what SGLang would serve
    wrongly.
    """
    if config.get("architectures") != [ARCHITECTURE]:
        raise ValueError(
            f"architectures={config.get('architectures')}: the sglang engine serves {ARCHITECTURE}; export "
            "the checkpoint with its Hugging Face configuration"
        )
    served = dict(config)
    served["full_attention_interval"] = _full_attention_interval(config)
    rope = config.get("rope_parameters") or {}
    factor = rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 0.25))
    if config.get("partial_rotary_factor", factor) != factor:
        raise ValueError(
            f"partial_rotary_factor={config['partial_rotary_factor']} contradicts "
            f"rope_parameters.partial_rotary_factor={factor}; keep one"
        )
    served["partial_rotary_factor"] = factor
    served["eos_token_id"] = None
    return served


def _full_attention_interval(config: Mapping[str, Any]) -> int:
    """The n of "every n-th layer is full attention", read off `layer_types` where present."""
    num_layers = config["num_hidden_layers"]
    layer_types = config.get("layer_types")
    if layer_types is None:
        return config.get("full_attention_interval", 4)
    full = [i + 1 for i, kind in enumerate(layer_types) if kind == "full_attention"]
    interval = full[0] if full else num_layers + 1
    expected = ["linear_attention" if (i + 1) % interval else "full_attention" for i in range(num_layers)]
    if list(layer_types) != expected:
        raise ValueError(
            f"layer_types={layer_types}: SGLang knows only layers that repeat with one interval; use the "
            "embedded engine for other patterns"
        )
    return interval


def prepare_model(checkpoint: Path, *, into: Path) -> ServedModel:
    """Write `into` (created) with a serving config.json and links to the checkpoint's safetensors files."""
    config_file = checkpoint / "config.json"
    if not config_file.is_file():
        raise ValueError(f"checkpoint {checkpoint}: no config.json there; give a Hugging Face directory")
    config = json.loads(config_file.read_text())
    weights = sorted(checkpoint.glob("*.safetensors"))
    if not weights:
        raise ValueError(f"checkpoint {checkpoint}: no *.safetensors there; give a Hugging Face directory")
    into.mkdir(parents=True, exist_ok=True)
    (into / "config.json").write_text(json.dumps(serving_config(config), indent=1))
    for file in [*weights, *checkpoint.glob("*.safetensors.index.json")]:
        (into / file.name).symlink_to(file.resolve())
    shapes: dict[str, tuple[int, ...]] = {}
    for file in weights:
        shapes.update(_shapes_of(file))
    return ServedModel(
        path=into,
        vocab_size=config["vocab_size"],
        num_layers=config["num_hidden_layers"],
        num_experts=config["num_experts"],
        experts_per_token=config["num_experts_per_tok"],
        shapes=stacked_shapes(shapes),
        is_tied=bool(config.get("tie_word_embeddings", False)),
    )


def _shapes_of(file: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes from a safetensors header (8 bytes of length, then JSON), without reading the
    tensors.
    """
    with file.open("rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    return {name: tuple(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}


def stacked_shapes(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Per-expert names become the stacked ones: `experts.gate_up_proj` [E, 2I, H] and `experts.down_proj`
    [E, H, I].
    """
    stacked: dict[str, tuple[int, ...]] = {}
    counts: dict[str, int] = {}
    for name, shape in shapes.items():
        prefix, is_expert, rest = name.partition(".experts.")
        number, _, leaf = rest.partition(".")
        if not is_expert or not number.isdigit():
            stacked[name] = shape
            continue
        counts[prefix] = max(counts.get(prefix, 0), int(number) + 1)
        if leaf == "gate_proj.weight":
            stacked[f"{prefix}.experts.gate_up_proj"] = (2 * shape[0], shape[1])
        elif leaf == "down_proj.weight":
            stacked[f"{prefix}.experts.down_proj"] = shape
    for prefix, count in counts.items():
        for leaf in ("gate_up_proj", "down_proj"):
            stacked[f"{prefix}.experts.{leaf}"] = (count, *stacked[f"{prefix}.experts.{leaf}"])
    return stacked
