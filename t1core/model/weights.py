"""Where each of Megatron's tensors comes from in a Hugging Face checkpoint, and how ranks divide it.

One table serves every direction: whole state dicts, a rank's own slice on load, and the gathering on export.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from t1core.model.shape import ModelShape

Pack = Callable[[Sequence[torch.Tensor]], torch.Tensor]
Unpack = Callable[[torch.Tensor], Sequence[torch.Tensor]]


@dataclass(frozen=True)
class Weight:
    """One Megatron tensor.

    hf: the Hugging Face tensors it is made of. pack, unpack: exact rearrangements between them and it. split:
    how ranks divide it: "rows" and "columns" over tensor parallelism, "experts" over expert parallelism, None
    for a copy on each. sections: row counts of the parts that are each divided over the ranks ("rows" only;
    one part when empty). layer: counted from 0, -1 before the layers (first pipeline stage), None after them
    (last stage).
    """

    megatron: str
    hf: tuple[str, ...]
    pack: Pack
    unpack: Unpack
    layer: int | None
    split: Literal["rows", "columns", "experts"] | None = None
    sections: tuple[int, ...] = ()

    def shard(self, whole: torch.Tensor, *, rank: int, size: int) -> torch.Tensor:
        """The part of `whole` that belongs to `rank` of `size`."""
        if self.split is None or size == 1:
            return whole
        if self.split == "columns":
            return whole.chunk(size, dim=1)[rank]
        parts = whole.split(list(self.sections) or [len(whole)])
        return torch.cat([part.chunk(size)[rank] for part in parts])

    def join(self, shards: Sequence[torch.Tensor]) -> torch.Tensor:
        """Undo `shard`: all ranks' parts, in rank order, to the whole."""
        if self.split is None or len(shards) == 1:
            return shards[0]
        if self.split == "columns":
            return torch.cat(list(shards), dim=1)
        sections = [n // len(shards) for n in self.sections] or [len(shards[0])]
        pieces = [shard.split(sections) for shard in shards]
        return torch.cat([piece for part in zip(*pieces, strict=True) for piece in part])


def _same(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return tensors[0]


def _alone(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    return (tensor,)


def table(shape: ModelShape, *, role: Literal["actor", "critic"] = "actor") -> list[Weight]:
    """Every tensor of the network, in order; a critic ends in its value head, an actor in the vocabulary
    projection.
    """

    def plain(
        megatron: str, hf: str, layer: int | None, split: Literal["rows", "columns", "experts"] | None = None
    ) -> Weight:
        return Weight(megatron, (hf,), _same, _alone, layer, split)

    weights = [plain("embedding.word_embeddings.weight", "model.embed_tokens.weight", -1, "rows")]
    for layer in range(shape.num_layers):
        to, of = f"decoder.layers.{layer}.", f"model.layers.{layer}."
        weights.append(plain(to + "input_layernorm.weight", of + "input_layernorm.weight", layer))
        weights += _attention(shape, layer) if shape.is_full_attention(layer) else _delta_net(shape, layer)
        weights += [
            plain(to + "pre_mlp_layernorm.weight", of + "post_attention_layernorm.weight", layer),
            plain(to + "mlp.router.weight", of + "mlp.gate.weight", layer),
            plain(to + "mlp.experts.w1", of + "mlp.experts.gate_up_proj", layer, "experts"),
            plain(to + "mlp.experts.w2", of + "mlp.experts.down_proj", layer, "experts"),
            _concatenated(
                to + "mlp.shared_experts.linear_fc1.weight",
                [of + "mlp.shared_expert.gate_proj.weight", of + "mlp.shared_expert.up_proj.weight"],
                [shape.shared_expert_intermediate_size] * 2,
                layer,
            ),
            plain(
                to + "mlp.shared_experts.linear_fc2.weight",
                of + "mlp.shared_expert.down_proj.weight",
                layer,
                "columns",
            ),
            plain(to + "mlp.shared_experts.gate_weight", of + "mlp.shared_expert_gate.weight", layer),
        ]
    weights.append(plain("decoder.final_layernorm.weight", "model.norm.weight", None))
    if role == "actor":
        weights.append(plain("output_layer.weight", "lm_head.weight", None, "rows"))
    else:
        weights += [
            plain("output_layer.weight", "value_head.weight", None),
            plain("output_layer.bias", "value_head.bias", None),
        ]
    return weights


def matching(patterns: Sequence[str], *, shape: ModelShape, role: Literal["actor", "critic"]) -> list[Weight]:
    """The tensors whose Hugging Face names match one of the regular expressions (re.search).

    ValueError for an expression that is none or names nothing, for one that names a part of a tensor that Megatron
    keeps whole, and when the whole network would match.
    """
    weights, found = table(shape, role=role), []
    for pattern in patterns:
        try:
            names = [name for weight in weights for name in weight.hf if re.search(pattern, name)]
        except re.error as error:
            raise ValueError(f"{role}_frozen: {pattern!r} is no regular expression: {error}") from None
        if not names:
            raise ValueError(
                f"{role}_frozen: {pattern!r} names no weight; names look like {weights[1].hf[0]}"
            )
    for weight in weights:
        hits = [any(re.search(pattern, name) for pattern in patterns) for name in weight.hf]
        if all(hits):
            found.append(weight)
        elif any(hits):
            raise ValueError(
                f"{role}_frozen: {', '.join(weight.hf)} are one tensor here: match all of them or none"
            )
    if len(found) == len(weights):
        raise ValueError(f"{role}_frozen={list(patterns)} matches every weight: nothing is left to train")
    return found


def _concatenated(
    megatron: str, hf: list[str], rows: list[int], layer: int, sections: Sequence[int] = ()
) -> Weight:
    return Weight(
        megatron,
        tuple(hf),
        pack=lambda parts: torch.cat(list(parts)),
        unpack=lambda whole: whole.split(rows),
        layer=layer,
        split="rows",
        sections=tuple(sections or rows),
    )


def _attention(shape: ModelShape, layer: int) -> list[Weight]:
    to, of = f"decoder.layers.{layer}.self_attention.", f"model.layers.{layer}.self_attn."
    groups, dim = shape.num_query_groups, shape.head_dim
    queries = shape.num_attention_heads // groups

    def pack(parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Hugging Face: [query, gate] head by head, then keys, then values. Megatron: group by group
        [queries, gates, key, value]."""
        q, k, v = parts
        hidden = q.shape[-1]
        q = q.view(groups, queries, 2, dim, hidden)
        k, v = (x.view(groups, 1, dim, hidden) for x in (k, v))
        return torch.cat([q[:, :, 0], q[:, :, 1], k, v], dim=1).reshape(-1, hidden)

    def unpack(whole: torch.Tensor) -> Sequence[torch.Tensor]:
        hidden = whole.shape[-1]
        q, gate, k, v = whole.view(groups, -1, dim, hidden).split([queries, queries, 1, 1], dim=1)
        return torch.stack([q, gate], dim=2).reshape(-1, hidden), k.reshape(-1, hidden), v.reshape(-1, hidden)

    names = tuple(of + f"{x}_proj.weight" for x in "qkv")
    return [
        Weight(to + "linear_qkv.weight", names, pack, unpack, layer, "rows"),
        Weight(to + "linear_proj.weight", (of + "o_proj.weight",), _same, _alone, layer, "columns"),
        Weight(to + "q_layernorm.weight", (of + "q_norm.weight",), _same, _alone, layer),
        Weight(to + "k_layernorm.weight", (of + "k_norm.weight",), _same, _alone, layer),
    ]


def _delta_net(shape: ModelShape, layer: int) -> list[Weight]:
    to, of = f"decoder.layers.{layer}.self_attention.", f"model.layers.{layer}.linear_attn."
    keys = shape.linear_key_head_dim * shape.linear_num_key_heads
    values, heads = shape.linear_value_head_dim * shape.linear_num_value_heads, shape.linear_num_value_heads
    return [
        _concatenated(
            to + "in_proj.weight",
            [of + f"in_proj_{x}.weight" for x in ("qkv", "z", "b", "a")],
            [2 * keys + values, values, heads, heads],
            layer,
            sections=[keys, keys, values, values, heads, heads],
        ),
        Weight(
            to + "conv1d.weight",
            (of + "conv1d.weight",),
            _same,
            _alone,
            layer,
            "rows",
            sections=(keys, keys, values),
        ),
        Weight(to + "dt_bias", (of + "dt_bias",), _same, _alone, layer, "rows"),
        Weight(to + "A_log", (of + "A_log",), _same, _alone, layer, "rows"),
        Weight(to + "out_norm.weight", (of + "norm.weight",), _same, _alone, layer),
        Weight(to + "out_proj.weight", (of + "out_proj.weight",), _same, _alone, layer, "columns"),
    ]
