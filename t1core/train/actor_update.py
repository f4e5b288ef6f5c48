"""The actor's part of a step: scoring a batch, the policy updates, the warm start's supervised one."""

import torch
import torch.distributed as dist
from megatron.core import parallel_state

from t1core.model.scoring import score
from t1core.train.learner import Learner
from t1core.train.streams import BatchStreams, DeviceMicroBatch, reduce_over_batch, total_over_batch
from t1core.train.surrogate import Surrogate


def score_batch(actor: Learner, *, streams: BatchStreams, replayed: bool) -> torch.Tensor:
    """Log-probability of every token under the actor's present weights, float32 [T]; 0 for a row's first."""
    return streams.merge(
        actor.score(
            streams.micro_batches,
            lambda out, micro: score(out, micro.targets, model=actor.model)[0],
            replayed=replayed,
        )
    )


def update_actor(
    actor: Learner, *, streams: BatchStreams, surrogate: Surrogate, replayed: bool, moe_aux_loss_coeff: float
) -> tuple[torch.Tensor, dict[str, float]]:
    """One policy update: the log-probs before it, float32 [T], and its metrics."""

    def loss(
        out: torch.Tensor, micro: DeviceMicroBatch
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        logprobs, entropy = score(out, micro.targets, model=actor.model)
        mask = micro.take(streams.mask)
        total, terms = surrogate(logprobs, micro)
        ratio = terms.ratio[mask].double()
        log_ratio = (logprobs.detach() - micro.take(surrogate.denominator))[mask].double()
        sums = [
            total.detach(),
            terms.is_clipped.sum(),
            ratio.sum(),
            entropy[mask].sum(),
            (log_ratio.expm1() - log_ratio).sum(),
        ]
        largest = ratio.max() if len(ratio) else ratio.new_zeros(())
        return total, (torch.stack([x.double() for x in sums]), largest, logprobs.detach())

    _weigh_load_balance(actor, streams=streams, coeff=moe_aux_loss_coeff)
    reports = actor.accumulate(streams.micro_batches, loss, replayed=replayed)
    sums = total_over_batch([sums for sums, *_ in reports], width=5, device=streams.device)
    total, clipped, ratio, entropy, kl = sums.tolist()
    nothing = torch.zeros((), dtype=torch.float64, device=streams.device)
    largest = torch.stack([nothing, *(largest for _, largest, _ in reports)]).max()
    tokens = streams.num_loss_tokens
    metrics = {
        "actor/loss": total,
        "actor/clip_frac": clipped / tokens,
        "actor/ratio_mean": ratio / tokens,
        "actor/ratio_max": float(reduce_over_batch(largest, op=dist.ReduceOp.MAX)),
        "actor/entropy": entropy / tokens,
        "actor/kl_behaviour": kl / tokens,
        "actor/lr": actor.lr,
        "actor/grad_norm": actor.step(),
    }
    return streams.merge([logprobs for *_, logprobs in reports]), metrics


def update_supervised(actor: Learner, *, streams: BatchStreams, weights: torch.Tensor) -> float:
    """One update on the weighted cross-entropy of the trainable tokens, free routing; the loss before it."""

    def loss(out: torch.Tensor, micro: DeviceMicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
        logprobs, _ = score(out, micro.targets, model=actor.model)
        total = -(torch.where(micro.take(streams.mask), logprobs, 0.0) * micro.take(weights)).sum()
        return total, total.detach()

    total = total_over_batch(actor.accumulate(streams.micro_batches, loss), width=1, device=streams.device)
    actor.step()
    return float(total)


def _weigh_load_balance(actor: Learner, *, streams: BatchStreams, coeff: float) -> None:
    """Have Megatron's load-balancing losses add up to `coeff` times their mean over the batch's forwarded tokens.

    In its per-token mode Megatron multiplies each micro-batch's loss by that micro-batch's tokens, for a division
    that we leave out. The loss of a micro-batch is about the balance within it, so other packing changes it a little.
    """
    if not coeff:
        return
    own = [torch.tensor(float(len(micro)), device=streams.device) for micro in streams.micro_batches]
    counted = own if parallel_state.is_pipeline_last_stage() else []
    tokens = float(total_over_batch(counted, width=1, device=streams.device))
    actor.model.config.moe_aux_loss_coeff = coeff / tokens
