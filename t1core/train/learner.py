"""One network being trained: Megatron's DDP around it, its distributed optimiser, and its passes.

Losses given to `accumulate` are sums of weighted token terms (see `rl.aggregate`), so gradients are summed
over micro-batches and ranks and never divided: Megatron is put into its per-token mode and its own division
is left out.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from torch import nn

from t1core.model import replay
from t1core.model.forward import outputs
from t1core.model.kernels import Kernels
from t1core.train.adam import Adam
from t1core.train.streams import DeviceMicroBatch

Role = Literal["actor", "critic"]
Output = Callable[[torch.Tensor, DeviceMicroBatch], Any]
Loss = Callable[[torch.Tensor, DeviceMicroBatch], tuple[torch.Tensor, Any]]


class Learner:
    """A model with gradient buffers and Adam. Nothing here knows whether it is the actor or the critic."""

    def __init__(
        self,
        model: nn.Module,
        *,
        adam: Adam,
    ) -> None:
        self.model = model
        self.adam = adam
        config = model.config
        config.calculate_per_token_loss = True
        config.finalize_model_grads_func = _sum_gradients
        self.ddp = DistributedDataParallel(
            config,
            DistributedDataParallelConfig(
                grad_reduce_in_fp32=True, use_distributed_optimizer=True, check_for_nan_in_grad=True
            ),
            model,
        )
        dtype = config.params_dtype
        self.optimizer = get_megatron_optimizer(
            optimizer_config(adam, dtype=dtype),
            [self.ddp],
        )
        self.num_steps = 0
        self.has_gradients = False  # some that no update has used yet

    def score(
        self, micro_batches: Sequence[DeviceMicroBatch], output: Output, *, replayed: bool = False
    ) -> list[Any]:
        """`output(model output, micro-batch)` of each micro-batch, without gradients; [] off the last
        pipeline stage."""

        def finish(out: torch.Tensor, micro: DeviceMicroBatch) -> tuple[torch.Tensor, Any]:
            return out.new_zeros(()), output(out, micro)

        with torch.no_grad():
            return self._run(micro_batches, finish, replayed=replayed, forward_only=True)

    def accumulate(
        self, micro_batches: Sequence[DeviceMicroBatch], loss: Loss, *, replayed: bool = False
    ) -> list[Any]:
        """Fill the gradient buffers with the gradient of the summed losses, reduced over ranks.

        `loss(model output, micro-batch)` gives this rank's summed loss and anything to hand back, which is
        returned for each micro-batch ([] off the last pipeline stage).
        """
        self.ddp.zero_grad_buffer()
        self.optimizer.zero_grad()
        self.has_gradients = True
        return self._run(micro_batches, loss, replayed=replayed, forward_only=False)

    def drop_gradients(self) -> None:
        """Forget gradients that no update will use."""
        self.ddp.zero_grad_buffer()
        self.optimizer.zero_grad()
        self.has_gradients = False

    @property
    def kernels(self) -> Kernels:
        """What computes the model."""
        return self.model.kernels

    @property
    def lr(self) -> float:
        """The learning rate of the next update."""
        return self.adam.lr.at(self.num_steps)

    def step(self) -> float:
        """One Adam step from the gradient buffers; the gradient norm before clipping."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr
        succeeded, grad_norm, _ = self.optimizer.step()
        assert succeeded, "the optimiser refused its step"
        self.num_steps += 1
        self.has_gradients = False
        return float(grad_norm)

    def parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """This rank's weights by name, as the model computes with them."""
        return ((name, param.data) for name, param in self.model.named_parameters())

    def _run(
        self, micro_batches: Sequence[DeviceMicroBatch], finish: Loss, *, replayed: bool, forward_only: bool
    ) -> list[Any]:
        def forward(
            batches: Iterator[DeviceMicroBatch], model: nn.Module
        ) -> tuple[torch.Tensor, Callable[..., Any]]:
            micro = next(batches)
            if replayed:
                assert micro.routes is not None
                replay.arm(self.model, micro.routes)
            out = outputs(model, micro.tokens, micro.position_ids, micro.packed)

            def reduce(out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, Any]:
                loss, result = finish(out, micro)
                return loss, torch.zeros((), dtype=torch.int, device=loss.device), result

            return out, reduce

        if not micro_batches:
            return []
        replay.assert_idle(self.model)
        results = get_forward_backward_func()(
            forward_step_func=forward,
            data_iterator=iter(micro_batches),
            model=[self.ddp],
            num_microbatches=len(micro_batches),
            seq_length=len(micro_batches[0]),
            micro_batch_size=1,
            forward_only=forward_only,
        )
        if replayed:
            replay.assert_consumed(self.model)
            replay.disarm(self.model)
        return results


def optimizer_config(adam: Adam, *, dtype: torch.dtype) -> OptimizerConfig:
    """Megatron's configuration of the distributed optimiser; main parameters and moments are fp32 in any case."""
    return OptimizerConfig(
        optimizer="adam",
        lr=adam.lr.peak,
        min_lr=adam.lr.peak,
        weight_decay=adam.weight_decay,
        adam_beta1=adam.betas[0],
        adam_beta2=adam.betas[1],
        adam_eps=adam.eps,
        clip_grad=adam.clip_grad,
        bf16=dtype == torch.bfloat16,
        params_dtype=dtype,
        use_distributed_optimizer=True,
    )


def _sum_gradients(model: list[nn.Module], num_tokens: torch.Tensor | None = None, **kwargs: Any) -> None:
    """Megatron's reduction over ranks, without its division by a token count."""
    finalize_model_grads(model, None, **kwargs)
