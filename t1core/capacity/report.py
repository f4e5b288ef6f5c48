"""What `t1 plan` and `t1 split` say, line by line. Sizes are in GiB unless a line says otherwise."""

import math
from collections.abc import Sequence

from t1core.capacity.memory import (
    GIB,
    PUBLISHED,
    Coefficients,
    HostLoad,
    Load,
    StageBytes,
    host_bytes,
    route_bytes,
)
from t1core.capacity.plans import Plan, all_plans
from t1core.capacity.published import checks
from t1core.capacity.search import USES, Verdict, fitting, judge, nearest
from t1core.capacity.sizes import stage_sizes
from t1core.capacity.throughput import Split
from t1core.model.known import QWEN3_5_122B_A10B
from t1core.model.shape import ModelShape

_SHORT = {
    "expert weights": "exp.w",
    "dense weights": "dense.w",
    "expert gradients": "exp.g",
    "dense gradients": "dense.g",
    "expert optimiser": "exp.opt",
    "dense optimiser": "dns.opt",
    "layer inputs": "inputs",
    "activations": "activ",
    "logits": "logits",
    "optimiser step": "step",
    "b0": "b0",
}


def choose(
    shape: ModelShape,
    *,
    num_gpus: int,
    load: Load,
    coefficients: Coefficients,
    limit_bytes: float,
    use: str,
) -> Verdict:
    """The fitting plan with least model parallelism; where none fits, the one that needs least memory."""
    how = dict(load=load, coefficients=coefficients, limit_bytes=limit_bytes)
    if found := fitting(shape, num_gpus=num_gpus, use=use, **how):
        return found[0]
    verdicts = [judge(shape, plan, **how) for plan in all_plans(shape, num_gpus=num_gpus)]
    return min(verdicts, key=lambda verdict: verdict.admitted[use][0])


def plan_lines(
    shape: ModelShape,
    verdict: Verdict,
    *,
    model: str,
    load: Load,
    coefficients: Coefficients,
    host: HostLoad,
    host_limit_bytes: float,
    use: str,
) -> list[str]:
    """Bytes by term for each role and stage, the verdicts, what breaks the plan, the nearest that fit, and the host."""
    plan, limit = verdict.plan, verdict.limit_bytes
    sizes = {role: stage_sizes(shape, role=role, pp=1, stage=0) for role in ("actor", "critic")}
    lines = [
        f"model   {model}: actor {_count(sizes['actor'].total)} parameters, critic {_count(sizes['critic'].total)}, of "
        f"which routed experts {_count(sizes['actor'].experts)}",
        f"plan    {plan}: {plan.num_gpus} GPUs train, {shape.num_experts // plan.ep} experts a layer on each",
        f"load    rows of up to {load.wall:,} tokens, at most {load.tokens(plan):,} tokens of a micro-batch on one "
        f"GPU; {load.precision}, layers {'recomputed' if load.recompute else 'kept'}",
        f"alpha   {coefficients.alpha_bytes / 2**10:.0f} KiB a token, b0 {coefficients.b0_bytes / GIB:.2f} GiB, "
        f"{coefficients.logit_bytes:.1f} B a logit: {coefficients.source}",
        *_other_width(shape, coefficients),
        "",
        "GiB of one GPU   stage  " + "".join(f"{short:>9}" for short in _SHORT.values()) + f"{'peak':>9}",
    ]
    for first, last, stage in _alike(verdict.stages):
        name = f"{first + 1}" if first == last else f"{first + 1}-{last + 1}"
        cells = "".join(f"{stage.terms[term] / GIB:9.2f}" for term in _SHORT)
        lines.append(f"{stage.role:15} {name:>6}  {cells}{stage.peak_bytes / GIB:9.2f}")
    lines += ["", f"on GPUs of {limit / GIB:g} GiB"]
    for each in USES:
        peak, stage = verdict.admitted[each]
        says = "fits" if verdict.fits(each) else f"DOES NOT FIT: {verdict.breaking_term(each)} breaks it"
        lines.append(f"  {each:18} {peak / GIB:8.2f}  ({stage.role}, stage {stage.stage + 1})  {says}")
    if not verdict.fits(use):
        lines += nearest_lines(shape, verdict, load=load, coefficients=coefficients, use=use)
    lines += host_lines(
        shape, plan, load=load, host=host, limit_bytes=host_limit_bytes, offload=use == "pair taking turns"
    )
    return lines + cap_lines(load, plan)


def nearest_lines(
    shape: ModelShape, verdict: Verdict, *, load: Load, coefficients: Coefficients, use: str
) -> list[str]:
    """The plans nearest to one that does not fit: on as many GPUs, or on more where none of those does."""
    for factor in (1, 2, 4, 8):
        num_gpus = factor * verdict.plan.num_gpus
        found = fitting(
            shape,
            num_gpus=num_gpus,
            load=load,
            coefficients=coefficients,
            limit_bytes=verdict.limit_bytes,
            use=use,
        )
        if found:
            return [
                f"nearest plans that fit ({use}, {num_gpus} GPUs):",
                *(
                    f"  {each.plan}  {each.admitted[use][0] / GIB:.2f}"
                    for each in nearest(verdict.plan, found)
                ),
            ]
    return [f"no plan of up to {num_gpus} GPUs fits: shorten the wall, or use GPUs with more memory"]


