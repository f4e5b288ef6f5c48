"""A batch on the device: its per-token streams, this rank's micro-batches, and the way back from shards.

Every rank holds the per-token scalars of the whole global batch (a few floats a token), so that advantages,
weights and diagnostics are computed once, alike on every rank, whatever the layout.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from megatron.core import parallel_state

from t1core.model.forward import packed
from t1core.model.packed_rows import PackedRows
from t1core.records.batch import Batch
from t1core.train.packing import MicroBatch, assign_rows, pack_rows


@dataclass(frozen=True)
class DeviceMicroBatch:
    """One packed sequence on the device. tokens, targets, position_ids, source: int64 [P]; source is the
    batch position of the token predicted here, -1 for none; routes [P, L, k] in the record's compact dtype, or
    None; cu_seqlens int32 [segments + 1]."""

    tokens: torch.Tensor
    targets: torch.Tensor
    position_ids: torch.Tensor
    source: torch.Tensor
    cu_seqlens: torch.Tensor
    routes: torch.Tensor | None

    def __len__(self) -> int:
        return len(self.tokens)

    @functools.cached_property
    def packed(self) -> PackedRows:
        """The rows, with the tables that every layer and every pass over this micro-batch shares."""
        return packed(self.cu_seqlens)

    def take(self, stream: torch.Tensor) -> torch.Tensor:
        """A stream of the batch [T] at the tokens predicted here, [P]; zero (False) where there is none."""
        picked = stream[self.source.clamp(min=0)]
        return torch.where(
            self.source >= 0, picked, torch.zeros((), dtype=stream.dtype, device=stream.device)
        )


@dataclass(frozen=True)
class BatchStreams:
    """mask bool [T]; rows int64 [T]; trials int64 [R], the trial of each row; rewards float32 [R];
    rollout_logprobs float32 [T]; on this rank's device."""

    mask: torch.Tensor
    rows: torch.Tensor
    trials: torch.Tensor
    rewards: torch.Tensor
    rollout_logprobs: torch.Tensor
    num_rows: int
    micro_batches: tuple[DeviceMicroBatch, ...]

    @property
    def device(self) -> torch.device:
        return self.mask.device

    @property
    def num_tokens(self) -> int:
        return len(self.mask)

    @property
    def num_loss_tokens(self) -> int:
        return int(self.mask.sum())

    def merge(self, shards: Sequence[torch.Tensor]) -> torch.Tensor:
        """This rank's values, a tensor [P] a micro-batch, into the stream of the global batch: float32 [T],
        on every rank.

        Each token's value comes from the one data- and context-parallel place that predicts it, so adding
        shards of zeros elsewhere is exact. What only the last pipeline stage has, the others leave out (`shards`
        empty); what each has of its own layers is summed.
        """
        stream = torch.zeros(self.num_tokens, dtype=torch.float32, device=self.mask.device)
        for micro, values in zip(self.micro_batches, shards, strict=False):
            predicted = micro.source >= 0
            stream[micro.source[predicted]] = values[predicted].float()
        return reduce_over_batch(stream)


