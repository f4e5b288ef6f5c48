"""Triton kernels of what lies between the matrix products: row norms, SwiGLU, and the scoring of logits.

Each reads and writes its tensors once and computes in fp32. No launch parameter depends on the number of tokens and
nothing is tuned, so a batch of another size compiles nothing and every rank computes alike.
"""

from typing import Any

import torch
import triton
import triton.language as tl

_PROGRAMS_A_NORM_GRADIENT = 512
_LOGITS_AT_ONCE = 4096


@triton.jit(do_not_specialize=["num_rows"])
def _norm_kernel(
    x, gate, weight, out, scale_out, num_rows, num_heads, x_token, x_head, gate_token, gate_head, eps,
    IS_MEAN: tl.constexpr, HAS_WEIGHT: tl.constexpr, SHIFT: tl.constexpr, HAS_GATE: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    inside = (rows < num_rows)[:, None] & (columns < WIDTH)[None, :]
    token, head = rows // num_heads, rows % num_heads
    place = (token * x_token + head * x_head)[:, None] + columns[None, :]
    wide = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    square = tl.sum(wide * wide, 1)
    if IS_MEAN:
        square = square / WIDTH
    scale = 1.0 / tl.sqrt(square + eps)
    result = wide * scale[:, None]
    if HAS_WEIGHT:
        result *= tl.load(weight + columns, mask=columns < WIDTH, other=0.0).to(tl.float32)[None, :] + SHIFT
    if HAS_GATE:
        place = (token * gate_token + head * gate_head)[:, None] + columns[None, :]
        opening = tl.load(gate + place, mask=inside, other=0.0).to(tl.float32)
        result *= opening * tl.sigmoid(opening)
    tl.store(out + rows[:, None] * WIDTH + columns[None, :], result.to(out.dtype.element_ty), mask=inside)
    tl.store(scale_out + rows, scale, mask=rows < num_rows)


@triton.jit(do_not_specialize=["num_rows", "rows_a_program"])
def _norm_gradient_kernel(
    x, gate, weight, scale_in, grad, grad_x, grad_gate, grad_weight, num_rows, rows_a_program, num_heads,
    x_token, x_head, gate_token, gate_head,
    IS_MEAN: tl.constexpr, HAS_WEIGHT: tl.constexpr, SHIFT: tl.constexpr, HAS_GATE: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, BLOCK)
    if HAS_WEIGHT:
        factor = tl.load(weight + columns, mask=columns < WIDTH, other=0.0).to(tl.float32)[None, :] + SHIFT
    total = tl.zeros([BLOCK], tl.float32)
    start = tl.program_id(0).to(tl.int64) * rows_a_program
    for offset in range(0, rows_a_program, ROWS):
        rows = start + offset + tl.arange(0, ROWS)
        is_row = (offset + tl.arange(0, ROWS) < rows_a_program) & (rows < num_rows)
        inside = is_row[:, None] & (columns < WIDTH)[None, :]
        token, head = rows // num_heads, rows % num_heads
        place = (token * x_token + head * x_head)[:, None] + columns[None, :]
        plain = rows[:, None] * WIDTH + columns[None, :]
        wide = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(scale_in + rows, mask=is_row, other=0.0)[:, None]
        upstream = tl.load(grad + plain, mask=inside, other=0.0).to(tl.float32)
        normed = wide * scale
        if HAS_GATE:
            place = (token * gate_token + head * gate_head)[:, None] + columns[None, :]
            opening = tl.load(gate + place, mask=inside, other=0.0).to(tl.float32)
            share = tl.sigmoid(opening)
            before_gate = normed * factor if HAS_WEIGHT else normed
            slope = share * (1.0 + opening * (1.0 - share))
            tl.store(
                grad_gate + plain,
                (upstream * before_gate * slope).to(grad_gate.dtype.element_ty),
                mask=inside,
            )
            upstream *= opening * share
        if HAS_WEIGHT:
            total += tl.sum(upstream * normed, 0)
            upstream *= factor
        along = tl.sum(upstream * normed, 1)
        if IS_MEAN:
            along = along / WIDTH
        back = (upstream - normed * along[:, None]) * scale
        tl.store(grad_x + plain, back.to(grad_x.dtype.element_ty), mask=inside)
    if HAS_WEIGHT:
        tl.store(grad_weight + tl.program_id(0) * WIDTH + columns, total, mask=columns < WIDTH)


class _Norm(torch.autograd.Function):
    """x [T, heads, width], gate like it or None, weight [width] or None."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        gate: torch.Tensor | None,
        weight: torch.Tensor | None,
        shift: float,
        eps: float,
        is_mean: bool,
    ) -> torch.Tensor:
        tokens, heads, width = x.shape
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        scale = torch.empty(tokens * heads, dtype=torch.float32, device=x.device)
        sizes = _norm_sizes(width)
        strides = x.stride(0), x.stride(1), *(gate.stride()[:2] if gate is not None else (0, 0))
        kinds = dict(IS_MEAN=is_mean, HAS_WEIGHT=weight is not None, SHIFT=shift, HAS_GATE=gate is not None)
        if out.numel():
            _norm_kernel[(triton.cdiv(tokens * heads, sizes["ROWS"]),)](
                x, gate, weight, out, scale, tokens * heads, heads, *strides, eps, **kinds, **sizes
            )
        ctx.save_for_backward(x, gate, weight, scale)
        ctx.kinds, ctx.sizes, ctx.strides = kinds, sizes, strides
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, gate, weight, scale = ctx.saved_tensors
        tokens, heads, width = x.shape
        num_rows = tokens * heads
        grad = grad.contiguous()
        grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        grad_gate = torch.empty(gate.shape, dtype=gate.dtype, device=x.device) if gate is not None else None
        rows_a_program = max(ctx.sizes["ROWS"], triton.cdiv(max(num_rows, 1), _PROGRAMS_A_NORM_GRADIENT))
        num_programs = triton.cdiv(num_rows, rows_a_program)
        parts = torch.empty(num_programs, width, dtype=torch.float32, device=x.device)
        if num_rows:
            _norm_gradient_kernel[(num_programs,)](
                x, gate, weight, scale, grad, grad_x, grad_gate, parts, num_rows, rows_a_program, heads,
                *ctx.strides, **ctx.kinds, **ctx.sizes,
            )  # fmt: skip
        grad_weight = parts.sum(0).to(weight.dtype) if weight is not None else None
        return grad_x, grad_gate, grad_weight, None, None, None


def _norm_sizes(width: int) -> dict[str, int]:
    block = triton.next_power_of_2(width)
    return dict(WIDTH=width, BLOCK=block, ROWS=max(1, min(16, 2048 // block)), num_warps=4)


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    shift: float,
    eps: float,
    gate: torch.Tensor | None = None,
) -> torch.Tensor:
    """x [..., width] over its root mean square, times (weight + shift), times silu(gate) where one is given."""
    heads = _as_heads(x)
    normed = _Norm.apply(heads, None if gate is None else _as_heads(gate), weight, shift, eps, True)
    return normed.view(x.shape)


def l2norm(x: torch.Tensor, *, eps: float = 1e-6) -> torch.Tensor:
    """x [..., width] over its Euclidean norm."""
    return _Norm.apply(_as_heads(x), None, None, 0.0, eps, False).view(x.shape)


def _as_heads(x: torch.Tensor) -> torch.Tensor:
    """[..., width] as [tokens, heads, width] with its last dimension in one piece, as a view where one will do."""
    if x.stride(-1) != 1:
        x = x.contiguous()
    if x.dim() == 3:
        return x
    if x.dim() == 4 and 1 in x.shape[:2]:
        return x.squeeze(0 if x.shape[0] == 1 else 1)
    return x.reshape(-1, 1, x.shape[-1])


@triton.jit
def _swiglu_kernel(both, factors, out, INNER: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < INNER
    gate = tl.load(both + row * 2 * INNER + columns, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(both + row * 2 * INNER + INNER + columns, mask=inside, other=0.0).to(tl.float32)
    factor = tl.load(factors + row).to(tl.float32)
    result = gate * tl.sigmoid(gate) * up * factor
    tl.store(out + row * INNER + columns, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _swiglu_gradient_kernel(
    both, factors, grad, grad_both, grad_factors, INNER: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < INNER
    gate = tl.load(both + row * 2 * INNER + columns, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(both + row * 2 * INNER + INNER + columns, mask=inside, other=0.0).to(tl.float32)
    factor = tl.load(factors + row).to(tl.float32)
    upstream = tl.load(grad + row * INNER + columns, mask=inside, other=0.0).to(tl.float32)
    share = tl.sigmoid(gate)
    active = gate * share
    tl.store(grad_factors + row, tl.sum(upstream * active * up, 0).to(grad_factors.dtype.element_ty))
    upstream *= factor
    slope = share * (1.0 + gate * (1.0 - share))
    kind = grad_both.dtype.element_ty
    tl.store(grad_both + row * 2 * INNER + columns, (upstream * up * slope).to(kind), mask=inside)
    tl.store(grad_both + row * 2 * INNER + INNER + columns, (upstream * active).to(kind), mask=inside)


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, both: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        both, factors = both.contiguous(), factors.contiguous()
        rows, inner = len(both), both.shape[1] // 2
        out = both.new_empty(rows, inner)
        if rows:
            _swiglu_kernel[(rows,)](both, factors, out, INNER=inner, BLOCK=triton.next_power_of_2(inner))
        ctx.save_for_backward(both, factors)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        both, factors = ctx.saved_tensors
        rows, inner = len(both), both.shape[1] // 2
        grad_both, grad_factors = torch.empty_like(both), torch.empty_like(factors)
        if rows:
            _swiglu_gradient_kernel[(rows,)](
                both, factors, grad.contiguous(), grad_both, grad_factors,
                INNER=inner, BLOCK=triton.next_power_of_2(inner),
            )  # fmt: skip
        return grad_both, grad_factors


def swiglu(both: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up * factor of each row. both [n, 2 * inner] (gate, then up); factors [n]."""
    return _SwiGLU.apply(both, factors)


@triton.jit
def _score_kernel(
    logits, targets, logprobs, entropies, norms, stride, vocab, inverse_temperature, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    peak = -float("inf")
    total = 0.0
    weighted = 0.0  # sum of exp(z - peak) * z
    for begin in range(0, vocab, BLOCK):
        columns = begin + tl.arange(0, BLOCK)
        inside = columns < vocab
        z = tl.load(logits + row * stride + columns, mask=inside, other=-float("inf")).to(tl.float32)
        z *= inverse_temperature
        higher = tl.maximum(peak, tl.max(z, 0))
        shrink = tl.exp(peak - higher)
        weights = tl.exp(z - higher)
        total = total * shrink + tl.sum(weights, 0)
        weighted = weighted * shrink + tl.sum(tl.where(inside, weights * z, 0.0), 0)
        peak = higher
    norm = peak + tl.log(total)
    picked = tl.load(logits + row * stride + tl.load(targets + row)).to(tl.float32) * inverse_temperature
    tl.store(logprobs + row, picked - norm)
    tl.store(entropies + row, norm - weighted / total)
    tl.store(norms + row, norm)


@triton.jit
def _score_gradient_kernel(
    logits, targets, norms, grad, grad_logits, stride, vocab, inverse_temperature, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < vocab
    z = tl.load(logits + row * stride + columns, mask=inside, other=0.0).to(tl.float32)
    share = tl.exp(z * inverse_temperature - tl.load(norms + row))
    is_target = columns == tl.load(targets + row)
    back = (tl.where(is_target, 1.0, 0.0) - share) * tl.load(grad + row) * inverse_temperature
    tl.store(grad_logits + row * vocab + columns, back.to(grad_logits.dtype.element_ty), mask=inside)


class _Score(torch.autograd.Function):
    """Keeps the logits as they came and one number a row, where log_softmax would keep fp32 copies of them."""

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, targets: torch.Tensor, temperature: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if logits.stride(-1) != 1:
            logits = logits.contiguous()
        rows, vocab = logits.shape
        logprobs, entropies, norms = (
            torch.empty(rows, dtype=torch.float32, device=logits.device) for _ in range(3)
        )
        if rows:
            _score_kernel[(rows,)](
                logits, targets, logprobs, entropies, norms, logits.stride(0), vocab, 1 / temperature,
                BLOCK=_LOGITS_AT_ONCE, num_warps=8,
            )  # fmt: skip
        ctx.save_for_backward(logits, targets, norms)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, _: Any) -> tuple[torch.Tensor, None, None]:
        logits, targets, norms = ctx.saved_tensors
        rows, vocab = logits.shape
        grad_logits = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
        if rows:
            _score_gradient_kernel[(rows, triton.cdiv(vocab, _LOGITS_AT_ONCE))](
                logits, targets, norms, grad.contiguous(), grad_logits, logits.stride(0), vocab,
                1 / ctx.temperature, BLOCK=_LOGITS_AT_ONCE, num_warps=8,
            )  # fmt: skip
        return grad_logits, None, None


def score(
    logits: torch.Tensor, targets: torch.Tensor, *, temperature: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """(log-probability of each target, entropy), fp32 [T], from logits [T, vocab]; the entropy carries no gradient."""
    return _Score.apply(logits, targets, temperature)
