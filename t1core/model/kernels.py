"""Which kernels compute a network: fused ones where they can run, plain torch everywhere.

Fused are flash-linear-attention's convolution and gated delta rule, flash attention over packed rows, our own Triton
kernels (`triton_kernels`) for norms, SwiGLU and the scoring of logits. They need a CUDA device, bf16 weights, and
flash-linear-attention beside a Triton with which its backward is right. In fp32 the plain path alone keeps fp32's
accuracy, since the fused delta rule multiplies in tf32.
"""

import importlib
import importlib.util
import math
import sys
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Literal, get_args

import torch

Wanted = Literal["auto", "fused", "plain"]
FUSED_CHUNK = 64
"""Tokens of a chunk of the fused delta rule."""


@dataclass(frozen=True)
class Kernels:
    """The choice, and why it fell so: for people, and for what a run stores."""

    is_fused: bool
    why: str

    def __str__(self) -> str:
        return f"{'fused' if self.is_fused else 'plain'} ({self.why})"


PLAIN = Kernels(False, "nothing else was asked for")


def choose(wanted: Wanted, *, dtype: torch.dtype, context_parallel: str | None = None) -> Kernels:
    """The kernels of networks with weights in `dtype`. context_parallel: `Layout.gdn_cp` where there is any.

    ValueError where fused ones are wanted and cannot be.
    """
    if wanted not in get_args(Wanted):
        raise ValueError(f"kernels={wanted!r}: choose one of {', '.join(get_args(Wanted))}")
    if wanted == "plain":
        return Kernels(False, "kernels=plain")
    missing = _what_is_missing(dtype, context_parallel)
    if missing is None:
        return Kernels(True, _versions())
    if wanted == "fused":
        raise ValueError(
            f"kernels='fused' cannot be: {missing}; provide that, or set kernels to auto or plain"
        )
    return Kernels(False, missing)


def _what_is_missing(dtype: torch.dtype, context_parallel: str | None) -> str | None:
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    if dtype != torch.bfloat16:
        return f"weights are {str(dtype).removeprefix('torch.')}, and fused kernels compute bf16 ones"
    if context_parallel == "state_scan":
        return "gdn_cp=state_scan composes slices' maps, which the fused delta rule does not give"
    for package in ("fla", "triton"):
        if importlib.util.find_spec(package) is None:
            return f"{_DISTRIBUTIONS[package]} is not installed"
    return _what_triton_gets_wrong(metadata.version("triton"), torch.cuda.get_device_capability())


_DISTRIBUTIONS = {"fla": "flash-linear-attention", "triton": "triton"}


def _what_triton_gets_wrong(version: str, capability: tuple[int, int]) -> str | None:
    """Triton 3.4.0 to 3.7.0 computes a gradient of the gated delta rule wrongly on Hopper; flash-linear-attention
    (its issue 640) refuses it, but not before the first backward."""
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:3])
    if capability[0] == 9 and (3, 4, 0) <= numbers < (3, 7, 1):
        return f"Triton {version} computes a gradient of the delta rule wrongly on Hopper; 3.7.1 and later do not"
    return None


def _versions() -> str:
    names = ("fla-core", "triton", "torch")
    return ", ".join(f"{name} {metadata.version(name)}" for name in names)


def prepare() -> None:
    """What fused kernels need of this process, once: flash-linear-attention's kernels each held to one configuration.

    Left alone it times several at first use, so that ranks and runs would compute with different ones, and a first step
    would wait minutes for their compilation.
    """
    for module in ("fla.modules.causal_conv1d", "fla.ops.gated_delta_rule"):
        importlib.import_module(module)

    hold_configurations()


def hold_configurations() -> int:
    """Hold every tuned kernel of flash-linear-attention to the configuration nearest to tiles of 64, four warps and two
    stages. Returns how many there are."""
    from triton.runtime.autotuner import Autotuner

    found: dict[int, Any] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("fla.") and module is not None:
            for value in vars(module).values():
                kernel = _inner(value, Autotuner)
                if kernel is not None:
                    found[id(kernel)] = kernel
    for kernel in found.values():
        kernel.configs = [min(kernel.configs, key=_distance)]
    return len(found)


def _inner(value: Any, kind: type) -> Any:
    """The tuner within the decorators around a kernel; None where there is none."""
    while value is not None and not isinstance(value, kind):
        value = getattr(value, "fn", None) if type(value).__module__.startswith(("triton", "fla")) else None
    return value


def _distance(config: Any) -> tuple[float, float, float, str]:
    """How far a configuration is from the one wanted; the last part only makes it an order."""
    tiles = [abs(math.log2(v / 64)) for v in config.kwargs.values() if isinstance(v, int) and v > 0]
    return (
        sum(tiles),
        abs(math.log2(config.num_warps / 4)),
        abs(config.num_stages - 2),
        str(sorted(config.kwargs.items())),
    )
