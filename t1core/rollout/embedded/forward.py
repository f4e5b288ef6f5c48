"""One model over lanes: prefill and decode are the same call, transformers' own `forward` on a window of
lanes.

Departs from a plain call in three ways: masks are built here (the model takes them ready-made); padding
closes the gates of the recurrent layers, so that lanes of unequal lengths share a forward; and the head runs
in float32 on the weights as stored, for logits rounded to bfloat16 would widen the log-prob gap for nothing.
"""

import logging
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig
from transformers.utils import logging as transformers_logging

from t1core.rollout.embedded import expert
from t1core.rollout.embedded.cache import LaneCache, Window
from t1core.rollout.embedded.lane import Lanes, ModelShape
from t1core.routing import canonical


def shape_of(config: Qwen3_5MoeTextConfig) -> ModelShape:
    """The state's measures, from a Hugging Face text config."""
    kinds = config.layer_types
    key_dim = config.linear_key_head_dim * config.linear_num_key_heads
    value_dim = config.linear_value_head_dim * config.linear_num_value_heads
    return ModelShape(
        num_layers=config.num_hidden_layers,
        top_k=config.num_experts_per_tok,
        num_experts=config.num_experts,
        vocab_size=config.vocab_size,
        attention_layers=tuple(i for i, kind in enumerate(kinds) if kind == "full_attention"),
        gdn_layers=tuple(i for i, kind in enumerate(kinds) if kind == "linear_attention"),
        num_kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        conv_dim=2 * key_dim + value_dim,
        conv_kernel=config.linear_conv_kernel_dim,
        num_v_heads=config.linear_num_value_heads,
        k_head_dim=config.linear_key_head_dim,
        v_head_dim=config.linear_value_head_dim,
    )


class LaneModel:
    """The model over its lanes. Not thread-safe: one thread owns it."""

    def __init__(self, model_dir: Path, *, dtype: torch.dtype, num_lanes: int, max_context: int) -> None:
        transformers_logging.disable_progress_bar()
        # the advice it logs, to install the Triton kernels, breaks a CPU engine
        logging.getLogger("transformers.integrations.hub_kernels").setLevel(logging.ERROR)
        self.model = Qwen3_5MoeForCausalLM.from_pretrained(
            model_dir,
            dtype=dtype,
            attn_implementation="sdpa",
            experts_implementation=expert.NAME,
            local_files_only=True,
        ).eval()
        self.shape = shape_of(self.model.config)
        self.lanes = Lanes(self.shape, num_lanes=num_lanes, max_context=max_context, dtype=dtype)
        self.tied_names = frozenset({"lm_head.weight"} if self.model.config.tie_word_embeddings else ())
        self._cache = LaneCache(self.lanes)
        self._routed: list[torch.Tensor | None] = [None] * self.shape.num_layers
        self._is_padding: torch.Tensor | None = None
        for index, layer in enumerate(self.model.model.layers):
            layer.mlp.gate.register_forward_hook(partial(self._record, index))
            if index in self.shape.gdn_layers:
                layer.linear_attn.in_proj_a.register_forward_hook(self._close_gate)
                layer.linear_attn.in_proj_b.register_forward_hook(self._close_gate)
        self.refresh_head()

    def _record(self, index: int, module: torch.nn.Module, args: tuple, output: tuple) -> None:
        self._routed[index] = output[2]

    def _close_gate(self, module: torch.nn.Module, args: tuple, output: torch.Tensor) -> torch.Tensor | None:
        # sigmoid(-inf) and softplus(-inf) are 0: padding neither writes to the recurrent state nor lets it
        # decay
        if self._is_padding is None:
            return None
        return output.masked_fill(self._is_padding, float("-inf"))

    def refresh_head(self) -> None:
        """Take the head's weights anew; call after any change of the weights."""
        self._head = self.model.lm_head.weight.detach().float()

    def forward(self, window: Window) -> torch.Tensor:
        """Forward the window's tokens and record their routes. Returns float32 logits [n, vocab] of each
        lane's last.

        The ids come from the lanes; their lengths move to the window's ends.
        """
        lanes, positions = self.lanes, window.positions()
        lane = np.arange(window.rows.start, window.rows.stop)[:, None]
        is_token = window.is_token() if window.is_padded else None
        inside = positions if is_token is None else np.where(is_token, positions, 0)
        self._is_padding = None if is_token is None else torch.from_numpy(~is_token)[..., None]
        self._cache.aim(window)
        hidden = self.model.model(
            torch.from_numpy(lanes.ids[lane, inside].astype(np.int64)),
            attention_mask={"full_attention": _causal_mask(window), "linear_attention": None},
            position_ids=torch.from_numpy(positions),
            cache=self._cache,
        ).last_hidden_state
        routes = self._routes().reshape(*positions.shape, self.shape.num_layers, self.shape.top_k)
        if is_token is None:
            lanes.routes[lane, positions] = routes
        else:
            lanes.routes[np.broadcast_to(lane, positions.shape)[is_token], positions[is_token]] = routes[
                is_token
            ]
        lanes.length[window.rows] = window.end
        last = hidden[torch.arange(len(hidden)), torch.from_numpy(window.lengths - 1)]
        return torch.nn.functional.linear(last.float(), self._head)

    def _routes(self) -> np.ndarray:
        """Routes of the batch cells just forwarded, [cells, L, k], ids ascending."""
        routed = torch.stack(self._routed, dim=1).numpy().astype(self.shape.route_dtype)
        self._routed = [None] * self.shape.num_layers
        return canonical(routed)


def _causal_mask(window: Window) -> torch.Tensor | None:
    """Each new token sees its lane up to itself: bool [n, 1, width, longest], or None where that is plain
    causality.
    """
    if not window.start.any() and window.width > 1:
        return None
    seen = torch.from_numpy(window.positions())[..., None]
    return (torch.arange(int(window.end.max())) <= seen)[:, None]
