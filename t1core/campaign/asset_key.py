"""Keys of prepared things: a digest over all that determines one on this machine.

That is the settings, the source files that make it, the Python and the libraries that do the arithmetic, and, where it
is made from weights, the weights themselves.
"""

import hashlib
import json
import platform
from importlib import metadata
from pathlib import Path

import t1core

# Files below t1core, as patterns. A pattern that opens with "!" takes files out again.
POOL = ("tasks/**/*.py", "records/task.py")
POLICY = (
    *POOL,
    "records/*.py",
    "metrics/*.py",
    "!metrics/reference.py",
    "store/*.py",
    "agent/*.py",
    "!agent/context.py",
    "!agent/loop.py",
    "model/*.py",
    "rl/*.py",
    "train/*.py",
    "!train/peak_memory.py",
    "!train/value_pretraining.py",
    "sandbox/__init__.py",
    "sandbox/sandbox.py",
    "cluster/environment.py",
    "campaign/asset.py",
    "campaign/assets.py",
    "campaign/demonstrations.py",
    "campaign/nano.py",
    "campaign/warm_start.py",
)
CAMPAIGN = (
    "**/*.py",
    "!analysis/**/*.py",
    "!view/**/*.py",
    "!failures/**/*.py",
    "!cli.py",
    "!campaign/notebook*.py",
    "!campaign/strict_yaml.py",
    "!campaign/claim*.py",
    "!campaign/execute.py",
    "!campaign/launch.py",
    "!campaign/report.py",
    "!campaign/sinks.py",
    "!campaign/commands.py",
    "!campaign/pool_*.py",
    "!pools/**/*.py",
    "!campaign/comparison.py",
    "!campaign/rehearsal.py",
    "!campaign/project.py",
    "!campaign/replay.py",
    "!campaign/tail.py",
    "!config/explain.py",
    "!metrics/reference.py",
)
_LIBRARIES = ("megatron-core", "numpy", "tokenizers", "torch", "transformers")


def asset_key(*parts: object, sources: tuple[str, ...]) -> str:
    """Twelve hex digits over JSON-like `parts`, the named source files and the library versions."""
    versions = {name: metadata.version(name) for name in _LIBRARIES} | {"python": platform.python_version()}
    digest = hashlib.sha256(json.dumps([parts, versions], sort_keys=True).encode())
    root = Path(t1core.__file__).parent
    for path in source_files(root, sources):
        digest.update(f"\0{path.relative_to(root).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def source_files(root: Path, patterns: tuple[str, ...]) -> list[Path]:
    """The files below `root` that the patterns leave, sorted. Every pattern must name one."""
    files: set[Path] = set()
    for pattern in patterns:
        named = set(root.glob(pattern.removeprefix("!")))
        assert named, f"{pattern} names no source file"
        files = files - named if pattern.startswith("!") else files | named
    return sorted(files)


def weights_key(directory: Path) -> str:
    """A digest over the weights, shape and tokenizer of a Hugging Face directory, wherever it lies; a critic's has no
    tokenizer."""
    digest = hashlib.sha256()
    for path in sorted(
        [*directory.glob("*.safetensors"), directory / "config.json", *directory.glob("tokenizer.json")]
    ):
        with path.open("rb") as file:
            digest.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()
