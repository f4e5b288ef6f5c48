"""Moving a learner off its GPU and back, so that actor and critic can take turns on one device.

Weights, gradient buffers and optimiser state leave; gradients are not kept. On a CPU there is nowhere to go,
and only the checksum is taken, so that callers can hold the round trip to it either way.
"""

import torch

from t1core.model.checksum import weight_checksum
from t1core.train.learner import Learner


def offload(learner: Learner) -> str:
    """Free the device memory of a learner; returns the checksum to hold `reload` to."""
    checksum = state_checksum(learner)
    if not torch.cuda.is_available():
        return checksum
    learner.ddp.offload_grad_buffers(empty_cache=False)
    for buffer in _buffers(learner):
        buffer.offload_to_cpu(move_params=True, move_grads=False)
    _move_optimizer(learner, torch.device("cpu"))
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return checksum


def reload(learner: Learner, *, checksum: str) -> None:
    """Bring a learner back. AssertionError if one bit of weights or optimiser state changed."""
    if torch.cuda.is_available():
        for buffer in _buffers(learner):
            buffer.reload_from_cpu(move_params=True, move_grads=False)
        _move_optimizer(learner, torch.device("cuda", torch.cuda.current_device()))
        learner.ddp.restore_grad_buffers()
    assert state_checksum(learner) == checksum, (
        "weights or optimiser state changed while they were off the device"
    )


def state_checksum(learner: Learner) -> str:
    """Digest of this rank's weights, main parameters and Adam moments."""
    tensors = dict(learner.parameters())
    for i, part in enumerate(_parts(learner)):
        params = [param for group in part.param_groups for param in group["params"]]
        for j, param in enumerate(params):
            tensors[f"main.{i}.{j}"] = param.data
            state = part.state.get(param, {})
            tensors |= {f"{key}.{i}.{j}": x.reshape(-1) for key, x in state.items() if torch.is_tensor(x)}
    return weight_checksum(tensors)


def _move_optimizer(learner: Learner, device: torch.device) -> None:
    # fp32 weights are their own main parameters: views of the weight buffer, which have moved with it.
    # Replacing them, as Megatron's offload_to_cpu does, would cut the optimiser off from the model.
    own_main_params = learner.model.config.params_dtype != torch.float32
    for part in _parts(learner):
        for group in part.param_groups:
            for param in group["params"]:
                if own_main_params:
                    param.data = param.data.to(device)
                state = part.state.get(param, {})
                for key, value in state.items():
                    if torch.is_tensor(value) and key != "step":
                        state[key] = value.to(device)


def _parts(learner: Learner) -> list:
    chained = getattr(learner.optimizer, "chained_optimizers", [learner.optimizer])
    return [part.optimizer for part in chained if getattr(part, "optimizer", None) is not None]


def _buffers(learner: Learner) -> list:
    return [*learner.ddp.buffers, *learner.ddp.expert_parallel_buffers]
