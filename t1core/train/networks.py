"""Making the trainer's networks: its process group and device, and a learner of either role."""

import torch
import torch.distributed as dist

from t1core.model import cpu_shim, layout, optimizer_fixes
from t1core.model.build import build_model
from t1core.model.convert import freeze, load_hf
from t1core.model.kernels import choose
from t1core.records.batch import Batch
from t1core.train import process_group
from t1core.train.learner import Learner, Role
from t1core.train.settings import TrainSettings
from t1core.train.streams import BatchStreams, put_batch


def join(settings: TrainSettings) -> torch.device:
    """Join the process group (made from MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE unless it exists), lay the
    parallel groups out; this rank's device."""
    cpu_shim.install()
    optimizer_fixes.apply()
    if not dist.is_initialized():
        process_group.join(timeout_s=settings.group_timeout_s)
    settings.layout.check(settings.shape, world_size=dist.get_world_size())
    layout.initialize(settings.layout, seed=settings.seed, timeout_s=settings.parallel_group_timeout_s)
    return (
        torch.device("cuda", torch.cuda.current_device())
        if torch.cuda.is_available()
        else torch.device("cpu")
    )


def leave() -> None:
    """Leave the process groups."""
    layout.destroy()
    dist.destroy_process_group()


def build_learner(settings: TrainSettings, role: Role) -> Learner:
    """The role's network with its weights, its frozen parts out of training, and a fresh optimiser.

    The critic's weights are those of a warmed critic, or the actor's backbone under a fresh head; its moments always
    start anew, and only a checkpoint brings them back.
    """
    is_actor = role == "actor"
    path = settings.actor_path if is_actor else settings.critic_path or settings.actor_path
    model = build_model(
        settings.shape,
        role=role,
        layout=settings.layout,
        dtype=settings.dtype,
        routing_replay=is_actor and settings.use_rollout_routing_replay,
        recompute=settings.recompute,
        value_outputs=1 if settings.value_bins is None else settings.value_bins.num,
        load_balancing=is_actor and settings.moe_aux_loss_coeff > 0,
        kernels=choose(
            settings.kernels,
            dtype=settings.dtype,
            context_parallel=settings.layout.gdn_cp if settings.layout.cp > 1 else None,
        ),
    )
    load_hf(model, path, settings.shape)
    freeze(model, settings.shape, patterns=settings.actor_frozen if is_actor else settings.critic_frozen)
    return Learner(model, adam=settings.actor if is_actor else settings.critic)


def put(settings: TrainSettings, batch: Batch, *, device: torch.device, with_routes: bool) -> BatchStreams:
    """A batch on the device. ValueError if routes are wanted and the batch has none."""
    if with_routes and batch.routed_experts is None:
        raise ValueError(
            "the batch carries no routes but use_rollout_routing_replay is on: have the engine return "
            "routed experts, or turn the replay off"
        )
    return put_batch(
        batch,
        device=device,
        max_tokens=settings.max_tokens_per_gpu,
        row_multiple=settings.layout.row_multiple,
        num_experts=settings.shape.num_experts,
        with_routes=with_routes,
    )
