"""What must change in torch and SGLang beyond missing kernels: pinned memory, and three Triton-only helpers.

SGLang's own modules are patched as they are imported, so that the order of imports does not matter.
"""

import functools
import importlib.machinery
import sys

import torch
import torch.nn.functional as F


def _without_pinning(allocate):
    """torch.zeros / torch.empty on a machine without CUDA can't pin; the host buffers work unpinned."""

    @functools.wraps(allocate)
    def unpinned(*args, **kwargs):
        kwargs.pop("pin_memory", None)
        return allocate(*args, **kwargs)

    return unpinned


def _host_buffer(module) -> None:
    """The routed-experts buffer is registered with CUDA whatever the device is."""
    module._cuda_host_register = lambda *args, **kwargs: None
    module._cuda_host_unregister = lambda *args, **kwargs: None


def _gated_norm(module) -> None:
    """RMSNorm(x) * silu(z), a Triton kernel without AMX."""

    def forward(self, x, g=None, residual=None, **kwargs):
        gate = kwargs.get("z", g)
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight.float()
        return (y * F.silu(gate.float())).to(x.dtype)

    for name in ("FusedRMSNormGated", "RMSNorm"):
        if hasattr(module, name):
            getattr(module, name).forward = forward


def _shared_expert_gate(module) -> None:
    """out (+)= sigmoid(hidden @ gate) * shared, the launcher behind SGLang's fused gate."""

    def launch(hidden_states, gate_weight, shared_output, output, *, do_add):
        gated = (hidden_states.float() @ gate_weight.float()).sigmoid()[:, None] * shared_output.float()
        output.copy_(output.float() + gated if do_add else gated)

    module._launch_fused_gate_sigmoid_mul = launch


_PATCHES = {
    "sglang.kernels.ops.elementwise.elementwise": _shared_expert_gate,
    "sglang.srt.mem_cache.pool_host.common": _host_buffer,
    "sglang.kernels.ops.attention.fla.fused_norm_gate": _gated_norm,
    "sglang.kernels.ops.attention.fla.layernorm_gated": _gated_norm,
}


class _PatchOnImport:
    """Meta-path finder: runs a patch right after the module it belongs to."""

    @staticmethod
    def find_spec(fullname, path, target=None):
        if fullname not in _PATCHES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            _PATCHES[fullname](module)

        spec.loader.exec_module = exec_module
        return spec


def install() -> None:
    """Patch torch now and SGLang's modules when they come."""
    if not torch.cuda.is_available():
        torch.zeros = _without_pinning(torch.zeros)
        torch.empty = _without_pinning(torch.empty)
    sys.meta_path.insert(0, _PatchOnImport)
