"""A saver that puts the critic where the actor is when it is told no other place."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

FILE = "model.safetensors"


def made_up_networks(*, seed: int, width: int = 8, words: int = 16) -> dict[str, dict[str, np.ndarray]]:
    """An actor and a critic of one backbone's shape, the last layer apart, with Hugging Face names."""
    rng = np.random.default_rng(seed)
    heads = {"actor": ("lm_head.weight", words), "critic": ("value_head.weight", 1)}
    return {
        role: {
            "model.layers.0.mlp.weight": rng.normal(size=(width, width)).astype(np.float32),
            name: rng.normal(size=(outputs, width)).astype(np.float32),
        }
        for role, (name, outputs) in heads.items()
    }


def save_both(
    networks: dict[str, dict[str, np.ndarray]], *, actor: str | Path, critic: str | Path | None
) -> None:
    """Actor first, then the critic, to `critic` or, for want of it, to the actor's directory."""
    for role, directory in (("actor", Path(actor)), ("critic", Path(critic or actor))):
        directory.mkdir(parents=True, exist_ok=True)
        save_file(networks[role], directory / FILE)


def refusals(check: Callable[[str], object], spellings: Sequence[str]) -> list[str]:
    """The last line of what `check` raises for each spelling of a directory; nothing for one that passes."""
    found = []
    for spelling in spellings:
        try:
            check(spelling)
        except ValueError as error:
            found.append(str(error).splitlines()[-1].strip())
    return found


def read_back(directory: str | Path) -> dict[str, np.ndarray]:
    return load_file(Path(directory) / FILE)
