"""The actor's part of a step: scoring a batch, the clipped policy update, the warm start's supervised one."""

import torch
import torch.distributed as dist

from t1core.model.forward import score
from t1core.rl import policy_loss
from t1core.train.learner import Learner
from t1core.train.streams import BatchStreams, DeviceMicroBatch, reduce_over_batch, total_over_batch


def score_batch(actor: Learner, *, streams: BatchStreams, replayed: bool) -> torch.Tensor:
    """Log-probability of every token under the actor's present weights, float32 [T]; 0 for a row's first."""
    return streams.merge(
        actor.score(streams.micro_batches, lambda out, micro: score(out, micro.targets)[0], replayed=replayed)
    )


def update_actor(
    actor: Learner,
    *,
    streams: BatchStreams,
    behaviour_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    weights: torch.Tensor,
    eps_clip: float,
    eps_clip_high: float | None,
    dual_clip: float | None,
    replayed: bool,
) -> dict[str, float]:
    """One clipped policy update; its metrics. All streams float32 [T]."""

    def loss(
        out: torch.Tensor, micro: DeviceMicroBatch
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        logprobs, entropy = score(out, micro.targets)
        mask = micro.take(streams.mask)
        result = policy_loss(
            logprobs,
            behaviour_logprobs=micro.take(behaviour_logprobs),
            advantages=micro.take(advantages),
            mask=mask,
            eps_clip=eps_clip,
            eps_clip_high=eps_clip_high,
            dual_clip=dual_clip,
        )
        total = (result.per_token * micro.take(weights)).sum()
        ratio = result.ratio[mask].double()
        sums = [
            total.detach(),
            result.is_clipped.sum(),
            ratio.sum(),
            entropy[mask].sum(),
            (ratio - 1 - ratio.log()).sum(),
        ]
        largest = ratio.max() if len(ratio) else ratio.new_zeros(())
        return total, (torch.stack([x.double() for x in sums]), largest)

    reports = actor.accumulate(streams.micro_batches, loss, replayed=replayed)
    sums = total_over_batch([sums for sums, _ in reports], width=5, device=streams.device)
    total, clipped, ratio, entropy, kl = sums.tolist()
    nothing = torch.zeros((), dtype=torch.float64, device=streams.device)
    largest = torch.stack([nothing, *(largest for _, largest in reports)]).max()
    tokens = streams.num_loss_tokens
    return {
        "actor/loss": total,
        "actor/clip_frac": clipped / tokens,
        "actor/ratio_mean": ratio / tokens,
        "actor/ratio_max": float(reduce_over_batch(largest, op=dist.ReduceOp.MAX)),
        "actor/entropy": entropy / tokens,
        "actor/kl_behaviour": kl / tokens,
        "actor/lr": actor.lr,
        "actor/grad_norm": actor.step(),
    }


def update_supervised(actor: Learner, *, streams: BatchStreams, weights: torch.Tensor) -> float:
    """One update on the weighted cross-entropy of the trainable tokens, free routing; the loss before it."""

    def loss(out: torch.Tensor, micro: DeviceMicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
        logprobs, _ = score(out, micro.targets)
        total = -(torch.where(micro.take(streams.mask), logprobs, 0.0) * micro.take(weights)).sum()
        return total, total.detach()

    total = total_over_batch(actor.accumulate(streams.micro_batches, loss), width=1, device=streams.device)
    actor.step()
    return float(total)
