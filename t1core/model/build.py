"""The one place where a network is made."""

import logging
from typing import Literal

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel

from t1core.model import cpu_shim, replay, rope
from t1core.model.kernels import PLAIN, Kernels, prepare
from t1core.model.layout import Layout
from t1core.model.scoring import LmHead
from t1core.model.shape import ModelShape
from t1core.model.spec import block_spec, transformer_config
from t1core.model.value_head import ValueHead


def build_model(
    shape: ModelShape,
    *,
    role: Literal["actor", "critic"],
    layout: Layout | None = None,
    dtype: torch.dtype = torch.float32,
    routing_replay: bool = False,
    recompute: bool = False,
    value_outputs: int = 1,
    load_balancing: bool = False,
    kernels: Kernels = PLAIN,
) -> GPTModel:
    """This rank's part of the network, randomly initialised; load weights with `convert.load_hf`.

    The actor ends in hidden states, which `scoring.score` multiplies by its vocabulary's weights, the critic in
    `value_outputs` numbers a token: its value, or the logits of a histogram over values. Only a model built with
    `routing_replay` can be armed. `recompute` keeps each layer's input alone
    and runs it again in backward. `load_balancing` gives the routers Megatron's auxiliary loss, whose weight is
    `model.config.moe_aux_loss_coeff`. `kernels` (`model.kernels`) as `t1core.model.kernels.choose` gave them.
    """
    layout = layout or Layout()
    cpu_shim.install()
    rope.install()
    # Of what Megatron hands to torch's compiler only attention's gate is used here: not worth that compiler's start,
    # and it may not fit the Triton that fused kernels need.
    torch.compiler.set_stance("force_eager")
    if kernels.is_fused:
        prepare()
    # Each GPTModel announces at length that HybridModel will replace it.
    logging.getLogger("megatron.core.models.gpt.gpt_model").setLevel(logging.ERROR)
    if not parallel_state.model_parallel_is_initialized():
        raise ValueError("model parallelism is not initialised: call layout.initialize first")
    layout.check(shape, world_size=dist.get_world_size())
    config = transformer_config(
        shape,
        layout=layout,
        dtype=dtype,
        routing_replay=routing_replay,
        recompute=recompute,
        load_balancing=load_balancing,
    )
    last = parallel_state.is_pipeline_last_stage()
    model = GPTModel(
        config,
        block_spec(config, shape, layout=layout, kernels=kernels),
        vocab_size=shape.vocab_size,
        max_sequence_length=shape.max_position_embeddings,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=last,
        position_embedding_type="rope",
        rotary_percent=shape.partial_rotary_factor,
        rotary_base=shape.rope_theta,
        share_embeddings_and_output_weights=False,
        parallel_output=True,
    )
    model.role, model.kernels = role, kernels
    if last:
        model.output_layer = (
            ValueHead(config, num_outputs=value_outputs)
            if role == "critic"
            else LmHead(config, vocab_size=shape.vocab_size, is_fused=kernels.is_fused)
        )
    if routing_replay:
        replay.attach(model)
    return model
