"""The chunked gated delta rule against the recurrence written token by token."""

import pytest
import torch
import torch.nn.functional as F

from t1core.model import forward
from t1core.model.causal_conv import causal_conv1d
from t1core.model.delta_rule import chunk_gated_delta_rule, l2norm

KEY_HEADS, VALUE_HEADS, KEY, VALUE = 2, 4, 8, 6
LENGTHS = [70, 5, 1, 33, 16]


def inputs(dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    t = sum(LENGTHS)
    qkv = torch.randn(t, 2 * KEY_HEADS * KEY + VALUE_HEADS * VALUE, generator=generator, dtype=dtype)
    g = -torch.rand(t, VALUE_HEADS, generator=generator, dtype=dtype)
    beta = torch.rand(t, VALUE_HEADS, generator=generator, dtype=dtype)
    return [x.requires_grad_() for x in (qkv, g, beta)]


def token_by_token(qkv: torch.Tensor, g: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    q, k, v = qkv.split([KEY_HEADS * KEY, KEY_HEADS * KEY, VALUE_HEADS * VALUE], -1)
    q = l2norm(q.unflatten(-1, (KEY_HEADS, KEY))).repeat_interleave(VALUE_HEADS // KEY_HEADS, 1) * KEY**-0.5
    k = l2norm(k.unflatten(-1, (KEY_HEADS, KEY))).repeat_interleave(VALUE_HEADS // KEY_HEADS, 1)
    v = v.unflatten(-1, (VALUE_HEADS, VALUE))
    outs = []
    for row in torch.arange(len(qkv)).split(LENGTHS):
        state = torch.zeros(VALUE_HEADS, KEY, VALUE, dtype=qkv.dtype)
        for t in row:
            state = state * g[t].exp()[:, None, None]
            seen = torch.einsum("hk,hkv->hv", k[t], state)
            state = state + torch.einsum("hk,hv->hkv", k[t], (v[t] - seen) * beta[t][:, None])
            outs.append(torch.einsum("hk,hkv->hv", q[t], state))
    return torch.stack(outs)


@pytest.mark.parametrize("chunk_size", [16, 32, 64])
def test_chunks_of_any_size_equal_the_recurrence_and_its_gradient(chunk_size: int) -> None:
    reference_in, chunked_in = inputs(), inputs()
    reference = token_by_token(*reference_in)
    cu_seqlens = torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0)])
    qkv, g, beta = chunked_in
    found = chunk_gated_delta_rule(
        qkv,
        g,
        beta,
        rows=forward.packed(cu_seqlens),
        num_key_heads=KEY_HEADS,
        key_dim=KEY,
        chunk_size=chunk_size,
    )
    torch.testing.assert_close(found, reference, atol=2e-6, rtol=0)
    weight = torch.randn(reference.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (reference * weight).sum().backward()
    (found * weight).sum().backward()
    for a, b in zip(chunked_in, reference_in, strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=2e-5, rtol=0)


def test_strong_decay_neither_overflows_nor_poisons_gradients() -> None:
    qkv, g, beta = inputs(torch.float32)
    strong = (g.detach() * 400).requires_grad_()
    rows = forward.packed(torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0)]))
    out = chunk_gated_delta_rule(qkv, strong, beta, rows=rows, num_key_heads=KEY_HEADS, key_dim=KEY)
    out.sum().backward()
    assert all(torch.isfinite(x).all() for x in (out, qkv.grad, strong.grad, beta.grad))


def test_the_convolution_is_torchs_own_on_each_row() -> None:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(sum(LENGTHS), 6, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(6, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    rows = forward.packed(torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0)]))
    found = causal_conv1d(x, weight, rows)
    expected = torch.cat(
        [F.silu(F.conv1d(F.pad(r.T, (3, 0)), weight[:, None], groups=6).T) for r in x.split(LENGTHS)]
    )
    torch.testing.assert_close(found, expected)
    upstream = torch.randn(found.shape, generator=generator, dtype=torch.float64)
    mine = torch.autograd.grad(found, (x, weight), upstream)
    torch.testing.assert_close(mine, torch.autograd.grad(expected, (x, weight), upstream))