def put_batch(
    batch: Batch,
    *,
    device: torch.device,
    max_tokens: int,
    row_multiple: int,
    num_experts: int,
    with_routes: bool,
) -> BatchStreams:
    """Move a batch to the device and cut this rank's micro-batches; `max_tokens` counts tokens of one rank.

    A first token of a row is predicted by nothing, so it must not be trainable.
    """
    first = batch.cu_seqlens[:-1]
    assert not batch.loss_mask[first].any(), "a row's first token carries loss, but nothing predicts it"
    cp_size = parallel_state.get_context_parallel_world_size()
    ranks = assign_rows(
        batch.lengths(),
        max_tokens=max_tokens * cp_size,
        num_ranks=parallel_state.get_data_parallel_world_size(),
    )
    own = [
        pack_rows(
            batch,
            rows=rows,
            row_multiple=row_multiple,
            cp_size=cp_size,
            cp_rank=parallel_state.get_context_parallel_rank(),
        )
        for rows in ranks[parallel_state.get_data_parallel_rank()]
    ]
    if with_routes:
        _assert_whole_record_placed(own, batch, device=device)
    lengths = torch.from_numpy(batch.lengths())
    return BatchStreams(
        mask=torch.tensor(batch.loss_mask, device=device).bool(),
        rows=torch.repeat_interleave(torch.arange(len(batch)), lengths).to(device),
        trials=torch.from_numpy(trial_of_row(batch)).to(device),
        rewards=torch.tensor(batch.rewards, device=device),
        rollout_logprobs=torch.tensor(batch.rollout_log_probs, device=device),
        num_rows=len(batch),
        micro_batches=tuple(
            _to_device(micro, batch, device=device, num_experts=num_experts, with_routes=with_routes)
            for micro in own
        ),
    )


def trial_of_row(batch: Batch) -> np.ndarray:
    """int64 [R], counted from 0: the chunks of a trial lie side by side and share its id and reward."""
    ids = batch.rollout_ids
    starts = np.array([row == 0 or ids[row] != ids[row - 1] for row in range(len(batch))])
    trials = np.cumsum(starts) - 1
    assert starts.sum() == len(set(ids)), "the chunks of a trial must lie side by side in the batch"
    same = batch.rewards == batch.rewards[starts][trials]
    assert bool((same | np.isnan(batch.rewards)).all()), "the chunks of a trial carry different rewards"
    return trials.astype(np.int64)


def reduce_over_batch(x: torch.Tensor, *, op: dist.ReduceOp = dist.ReduceOp.SUM) -> torch.Tensor:
    """Reduce in place over everything that shares the batch: data, context and pipeline parallel ranks.

    Off the last pipeline stage pass zeros (for a maximum, of something that is not negative).
    """
    for group in (
        parallel_state.get_data_parallel_group(with_context_parallel=True),
        parallel_state.get_pipeline_model_parallel_group(),
    ):
        if dist.get_world_size(group) > 1:
            dist.all_reduce(x, op=op, group=group)
    return x


def total_over_batch(reports: Sequence[torch.Tensor], *, width: int, device: torch.device) -> torch.Tensor:
    """Sum of reports ([width] or scalars, one a micro-batch) over the global batch: float64 [width]."""
    total = torch.zeros(width, dtype=torch.float64, device=device)
    for report in reports:
        total += report.double()
    return reduce_over_batch(total)


def _assert_whole_record_placed(own: Sequence[MicroBatch], batch: Batch, *, device: torch.device) -> None:
    """Every routing row of the batch has a place on exactly one data- and context-parallel rank."""
    assert batch.routed_experts is not None
    placed = torch.tensor(sum(int((micro.route_source >= 0).sum()) for micro in own), device=device)
    dist.all_reduce(placed, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
    assert int(placed) == len(batch.routed_experts), (
        f"{int(placed)} of the record's {len(batch.routed_experts)} routing rows were placed over the ranks"
    )


def _to_device(
    micro: MicroBatch, batch: Batch, *, device: torch.device, num_experts: int, with_routes: bool
) -> DeviceMicroBatch:
    routes = None
    if with_routes:
        assert batch.routed_experts is not None
        routes = torch.from_numpy(micro.gather_routes(batch.routed_experts, num_experts=num_experts)).to(
            device
        )
    return DeviceMicroBatch(
        tokens=torch.from_numpy(micro.gather_tokens(batch.tokens)).to(device),
        targets=torch.from_numpy(micro.gather_targets(batch.tokens)).to(device).long(),
        position_ids=torch.from_numpy(micro.position_ids).to(device),
        source=torch.from_numpy(micro.target_source).to(device),
        cu_seqlens=torch.from_numpy(micro.cu_seqlens).to(device),
        routes=routes,
    )
