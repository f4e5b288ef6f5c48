"""Provenance: the code, the versions and the machine that a run came from."""

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

PACKAGES = (
    "t1core",
    "torch",
    "megatron-core",
    "transformers",
    "ray",
    "numpy",
    "pandas",
    "pyarrow",
    "pydantic",
    "papermill",
    "pytest",
    "pytest-json-ctrf",
    "matplotlib",
    "sglang",
    "transformer-engine",
    "flash-linear-attention",
)
_MAX_DIFF_BYTES = 1_000_000
_ENVIRONMENT = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "HF_HUB_OFFLINE",
    "PYTHONHASHSEED",
)


def collect_provenance(source: Path | None = None) -> dict[str, Any]:
    """Git commit and diff of the checkout that holds `source` (this package by default), versions, machine.

    Outside a checkout the git part says so. Untracked files are named with their SHA-256.
    """
    return {
        "git": _git(source or Path(__file__).resolve().parent),
        "python": sys.version.split()[0],
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "machine": {
            "platform": platform.platform(),
            "processor": _processor(),
            "cpus": os.cpu_count(),
            "usable_cpus": len(os.sched_getaffinity(0)),
            "memory_bytes": psutil.virtual_memory().total,
        },
        "environment": {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
    }


def describe_provenance(provenance: Mapping[str, Any]) -> str:
    """A few lines for people: commit, versions, machine."""
    git, machine = provenance["git"], provenance["machine"]
    if git["commit"] is None:
        source = git["reason"]
    else:
        source = git["commit"] + (
            ", clean" if git["is_clean"] else ", with changes that provenance.json holds"
        )
    versions = "  ".join(f"{name} {version}" for name, version in provenance["packages"].items())
    memory_gib = machine["memory_bytes"] / 2**30
    return (
        f"commit    {source}\npython    {provenance['python']}  {versions}\n"
        f"machine   {machine['usable_cpus']} CPUs ({machine['processor']}), {memory_gib:.1f} GiB, {machine['platform']}"
    )


def _git(folder: Path) -> dict[str, Any]:
    def ask(*arguments: str) -> bytes:
        return subprocess.run(
            ["git", "-c", "core.quotePath=false", *arguments], cwd=folder, check=True, capture_output=True
        ).stdout

    try:
        top = Path(ask("rev-parse", "--show-toplevel").decode().strip())
        commit = ask("rev-parse", "HEAD").decode().strip()
        diff = ask("diff", "--no-ext-diff", "HEAD")
        untracked = ask("ls-files", "-z", "--others", "--exclude-standard", "--full-name", str(top)).split(
            b"\0"
        )
    except (OSError, subprocess.CalledProcessError) as error:
        return {"commit": None, "reason": f"not in a git checkout, or git is missing: {error}"}
    files = [os.fsdecode(name) for name in untracked if name]
    return {
        "commit": commit,
        "is_clean": not diff and not files,
        "diff": diff[:_MAX_DIFF_BYTES].decode("utf-8", "replace"),
        "diff_bytes": len(diff),
        "diff_sha256": hashlib.sha256(diff).hexdigest(),
        "untracked": {name: _digest(top / name) for name in files},
    }


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
