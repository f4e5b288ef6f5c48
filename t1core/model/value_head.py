"""The critic's last layer, in place of the vocabulary projection: a scalar a token, or the logits of a histogram."""

from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
from megatron.core.utils import make_sharded_tensor_for_checkpoint
from torch import nn


class ValueHead(nn.Module):
    """W h + b, computed in fp32; weight and bias start at zero, so a fresh scalar answers 0 everywhere and a fresh
    histogram is flat.
    """

    def __init__(self, config: Any, *, num_outputs: int = 1) -> None:
        super().__init__()
        device = torch.cuda.current_device() if torch.cuda.is_available() else None
        self.weight = nn.Parameter(
            torch.zeros(num_outputs, config.hidden_size, dtype=config.params_dtype, device=device)
        )
        self.bias = nn.Parameter(torch.zeros(num_outputs, dtype=config.params_dtype, device=device))
        self.sequence_parallel = config.sequence_parallel
        for param in (self.weight, self.bias):
            param.sequence_parallel = config.sequence_parallel

    def forward(
        self, x: torch.Tensor, weight: Any = None, runtime_gather_output: Any = None
    ) -> tuple[torch.Tensor, None]:
        """[T, 1, hidden] to fp32 [T, 1, outputs]; the second result is Megatron's (absent) bias."""
        values = F.linear(x.float(), self.weight.float(), self.bias.float())
        if self.sequence_parallel:
            values = gather_from_sequence_parallel_region(values, tensor_parallel_output_grad=False)
        return values, None

    def sharded_state_dict(
        self, prefix: str = "", sharded_offsets: tuple = (), metadata: Any = None
    ) -> dict[str, Any]:
        return {
            prefix + name: make_sharded_tensor_for_checkpoint(
                param, prefix + name, prepend_offsets=sharded_offsets
            )
            for name, param in (("weight", self.weight), ("bias", self.bias))
        }
