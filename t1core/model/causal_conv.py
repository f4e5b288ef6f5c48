"""The short causal convolution in front of the delta rule, over packed rows."""

from typing import Any

import torch
import torch.nn.functional as F

from t1core.model.packed_rows import PackedRows


def causal_conv1d(x: torch.Tensor, weight: torch.Tensor, rows: PackedRows) -> torch.Tensor:
    """Depthwise causal convolution, then SiLU; no tap reaches over a row's start. x [T, channels], weight
    [channels, taps].
    """
    return _CausalConv.apply(x, weight, rows.offsets)


class _CausalConv(torch.autograd.Function):
    """Shifted copies of x, added up in place: torch's own depthwise convolution knows no rows."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        total = x * weight[:, -1]
        for back in range(1, weight.shape[1]):
            total[back:].addcmul_(_within_row(x[:-back], offsets, back), weight[:, -1 - back])
        ctx.save_for_backward(x, weight, offsets, total)
        return F.silu(total)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        x, weight, offsets, total = ctx.saved_tensors
        grad = torch.ops.aten.silu_backward(grad, total)
        grad_x, grad_weight = grad * weight[:, -1], torch.empty_like(weight)
        grad_weight[:, -1] = (grad * x).sum(0)
        for back in range(1, weight.shape[1]):
            inside = _within_row(grad[back:], offsets, back)
            grad_x[:-back].addcmul_(inside, weight[:, -1 - back])
            grad_weight[:, -1 - back] = (inside * x[:-back]).sum(0)
        return grad_x, grad_weight, None


def _within_row(x: torch.Tensor, offsets: torch.Tensor, back: int) -> torch.Tensor:
    """x [T - back, channels] pairs tokens `back` apart; zero where the pair spans two rows."""
    return torch.where((offsets[back:] >= back).unsqueeze(-1), x, 0)
