"""Moving a learner off its device and back, so that actor and critic can take turns on it.

Weights, optimiser state and gradients that no update has used yet move out and back, held to a checksum. Tensors stay
the objects they are and only their storages are emptied and refilled, so the views that Megatron's buffers, parameters
and optimiser have of one another survive. Gradients that an update has used are dropped and come back as zeros.
"""

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist

from t1core.model.checksum import fast_digest
from t1core.train.host_memory import OffloadDemand, available_bytes, check_host_memory
from t1core.train.learner import Learner, Role

_MOMENTS_BYTES, _MAIN_BYTES = 8, 4  # Adam's two fp32 moments; the fp32 main copy of a bf16 weight


def refuse_impossible(environment: Mapping[str, str] = os.environ) -> None:
    """ValueError on a machine without CUDA, and where the allocator and the memory saver cannot both work.

    torch_memory_saver takes physical pages from under tensors by replacing the allocator's calls to the driver;
    expandable segments map pages by other calls, which it does not see.
    """
    if not torch.cuda.is_available():
        raise ValueError(
            "train.offload=true has no effect on a CPU, where there is no device memory to free: set it to false"
        )
    refuse_memory_saver_with_expandable_segments(environment)


def refuse_memory_saver_with_expandable_segments(environment: Mapping[str, str]) -> None:
    """ValueError when this process has torch_memory_saver preloaded and expandable segments on."""
    saver = "torch_memory_saver" in environment.get("LD_PRELOAD", "")
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        parts = [part.strip().lower() for part in environment.get(name, "").split(",")]
        if saver and "expandable_segments:true" in parts:
            raise ValueError(
                f"{name}={environment[name]!r} turns expandable segments on while torch_memory_saver is preloaded; it "
                "cannot release such memory: remove expandable_segments:True, or the preload"
            )


def refuse_without_room(learners: Mapping[Role, Learner], *, num_snapshots: int) -> None:
    """ValueError with the arithmetic when the ranks of this host cannot have their learners there, beside that many
    copies of the actor's weights. Every rank calls."""
    hosts: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(hosts, socket.gethostname())
    demand = OffloadDemand(
        learner_bytes={role: state_bytes(learner) for role, learner in learners.items()},
        snapshot_bytes=_weight_bytes(learners["actor"]),
        num_snapshots=num_snapshots,
    )
    check_host_memory(demand, num_ranks=hosts.count(socket.gethostname()), available_bytes=available_bytes())


def state_bytes(learner: Learner) -> int:
    """Bytes of this rank that `offload` moves to the host once the optimiser has stepped."""
    per_element = _MOMENTS_BYTES + (_MAIN_BYTES if _has_main_params(learner) else 0)
    return _weight_bytes(learner) + sum(param.numel() for param, _ in _optimised(learner)) * per_element


@dataclass(frozen=True)
class Away:
    """A learner's storages on the host, as bytes, beside the emptied ones, and the checksum to hold them to."""

    stored: tuple[tuple[torch.UntypedStorage, torch.Tensor], ...]
    dropped: tuple[tuple[torch.UntypedStorage, int], ...]
    checksum: str


def offload(learner: Learner) -> Away:
    """Free the device memory of a learner, which cannot compute until `reload`."""
    gradients = _storages(buffer.grad_data for buffer in _buffers(learner))
    kept = _storages(_kept(learner))
    dropped = [] if learner.has_gradients else gradients
    with _beside():
        stored = tuple((storage, _to_host(storage)) for storage in kept)
    checksum = state_checksum(learner)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    away = Away(stored, tuple((storage, storage.nbytes()) for storage in dropped), checksum)
    for storage in (*kept, *dropped):
        storage.resize_(0)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return away


