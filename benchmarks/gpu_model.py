"""The hybrid MoE models that the GPU benchmarks run, what their passes cost, and what they ran on."""

import os
import platform
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from t1core.model.checkpoint import hf_sizes, initial_state, write_hf
from t1core.model.shape import ModelShape
from t1core.records import Batch
from t1core.rollout.sglang.server import free_port

DATASHEET_FLOPS_PER_S = 989e12
"""Dense bf16 of an H100 or H200, by the vendor."""

SIZES: dict[str, dict[str, int]] = {
    # 12 layers of 768 channels and 32 experts: 0.43B parameters, 0.11B of them active
    "12-layer": dict(
        hidden_size=768, num_layers=12, num_attention_heads=12, num_query_groups=2, head_dim=64,
        linear_num_key_heads=6, linear_num_value_heads=12, linear_key_head_dim=64, linear_value_head_dim=64,
        num_experts=32, num_experts_per_tok=4, moe_intermediate_size=384, shared_expert_intermediate_size=384,
        max_position_embeddings=65_536,
    ),
    # 24 layers of 1536 channels and 64 experts
    "24-layer": dict(
        hidden_size=1536, num_layers=24, num_attention_heads=16, num_query_groups=2, head_dim=128,
        linear_num_key_heads=8, linear_num_value_heads=16, linear_key_head_dim=128, linear_value_head_dim=128,
        num_experts=64, num_experts_per_tok=8, moe_intermediate_size=384, shared_expert_intermediate_size=384,
        max_position_embeddings=65_536,
    ),
    # 12 layers of 1536 channels and 32 experts: 1.17B parameters, 0.33B of them active
    "1b": dict(
        hidden_size=1536, num_layers=12, num_attention_heads=12, num_query_groups=2, head_dim=128,
        linear_num_key_heads=8, linear_num_value_heads=16, linear_key_head_dim=128, linear_value_head_dim=128,
        num_experts=32, num_experts_per_tok=4, moe_intermediate_size=512, shared_expert_intermediate_size=512,
        max_position_embeddings=65_536,
    ),
    "tiny": dict(hidden_size=64, moe_intermediate_size=32, shared_expert_intermediate_size=32),
}  # fmt: skip


def make_shape(size: str, *, vocab_size: int = 32_768) -> ModelShape:
    """One of SIZES."""
    return ModelShape.nano(vocab_size=vocab_size, **SIZES[size])


def write_random(
    shape: ModelShape, directory: Path, *, seed: int = 0, router_gain: float = 1.0, head_gain: float = 1.0
) -> None:
    """A random checkpoint. The gains multiply the routers and the output layer: at 1 every choice is a close call and
    every token about as likely, as at the start of a training from nothing; larger ones are surer of themselves, as a
    trained model is."""
    state = initial_state(shape, seed=seed)
    for name, tensor in state.items():
        if name.endswith("mlp.gate.weight"):
            tensor.mul_(router_gain)
    state["lm_head.weight"].mul_(head_gain)
    directory.mkdir(parents=True, exist_ok=True)
    write_hf(state, shape, directory)


def num_params(shape: ModelShape) -> int:
    """Parameters of the actor."""
    return sum(torch.Size(size).numel() for size in hf_sizes(shape).values())


def active_params(shape: ModelShape) -> int:
    """Parameters that multiply a token: all matrices, of the experts those chosen, without the embedding's rows."""
    total = 0
    for name, size in hf_sizes(shape).items():
        count = torch.Size(size).numel()
        if len(size) < 2 or name.endswith("embed_tokens.weight"):
            continue
        if ".experts." in name:
            count = count * shape.num_experts_per_tok // shape.num_experts
        total += count
    return total


def forward_flops(shape: ModelShape, lengths: Sequence[int]) -> float:
    """Floating-point operations of one forward over rows: 2 a parameter and token, and causal attention's products.

    What the delta rule does beyond its projections is left out: it does not grow with the row.
    """
    num_full = sum(shape.is_full_attention(i) for i in range(shape.num_layers))
    attention = sum(2 * n * n * shape.num_attention_heads * shape.head_dim for n in lengths)
    return 2.0 * active_params(shape) * sum(lengths) + num_full * attention


def make_batch(shape: ModelShape, *, num_rows: int, length: int, seed: int, version: int) -> Batch:
    """Rows of `length` random tokens, all but the first half sampled, random routes."""
    rng = np.random.default_rng(seed)
    total = num_rows * length
    place = np.tile(np.arange(length), num_rows)
    mask = (place >= length // 2).astype(np.uint8)
    scores = rng.random((total - num_rows, shape.num_layers, shape.num_experts), dtype=np.float32)
    routes = np.argpartition(scores, shape.num_experts_per_tok, axis=-1)[..., : shape.num_experts_per_tok]
    return Batch(
        step=0,
        rollout_ids=tuple(f"row-{i}" for i in range(num_rows)),
        tokens=rng.integers(0, shape.vocab_size, total).astype(np.int32),
        cu_seqlens=(np.arange(num_rows + 1) * length).astype(np.int64),
        loss_mask=mask,
        rollout_log_probs=np.where(mask, -np.log(shape.vocab_size), 0.0).astype(np.float32),
        weight_versions=np.where(mask, version, -1).astype(np.int32),
        routed_experts=np.sort(routes, axis=-1).astype(np.uint8),
        rewards=rng.random(num_rows).astype(np.float32),
        num_tests=np.full(num_rows, 5, np.int32),
    )


def alone() -> None:
    """Let this process be a world of its own."""
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "RANK": "0",
        "WORLD_SIZE": "1",
    }


def matmul_flops_per_s(*, size: int = 8192, repeats: int = 10) -> float:
    """What a bf16 matrix product of random numbers reaches here."""
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(repeats):
        a @ b
    torch.cuda.synchronize()
    return 2.0 * size**3 * repeats / (time.perf_counter() - began)


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version,memory.total", "--format=csv,noheader"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver_and_memory": driver,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "kernel": platform.release(),
    }
