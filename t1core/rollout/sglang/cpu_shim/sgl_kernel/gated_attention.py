"""Plain-torch bodies of four fused helpers Qwen3.5 calls on a CPU: q/k norm, output gate, projection split.

Gemma-style norms multiply by (1 + weight). Accumulation is fp32, results come back in the input's dtype.
"""

import torch


def _gemma_rmsnorm(x, weight, eps):
    y = x.float()
    return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps) * (1.0 + weight.float())).to(x.dtype)


def fused_sigmoid_mul_cpu(x, gate):
    """x [T, heads * dim] *= sigmoid(gate), in place; gate holds as many elements in the same order."""
    x.copy_((x.float() * gate.reshape(x.shape).float().sigmoid()).to(x.dtype))


def fused_qk_gemma_rmsnorm_cpu(q, k, q_weight, k_weight, eps, head_dim):
    """q [T, Hq * dim], k [T, Hk * dim] -> normed [T * Hq, dim], [T * Hk, dim]."""
    q, k = q.reshape(-1, head_dim), k.reshape(-1, head_dim)
    return _gemma_rmsnorm(q, q_weight, eps), _gemma_rmsnorm(k, k_weight, eps)


def fused_qk_gemma_rmsnorm_with_gate_cpu(q_gate, k, q_weight, k_weight, eps, head_dim, num_heads):
    """q_gate [T, Hq * 2 * dim], (query, gate) per head -> q, k normed and gate, each [T * heads, dim]."""
    q, gate = q_gate.reshape(-1, num_heads, 2, head_dim).unbind(2)
    q, k = fused_qk_gemma_rmsnorm_cpu(q, k, q_weight, k_weight, eps, head_dim)
    return q, k, gate.reshape(-1, head_dim).contiguous()


def fused_qkvzba_split_reshape_cat_contiguous_cpu(qkvz, ba, num_k_heads, num_v_heads, head_k, head_v):
    """[T, q | k | v | z], [T, b | a] -> qkv [T, 2 Hk dk + Hv dv], z [T, Hv, dv], b and a [T, Hv]."""
    width = 2 * num_k_heads * head_k + num_v_heads * head_v
    b, a = ba.split([num_v_heads, num_v_heads], -1)
    z = qkvz[:, width:].reshape(-1, num_v_heads, head_v)
    return qkvz[:, :width].contiguous(), z.contiguous(), b.contiguous(), a.contiguous()


def register() -> None:
    """Put them where SGLang looks: torch.ops.sgl_kernel."""
    for body in (
        fused_sigmoid_mul_cpu,
        fused_qk_gemma_rmsnorm_cpu,
        fused_qk_gemma_rmsnorm_with_gate_cpu,
        fused_qkvzba_split_reshape_cat_contiguous_cpu,
    ):
        setattr(torch.ops.sgl_kernel, body.__name__, body)
