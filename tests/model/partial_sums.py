"""One process that rounds as two tensor-parallel ranks do, and nothing else: what explains bf16 under TP + SP."""

from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from torch import nn

from t1core.model.scoring import LmHead
from t1core.model.shape import ModelShape
from t1core.model.weights import table

RANKS = 2


def round_as_two_ranks(model: nn.Module, shape: ModelShape) -> None:
    """Replace the products of a tp = 1 model.

    A row-parallel product is the sum of each rank's partial product, rounded to the weights' type before it is sent
    and once more when added. A column-parallel product's input gradient is such a sum too.
    """
    weights = {weight.megatron: weight for weight in table(shape)}
    for name, module in model.named_modules():
        if isinstance(module, RowParallelLinear):
            module.forward = _summed_over_columns(module)
        elif isinstance(module, ColumnParallelLinear):
            rows = torch.arange(module.weight.shape[0])[:, None]
            weight = weights[name + ".weight"]
            shards = [weight.shard(rows, rank=rank, size=RANKS).squeeze(1) for rank in range(RANKS)]
            if isinstance(module, LmHead):
                module.project = _product(module, shards)
            else:
                module.forward = _with_summed_gradient(module, shards)


def _summed_over_columns(module: nn.Module) -> Any:
    def forward(x: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:
        parts = zip(x.chunk(RANKS, -1), module.weight.chunk(RANKS, 1), strict=True)
        first, second = (F.linear(part, weight) for part, weight in parts)
        return first + second, None

    return forward


def _with_summed_gradient(module: nn.Module, shards: list[torch.Tensor]) -> Any:
    product = _product(module, shards)

    def forward(x: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:
        return product(x), None

    return forward


def _product(module: nn.Module, shards: list[torch.Tensor]) -> Any:
    return lambda x: _Product.apply(x, module.weight, *shards)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, *shards: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight, *shards)
        return F.linear(x, weight)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, *shards = ctx.saved_tensors
        first, second = (grad[..., rows] @ weight[rows] for rows in shards)
        return first + second, grad.flatten(0, -2).t() @ x.flatten(0, -2), *([None] * len(shards))
