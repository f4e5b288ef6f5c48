"""Megatron's description of the network: its configuration, and the modules of each layer."""

import functools
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
from megatron.core.ssm.gated_delta_net import GatedDeltaNetSubmodules
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.mlp import MLPSubmodules
from megatron.core.transformer.moe.moe_layer import MoESubmodules
from megatron.core.transformer.moe.shared_experts import SharedExpertMLP
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
from megatron.core.transformer.transformer_layer import (
    TransformerLayer,
    TransformerLayerSubmodules,
    get_transformer_layer_offset,
)

from t1core.model.attention import PackedAttention
from t1core.model.experts import LocalMoELayer, StackedExperts
from t1core.model.fused import (
    FlashAttention,
    FusedExperts,
    FusedGatedDeltaNet,
    FusedPlainRMSNorm,
    FusedRMSNorm,
)
from t1core.model.gated_delta_net import TorchGatedDeltaNet
from t1core.model.kernels import PLAIN, Kernels
from t1core.model.layout import Layout
from t1core.model.norm import PlainRMSNorm, RMSNorm
from t1core.model.shape import ModelShape


def transformer_config(
    shape: ModelShape,
    *,
    layout: Layout,
    dtype: torch.dtype,
    routing_replay: bool,
    recompute: bool,
    load_balancing: bool = False,
) -> TransformerConfig:
    """Megatron's configuration of this shape: no dropout, no biases, none of Megatron's own fused kernels, and no
    load-balancing loss unless asked for.
    """
    # Megatron requires heads to divide by tp * cp, which only its own way of context parallelism needs.
    heads_are_spread = layout.gdn_cp == "heads"
    recomputing = dict(recompute_granularity="full", recompute_method="uniform", recompute_num_layers=1)
    config = TransformerConfig(
        num_layers=shape.num_layers,
        hidden_size=shape.hidden_size,
        num_attention_heads=shape.num_attention_heads,
        num_query_groups=shape.num_query_groups,
        kv_channels=shape.head_dim,
        ffn_hidden_size=shape.moe_intermediate_size,
        init_method_std=shape.initializer_range,
        normalization="RMSNorm",
        layernorm_zero_centered_gamma=True,
        layernorm_epsilon=shape.rms_norm_eps,
        add_bias_linear=False,
        gated_linear_unit=True,
        activation_func=F.silu,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        bf16=dtype == torch.bfloat16,
        transformer_impl="local",
        use_cpu_initialization=not torch.cuda.is_available(),
        qk_layernorm=True,
        attention_output_gate=True,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        persist_layer_norm=False,
        rotary_interleaved=False,
        apply_rope_fusion=False,
        experimental_attention_variant="gated_delta_net",
        linear_attention_freq=shape.full_attention_interval,
        linear_conv_kernel_dim=shape.linear_conv_kernel_dim,
        linear_key_head_dim=shape.linear_key_head_dim,
        linear_value_head_dim=shape.linear_value_head_dim,
        linear_num_key_heads=shape.linear_num_key_heads,
        linear_num_value_heads=shape.linear_num_value_heads,
        num_moe_experts=shape.num_experts,
        moe_router_topk=shape.num_experts_per_tok,
        moe_ffn_hidden_size=shape.moe_intermediate_size,
        moe_shared_expert_intermediate_size=shape.shared_expert_intermediate_size,
        moe_shared_expert_gate=True,
        moe_token_dispatcher_type="alltoall",
        moe_router_load_balancing_type="aux_loss" if load_balancing else "none",
        moe_aux_loss_coeff=1.0 if load_balancing else 0.0,
        moe_router_dtype="fp32",
        moe_router_pre_softmax=False,
        moe_layer_freq=1,
        # A fused router returns before the replay hook, and would route freely without a word.
        moe_router_fusion=False,
        moe_enable_routing_replay=routing_replay,
        tensor_model_parallel_size=layout.tp,
        pipeline_model_parallel_size=layout.pp,
        context_parallel_size=layout.cp if heads_are_spread else 1,
        expert_model_parallel_size=layout.ep,
        expert_tensor_parallel_size=1,
        sequence_parallel=layout.sequence_parallel,
        variable_seq_lengths=layout.pp > 1,
        **(recomputing if recompute else {}),
    )
    config.context_parallel_size = layout.cp
    return config


@dataclass(frozen=True)
class _Modules:
    """The modules of a layer that plain and fused networks have each of their own."""

    attention: type
    delta_net: type
    norm: type
    plain_norm: type
    experts: type


_MODULES = {
    False: _Modules(PackedAttention, TorchGatedDeltaNet, RMSNorm, PlainRMSNorm, StackedExperts),
    True: _Modules(FlashAttention, FusedGatedDeltaNet, FusedRMSNorm, FusedPlainRMSNorm, FusedExperts),
}


def block_spec(
    config: TransformerConfig, shape: ModelShape, *, layout: Layout, kernels: Kernels = PLAIN
) -> TransformerBlockSubmodules:
    """The layers of this pipeline stage."""
    chosen = _MODULES[kernels.is_fused]
    attention = ModuleSpec(
        module=SelfAttention,
        params={"attn_mask_type": AttnMaskType.causal},
        submodules=SelfAttentionSubmodules(
            linear_qkv=ColumnParallelLinear,
            core_attention=chosen.attention,
            linear_proj=RowParallelLinear,
            q_layernorm=chosen.norm,
            k_layernorm=chosen.norm,
        ),
    )
    delta_net = ModuleSpec(
        module=chosen.delta_net,
        params={"gdn_cp": layout.gdn_cp},
        submodules=GatedDeltaNetSubmodules(
            in_proj=ColumnParallelLinear, out_norm=chosen.plain_norm, out_proj=RowParallelLinear
        ),
    )
    linears = MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear)

    def shared_expert(
        *, config: Any, pg_collection: Any, gate: bool, name: str | None = None
    ) -> SharedExpertMLP:
        return SharedExpertMLP(
            config=config, submodules=linears, gate=gate, pg_collection=pg_collection, name=name
        )

    experts = functools.partial(
        LocalMoELayer, submodules=MoESubmodules(experts=chosen.experts, shared_experts=shared_expert)
    )
    first = get_transformer_layer_offset(config)
    layers = [
        ModuleSpec(
            module=TransformerLayer,
            submodules=TransformerLayerSubmodules(
                input_layernorm=chosen.norm,
                self_attention=attention if shape.is_full_attention(i) else delta_net,
                self_attn_bda=get_bias_dropout_add,
                pre_mlp_layernorm=chosen.norm,
                mlp=experts,
                mlp_bda=get_bias_dropout_add,
            ),
        )
        for i in range(first, first + get_num_layers_to_build(config))
    ]
    return TransformerBlockSubmodules(layer_specs=layers, layer_norm=chosen.norm)
