"""`t1 plan`, `t1 split`, and holding a campaign to the GPUs it names before it starts."""

import math
from collections.abc import Mapping
from pathlib import Path

from t1core.campaign.calibrate import load_coefficients
from t1core.campaign.nano import nano_shape
from t1core.capacity.memory import GIB, PUBLISHED, Coefficients, HostLoad, Load
from t1core.capacity.plans import Plan
from t1core.capacity.report import (
    choose,
    nearest_lines,
    plan_lines,
    published_lines,
    refusal,
    split_lines,
)
from t1core.capacity.search import USES, judge
from t1core.capacity.sizes import shape_of
from t1core.capacity.throughput import Trials, best_split, simulate
from t1core.config import CampaignConfig
from t1core.model import known
from t1core.store import Run

_USES = dict(zip(("actor", "critic", "turns", "resident"), USES, strict=True))


def told(
    *,
    model: str,
    gpus: int,
    train_gpus: int | None,
    wall: int,
    gpu_memory_gib: float,
    degrees: Mapping[str, int | None],
    max_tokens: int,
    use: str,
    precision: str,
    recompute: bool,
    calibration: Path | None,
    host_memory_gib: float,
    gpus_per_host: int,
    boxes: int,
    box_memory_gib: float,
    batch: int,
    published: bool,
) -> list[str]:
    """The lines of `t1 plan`. ValueError names an option that cannot be."""
    if published:
        return published_lines()
    for name, value, allowed in (("--use", use, _USES), ("--precision", precision, ("bf16", "fp32"))):
        if value not in allowed:
            raise ValueError(f"{name} {value} is not one of {', '.join(allowed)}")
    num_train = train_gpus or max(1, gpus // 2)
    if num_train > gpus:
        raise ValueError(f"--train-gpus {num_train} are more than --gpus {gpus}")
    shape = shape_of(model)
    coefficients = PUBLISHED if calibration is None else load_coefficients(calibration)
    load = Load(wall=wall, max_tokens=max_tokens, precision=precision, recompute=recompute)
    how = dict(load=load, coefficients=coefficients, limit_bytes=gpu_memory_gib * GIB)
    if any(degrees.values()):
        verdict = judge(shape, _derived(degrees, num_gpus=num_train), **how)
    else:
        verdict = choose(shape, num_gpus=num_train, use=_USES[use], **how)
    lines = plan_lines(
        shape,
        verdict,
        model=model,
        load=load,
        coefficients=coefficients,
        host=HostLoad(
            gpus_per_host=min(gpus_per_host, num_train),
            num_hosts=math.ceil(gpus / gpus_per_host),
            num_boxes=boxes,
            box_bytes=int(box_memory_gib * GIB),
            batch_tokens=batch * wall,
        ),
        host_limit_bytes=host_memory_gib * GIB,
        use=_USES[use],
    )
    return [f"{gpus} GPUs, {num_train} of them train and {gpus - num_train} sample", *lines]


def _derived(degrees: Mapping[str, int | None], *, num_gpus: int) -> Plan:
    """The plan with the degrees given, 1 where none is, data parallel over what is left."""
    given = {name: value or 1 for name, value in degrees.items()}
    model_parallel = given["tp"] * given["pp"] * given["cp"]
    if model_parallel < 1 or num_gpus % model_parallel:
        raise ValueError(
            f"--tp {given['tp']} --pp {given['pp']} --cp {given['cp']} make {model_parallel} ranks, which do not "
            f"divide {num_gpus} training GPUs: change a degree or --train-gpus"
        )
    return Plan(**given, dp=num_gpus // model_parallel)


def told_split(
    *,
    gpus: int,
    rollout: float | None,
    train: float | None,
    run: Path | None,
    engine_gpus: int,
    sigma: float,
    launched: int,
    accepted: int,
    slots: int,
) -> list[str]:
    """The lines of `t1 split`."""
    if run is not None:
        rollout, train = measured_work(Run.open(run))
    if rollout is None or train is None:
        raise ValueError("give --rollout R and --train C, or --run with a run directory to take them from")
    trials = Trials(
        median=rollout * slots / (launched * math.exp(sigma**2 / 2)),
        sigma=sigma,
        launched=launched,
        accepted=accepted,
        slots=slots,
    )
    simulated = simulate(trials, train=train, num_gpus=gpus, multiple=engine_gpus)
    floor = min(each.rollout for each in simulated)
    how = dict(rollout=rollout, train=train, num_gpus=gpus, multiple=engine_gpus)
    return [
        f"R = {rollout:.4g} and C = {train:.4g} GPU time a step on {gpus} GPUs; the {accepted} fastest of {launched} "
        f"trials take {floor:.4g} at least, however many GPUs sample",
        *split_lines(
            best_split(**how), num_gpus=gpus, tail=best_split(**how, tail=floor), simulated=simulated
        ),
    ]


def measured_work(run: Run) -> tuple[float, float]:
    """(R, C) of a run, in process-seconds: the median step's rollout on its one engine, training over its ranks."""
    metrics = run.metrics("train")
    num_ranks = CampaignConfig.model_validate(run.config()).train.num_ranks
    missing = [name for name in ("time/rollout_s", "time/train_s") if name not in metrics]
    if missing:
        raise ValueError(f"run {run.path} has no {', '.join(missing)}: take one that finished a step")
    return float(metrics["time/rollout_s"].median()), float(metrics["time/train_s"].median()) * num_ranks


def check_capacity(config: CampaignConfig) -> None:
    """Raise ValueError when the plan does not fit the GPUs that `capacity.gpu_memory_gib` names; 0 names none."""
    train, capacity = config.train, config.capacity
    if not capacity.gpu_memory_gib:
        return
    shape = known.shape_of(config.model.actor_path) if config.model.actor_path else nano_shape(config.model)
    coefficients: Coefficients = (
        load_coefficients(capacity.calibration) if capacity.calibration else PUBLISHED
    )
    plan = Plan(
        tp=train.tensor_parallel,
        pp=train.pipeline_parallel,
        cp=train.context_parallel,
        ep=train.expert_parallel,
        dp=train.data_parallel,
    )
    load = Load(
        wall=config.agent.context_tokens,
        max_tokens=train.max_tokens_per_gpu,
        precision=train.precision,
        recompute=train.recompute,
    )
    limit = capacity.gpu_memory_gib * GIB
    verdict = judge(shape, plan, load=load, coefficients=coefficients, limit_bytes=limit)
    use = USES[0] if train.advantage == "grpo" else USES[2] if train.offload else USES[3]
    if not verdict.fits(use):
        near = nearest_lines(shape, verdict, load=load, coefficients=coefficients, use=use)
        raise ValueError(refusal(verdict, use=use, near=near))
