"""Plain-torch bodies of the GatedDeltaNet kernels SGLang calls on a CPU: convolution, gating, the delta rule.

The recurrence goes token by token in fp32 (the textbook form, no chunking): exact and slow, right for tests
and for small models. Per head, with decay g and write strength beta, the state S [V, K] follows
    S <- exp(g) S ;  S <- S + beta (v - S k) k^T ;  o = S q / sqrt(K).
States and convolution tails live in SGLang's own pools and are updated in place at the slots it names.
"""

import itertools

import torch
import torch.nn.functional as F


def _activate(y, activation):
    return F.silu(y) if activation in ("silu", "swish", True) else y


def causal_conv1d_fn_cpu(
    x,
    weight,
    bias=None,
    activation=None,
    conv_states=None,
    has_initial_state=None,
    cache_indices=None,
    query_start_loc=None,
    seq_lens_cpu=None,
    **kwargs,
):
    """Prefill. x [dim, tokens], split by query_start_loc; conv_states [slots, dim, width - 1], in place."""
    out = torch.empty_like(x)
    width = weight.shape[-1]
    bounds = query_start_loc.tolist()
    for i, (start, end) in enumerate(itertools.pairwise(bounds)):
        if end <= start:
            continue
        state = conv_states[int(cache_indices[i])]
        is_continued = has_initial_state is not None and bool(has_initial_state[i])
        before = state if is_continued else torch.zeros_like(state)
        inputs = torch.cat([before.to(x.dtype), x[:, start:end]], dim=1)
        y = F.conv1d(
            inputs.float()[None],
            weight.float()[:, None],
            None if bias is None else bias.float(),
            groups=x.shape[0],
        )[0]
        out[:, start:end] = _activate(y, activation).to(x.dtype)
        state.copy_(inputs[:, -(width - 1) :])
    return out


def causal_conv1d_update_cpu(
    x, conv_states, weight, bias=None, activation=None, conv_state_indices=None, **kwargs
):
    """Decode. x [batch, dim], one token a sequence; conv_states [slots, dim, width - 1], in place."""
    slots = conv_state_indices.long()
    inputs = torch.cat([conv_states[slots].to(x.dtype), x[:, :, None]], dim=2)
    y = (inputs.float() * weight.float()[None]).sum(-1)
    if bias is not None:
        y = y + bias.float()
    conv_states[slots] = inputs[:, :, 1:].to(conv_states.dtype)
    return _activate(y, activation).to(x.dtype)


def fused_gdn_gating_cpu(A_log, a, b, dt_bias, *args, **kwargs):
    """a, b [T, Hv] -> log decay -exp(A_log) softplus(a + dt_bias) and beta = sigmoid(b), both [1, T, Hv]."""
    g = -A_log.float().exp() * F.softplus(a.float() + dt_bias.float())
    return g[None], b.float().sigmoid().to(b.dtype)[None]


def _delta_rule(q, k, v, g, beta, state, normalise):
    """q, k [T, Hk, K]; v [T, Hv, V]; g, beta [T, Hv]; state [Hv, V, K] -> outputs [T, Hv, V], last state."""
    q, k, v, g, beta = (t.float() for t in (q, k, v, g, beta))
    if normalise:
        q, k = (t * torch.rsqrt((t * t).sum(-1, keepdim=True) + 1e-6) for t in (q, k))
    repeat = v.shape[1] // q.shape[1]
    if repeat > 1:
        q, k = q.repeat_interleave(repeat, 1), k.repeat_interleave(repeat, 1)
    q = q * q.shape[-1] ** -0.5
    decay = g.exp()
    out = torch.empty_like(v)
    for t in range(v.shape[0]):
        state = state * decay[t][:, None, None]
        write = (v[t] - (state * k[t][:, None, :]).sum(-1)) * beta[t][:, None]
        state = state + write[:, :, None] * k[t][:, None, :]
        out[t] = (state * q[t][:, None, :]).sum(-1)
    return out, state


def _over_sequences(q, k, v, g, beta, states, slots, bounds, normalise):
    """The delta rule over sequences laid end to end; states [slots, Hv, V, K], in place."""
    out = torch.empty_like(v)
    last = []
    bounds = bounds.tolist()
    for i, (start, end) in enumerate(itertools.pairwise(bounds)):
        slot = int(slots[i])
        tokens = slice(start, end)
        inputs = (x[0, tokens] for x in (q, k, v, g, beta))
        y, state = _delta_rule(*inputs, states[slot].float(), normalise)
        out[0, tokens] = y.to(v.dtype)
        states[slot] = state.to(states.dtype)
        last.append(state)
    return out, torch.stack(last).to(states.dtype)


def chunk_gated_delta_rule_cpu(
    q,
    k,
    v,
    g,
    beta,
    initial_state=None,
    cu_seqlens=None,
    head_first=False,
    use_qk_l2norm_in_kernel=True,
    initial_state_indices=None,
    **kwargs,
):
    """Prefill. q, k [1, T, Hk, K]; v [1, T, Hv, V]; g, beta [1, T, Hv]; states [slots, Hv, V, K] in place."""
    out, last = _over_sequences(
        q, k, v, g, beta, initial_state, initial_state_indices, cu_seqlens, use_qk_l2norm_in_kernel
    )
    return out, last, None


def fused_sigmoid_gating_delta_rule_update_cpu(
    A_log,
    dt_bias,
    q,
    k,
    v,
    a,
    b,
    initial_state_source,
    initial_state_indices,
    cu_seqlens=None,
    use_qk_l2norm_in_kernel=True,
    softplus_beta=1.0,
    softplus_threshold=20.0,
    **kwargs,
):
    """Decode: gating and the delta rule in one, shapes as in prefill, a and b [.., Hv]."""
    g, beta = fused_gdn_gating_cpu(A_log, a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1]), dt_bias)
    out, _ = _over_sequences(
        q, k, v, g, beta, initial_state_source, initial_state_indices, cu_seqlens, use_qk_l2norm_in_kernel
    )
    return out


def register() -> None:
    """Put the two that SGLang takes from torch.ops.sgl_kernel there."""
    for body in (fused_gdn_gating_cpu, fused_sigmoid_gating_delta_rule_update_cpu):
        setattr(torch.ops.sgl_kernel, body.__name__, body)