def host_lines(
    shape: ModelShape, plan: Plan, *, load: Load, host: HostLoad, limit_bytes: float, offload: bool
) -> list[str]:
    """What a host carries, and whether it can; a limit of 0 is not held against it."""
    terms = host_bytes(shape, plan=plan, load=load, host=host, offload=offload)
    total = sum(terms.values())
    told = " + ".join(f"{name} {size / GIB:.1f}" for name, size in terms.items() if size)
    lines = [
        "",
        f"host of {host.gpus_per_host} GPUs: {told or 'nothing'} = {total / GIB:.1f} GiB",
        f"  a token's routes take {route_bytes(shape, bytes_per_id=1):,} B, and "
        f"{route_bytes(shape, bytes_per_id=4):,} B as T1 stores them",
    ]
    if limit_bytes:
        says = (
            "fits"
            if total <= limit_bytes
            else f"DOES NOT FIT: {max(terms, key=terms.get)} is the largest term"
        )
        lines.append(f"  of {limit_bytes / GIB:g} GiB: {says}")
    return lines


def cap_lines(load: Load, plan: Plan) -> list[str]:
    """Why a lower token cap would not help, where the longest row already fills more than the cap."""
    row = math.ceil(load.wall / plan.cp)
    if load.max_tokens > row or load.max_tokens <= 1:
        return []
    return [
        "",
        f"max_tokens_per_gpu={load.max_tokens:,} does not lower this peak: a row cannot be divided, and one of "
        f"{load.wall:,} tokens makes a micro-batch of its own, {row:,} tokens on each of CP={plan.cp} ranks. Lowering "
        f"the cap only makes more micro-batches of the shorter rows. What helps: cp={2 * plan.cp} (halves it), a "
        "shorter wall, or recomputation where it is off.",
    ]


def refusal(verdict: Verdict, *, use: str, near: Sequence[str]) -> str:
    """One message for a campaign that must not start."""
    peak, stage = verdict.admitted[use]
    limit, ways_out = verdict.limit_bytes / GIB, " ".join(line.strip() for line in near)
    return (
        f"the plan does not fit: {verdict.plan} takes {peak / GIB:.2f} GiB on a GPU of {limit:g} GiB ({stage.role}, "
        f"stage {stage.stage + 1}, {use}), and {verdict.breaking_term(use)} breaks it; {ways_out}"
    )


def published_lines() -> list[str]:
    """Every published number beside what it can be computed from."""
    lines = [f"{'':36}{'quoted':>10} {'computed':>10}"]
    for check in checks():
        computed = "not derived" if check.computed is None else f"{check.computed:.4g}"
        met = {True: "", False: "  (differs)", None: ""}[check.is_met]
        lines.append(f"{check.what:36}{check.quoted:10.4g} {computed:>11} {check.unit:10}{check.note}{met}")
    return lines


def split_lines(
    best: Split, *, num_gpus: int, tail: Split | None = None, simulated: Sequence[Split] = ()
) -> list[str]:
    """The best split by the formula, with the straggler's floor, and trial by trial."""

    def told(each: Split) -> str:
        return (
            f"n={each.num_rollout} sample, {num_gpus - each.num_rollout} train: rollout {each.rollout:.2f}, "
            f"training {each.train:.2f}, step {each.step:.2f}"
        )

    lines = [f"max(R/n, C/(G-n))        {told(best)}"]
    if tail is not None:
        lines.append(f"with the straggler's tail {told(tail)}")
    if simulated:
        fastest = min(simulated, key=lambda each: (each.step, each.num_rollout))
        lines.append(f"trial by trial           {told(fastest)}")
        lines.append("       n   rollout  training      step")
        step = max(1, len(simulated) // 12)
        lines += [
            f"{each.num_rollout:8}{each.rollout:10.2f}{each.train:10.2f}{each.step:10.2f}"
            for each in simulated[::step]
        ]
    return lines


def _count(number: int) -> str:
    return f"{number / 1e9:.2f} B" if number >= 1e9 else f"{number / 1e6:.2f} M"


def _other_width(shape: ModelShape, coefficients: Coefficients) -> list[str]:
    if coefficients is not PUBLISHED or shape.hidden_size == QWEN3_5_122B_A10B.hidden_size:
        return []
    return [
        "        which is of the 122B model; other widths have other numbers: run t1 calibrate at this one"
    ]


def _alike(stages: Sequence[StageBytes]) -> list[tuple[int, int, StageBytes]]:
    """(first, last, bytes) of neighbouring stages with the same terms."""
    found: list[tuple[int, int, StageBytes]] = []
    for stage in stages:
        if found and found[-1][2].role == stage.role and found[-1][2].terms == stage.terms:
            found[-1] = (found[-1][0], stage.stage, found[-1][2])
        else:
            found.append((stage.stage, stage.stage, stage))
    return found
