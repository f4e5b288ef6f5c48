"""RoPE over packed rows at once, in place of Megatron's loop over rows, which waits for a GPU at each.

The same operations on the same numbers: results are the loop's to the bit. Under context parallelism Megatron's own
function stays.
"""

from typing import Any

import megatron.core.models.common.embeddings.rope_utils as rope_utils
import torch

_row_by_row = rope_utils._apply_rotary_pos_emb_thd


def install() -> None:
    """Put the function where Megatron looks for its own; safe to call again."""
    rope_utils._apply_rotary_pos_emb_thd = _all_rows


def _all_rows(
    t: torch.Tensor, cu_seqlens: torch.Tensor, freqs: torch.Tensor, *args: Any, **kwargs: Any
) -> torch.Tensor:
    """t [T, heads, d]; cu_seqlens [rows + 1]; freqs [longest row, 1, 1, rotated channels]."""
    group = kwargs.get("cp_group")
    if args or group is None or group.size() > 1:
        return _row_by_row(t, cu_seqlens, freqs, *args, **kwargs)
    chosen = {name: value for name, value in kwargs.items() if name != "cp_group"}
    place = torch.arange(len(t), device=t.device)
    row = torch.bucketize(place, cu_seqlens[1:].to(place.dtype), right=True)
    angles = freqs[place - cu_seqlens.to(place.dtype)[row]]
    return rope_utils._apply_rotary_pos_emb_bshd(t.unsqueeze(1), angles, **chosen).squeeze(1)