def reload(learner: Learner, away: Away) -> None:
    """Bring a learner back. AssertionError if one bit of weights, optimiser state or waiting gradients changed."""
    for storage, host in away.stored:
        storage.resize_(len(host))
    for storage, size in away.dropped:
        storage.resize_(size)
        _bytes_of(storage).zero_()
    # In the digest's order, so that it sums up what has arrived while the rest is on its way.
    state = _state(learner)
    turn: dict[int, int] = {}
    for i, name in enumerate(sorted(state)):
        turn.setdefault(state[name].untyped_storage().data_ptr(), i)
    arrivals: dict[int, torch.cuda.Event] = {}
    with _beside():
        for storage, host in sorted(away.stored, key=lambda pair: turn.get(pair[0].data_ptr(), len(turn))):
            _bytes_of(storage).copy_(host, non_blocking=True)
            if storage.device.type == "cuda":
                arrivals[storage.data_ptr()] = torch.cuda.current_stream().record_event()

    def wait_for(tensor: torch.Tensor) -> None:
        arrival = arrivals.get(tensor.untyped_storage().data_ptr())
        if arrival is not None:
            torch.cuda.current_stream().wait_event(arrival)

    checksum = fast_digest(state, before=wait_for)
    for arrival in arrivals.values():  # also what the digest does not read
        torch.cuda.current_stream().wait_event(arrival)
    assert checksum == away.checksum, (
        "weights, optimiser state or gradients changed while they were off the device"
    )


@contextlib.contextmanager
def _beside() -> Iterator[None]:
    """Within the block copies are queued beside the device's other work; what follows waits for nothing, so
    synchronise before the copies are used."""
    if not torch.cuda.is_available():
        yield
        return
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield


def state_checksum(learner: Learner) -> str:
    """Digest of this rank's weights, main parameters, Adam moments and waiting gradients."""
    return fast_digest(_state(learner))


def _state(learner: Learner) -> dict[str, torch.Tensor]:
    tensors = dict(learner.parameters())
    for i, (param, state) in enumerate(_optimised(learner)):
        tensors[f"main.{i}"] = param.data
        tensors |= {f"{key}.{i}": x.reshape(-1) for key, x in state.items() if torch.is_tensor(x)}
    if learner.has_gradients:
        tensors |= {f"gradient.{i}": buffer.grad_data for i, buffer in enumerate(_buffers(learner))}
    return tensors


def _kept(learner: Learner) -> Iterator[torch.Tensor]:
    """Every tensor whose values must survive."""
    for buffer in _buffers(learner):
        yield buffer.param_data
        if learner.has_gradients:
            yield buffer.grad_data
    # Frozen weights are in no buffer; the others are views of one.
    yield from (weight for _, weight in learner.parameters())
    for param, state in _optimised(learner):
        yield param.data
        # Adam's step counters live on the host already.
        yield from (x for key, x in state.items() if torch.is_tensor(x) and key != "step")


def _storages(tensors: Iterator[torch.Tensor]) -> list[torch.UntypedStorage]:
    """The different storages that hold the tensors; an fp32 main parameter is a view of its weight buffer."""
    found = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in tensors}
    return [storage for storage in found.values() if storage.nbytes()]


def _to_host(storage: torch.UntypedStorage) -> torch.Tensor:
    host = torch.empty(storage.nbytes(), dtype=torch.uint8, pin_memory=torch.cuda.is_available())
    return host.copy_(_bytes_of(storage), non_blocking=True)


def _bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _has_main_params(learner: Learner) -> bool:
    return learner.model.config.params_dtype != torch.float32


def _weight_bytes(learner: Learner) -> int:
    return sum(weight.numel() * weight.element_size() for _, weight in learner.parameters())


def _optimised(learner: Learner) -> Iterator[tuple[torch.nn.Parameter, dict]]:
    """This rank's shards of the main parameters, and Adam's state of each ({} before the first step)."""
    for part in getattr(learner.optimizer, "chained_optimizers", [learner.optimizer]):
        optimizer = getattr(part, "optimizer", None)
        for group in optimizer.param_groups if optimizer is not None else ():
            for param in group["params"]:
                yield param, optimizer.state.get(param, {})


def _buffers(learner: Learner) -> list:
    return [*learner.ddp.buffers, *learner.ddp.expert_parallel_buffers]
