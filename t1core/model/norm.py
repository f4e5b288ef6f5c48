"""RMSNorm without transformer-engine: zero-centred weights, sequence parallelism, fp32 inside."""

from typing import Any

import torch
from torch import nn


class RMSNorm(nn.Module):
    """Normalise the last dimension by its root mean square.

    Megatron builds it with (config, hidden_size, eps). The weight is stored as Hugging Face stores it: around
    0 when `config.layernorm_zero_centered_gamma`, else around 1.
    """

    zero_centered: bool | None = None

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-6, **_: Any) -> None:
        super().__init__()
        self.eps = eps
        self.shift = (
            config.layernorm_zero_centered_gamma if self.zero_centered is None else self.zero_centered
        )
        start = torch.zeros if self.shift else torch.ones
        device = torch.cuda.current_device() if torch.cuda.is_available() else None
        self.weight = nn.Parameter(start(hidden_size, dtype=config.params_dtype, device=device))
        self.weight.sequence_parallel = config.sequence_parallel

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., hidden] in and out, same dtype."""
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        weight = self.weight.float()
        return (wide * scale * (1 + weight if self.shift else weight)).type_as(x)


class PlainRMSNorm(RMSNorm):
    """The variant inside GatedDeltaNet, whose weight is never zero-centred."""

    zero_centered = False
