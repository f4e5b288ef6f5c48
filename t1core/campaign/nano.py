"""The shape of the model that a campaign makes for itself when it is given none."""

from typing import TYPE_CHECKING

from t1core.config import ModelSettings

if TYPE_CHECKING:
    from t1core.model.shape import ModelShape


def nano_shape(model: ModelSettings, *, vocab_size: int | None = None) -> "ModelShape":
    """The shape that `[model]` describes. vocab_size: of the tokenizer that was made; None: as set."""
    from t1core.model.shape import ModelShape

    return ModelShape.nano(
        vocab_size=vocab_size or model.vocab_size,
        hidden_size=model.hidden_size,
        num_layers=model.num_layers,
        num_attention_heads=model.num_attention_heads,
        num_query_groups=model.num_query_groups,
        head_dim=model.head_dim,
        linear_num_key_heads=model.linear_num_key_heads,
        linear_num_value_heads=model.linear_num_value_heads,
        linear_key_head_dim=model.linear_head_dim,
        linear_value_head_dim=model.linear_head_dim,
        num_experts=model.num_experts,
        num_experts_per_tok=model.num_experts_per_tok,
        moe_intermediate_size=model.moe_intermediate_size,
        shared_expert_intermediate_size=model.moe_intermediate_size,
        max_position_embeddings=model.max_position_embeddings,
    )
