"""The critic's last layer: one scalar a token, in place of the vocabulary projection."""

from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
from megatron.core.utils import make_sharded_tensor_for_checkpoint
from torch import nn


class ValueHead(nn.Module):
    """value = w . h + b, computed in fp32; weight and bias start at zero, so a fresh critic answers 0
    everywhere.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        device = torch.cuda.current_device() if torch.cuda.is_available() else None
        self.weight = nn.Parameter(
            torch.zeros(1, config.hidden_size, dtype=config.params_dtype, device=device)
        )
        self.bias = nn.Parameter(torch.zeros(1, dtype=config.params_dtype, device=device))
        self.sequence_parallel = config.sequence_parallel
        for param in (self.weight, self.bias):
            param.sequence_parallel = config.sequence_parallel

    def forward(
        self, x: torch.Tensor, weight: Any = None, runtime_gather_output: Any = None
    ) -> tuple[torch.Tensor, None]:
        """[T, 1, hidden] to fp32 [T, 1, 1]; the second result is Megatron's (absent) bias."""
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
