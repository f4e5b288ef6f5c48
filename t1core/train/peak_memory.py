"""What one network takes at its peak: an update of actor or critic, measured.

On a GPU it is what torch's allocator held at most. A CPU keeps no such count, so there the tensors alive are counted as
operations make them and drop them, which leaves out what operations take inside.
"""

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from t1core.model.build import build_model
from t1core.model.scoring import score
from t1core.model.scoring_block import tokens_at_once
from t1core.model.shape import ModelShape
from t1core.records.batch import Batch
from t1core.train.actor_update import update_supervised
from t1core.train.adam import Adam
from t1core.train.critic_update import Credit, CriticObjective, update_critic
from t1core.train.learner import Learner, Role
from t1core.train.streams import put_batch

_SCORED_LOGITS = {True: 2**26, False: 2**22}  # on a GPU an allocator rounds up, so the block is a large one


def measure_peak(
    shape: ModelShape, *, role: Role, lengths: Sequence[int], max_tokens: int, dtype: torch.dtype
) -> int:
    """Bytes at the peak of the second of two updates with recomputation on rows of `lengths` tokens, beyond what was
    there before the network. The actor's update is the supervised one, whose passes and logits are those of PPO's.
    """
    on_gpu = torch.cuda.is_available()
    gc.collect()
    with counted(on_gpu) as peak_since:
        learner = Learner(build_model(shape, role=role, dtype=dtype, recompute=True), adam=Adam())
        device = torch.device("cuda" if on_gpu else "cpu")
        streams = put_batch(
            _rows(shape, lengths),
            device=device,
            max_tokens=max_tokens,
            row_multiple=1,
            num_experts=shape.num_experts,
            with_routes=False,
        )
        weights = torch.full((sum(lengths),), 1 / sum(lengths), device=device)
        update = _actor if role == "actor" else _critic
        update(learner, streams, weights)
        reset, peak = peak_since
        reset()
        update(learner, streams, weights)
        found = peak()
        del learner, streams, weights
    gc.collect()
    if on_gpu:
        torch.cuda.empty_cache()
    return found


def measure_logit_bytes(shape: ModelShape, *, dtype: torch.dtype) -> float:
    """Bytes at the peak of scoring and its backward for each logit: what twice as many take more."""
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    model = build_model(shape, role="actor", dtype=dtype)
    longest = min(tokens_at_once(shape.vocab_size), _SCORED_LOGITS[on_gpu] // shape.vocab_size)
    peaks = []
    for tokens in (longest // 2, longest):
        with counted(on_gpu) as (reset, peak):
            hidden = torch.ones(tokens, shape.hidden_size, dtype=dtype, device=device, requires_grad=True)
            reset()
            before = peak()
            logprobs, _ = score(hidden, torch.zeros(tokens, dtype=torch.int64, device=device), model=model)
            logprobs.sum().backward()
            peaks.append(peak() - before)
            model.output_layer.weight.grad = None
    return (peaks[1] - peaks[0]) / (shape.vocab_size * (longest - longest // 2))


def _actor(learner: Learner, streams: Any, weights: torch.Tensor) -> None:
    update_supervised(learner, streams=streams, weights=weights)


def _critic(learner: Learner, streams: Any, weights: torch.Tensor) -> None:
    once = CriticObjective(Credit(), value_clip=0.2, num_steps=1, bins=None, is_cold=False)
    update_critic(learner, streams=streams, weights=weights, objective=once)


def _rows(shape: ModelShape, lengths: Sequence[int]) -> Batch:
    drawn = np.random.default_rng(0)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    mask = np.ones(starts[-1], dtype=np.uint8)
    mask[starts[:-1]] = 0
    return Batch(
        step=0,
        rollout_ids=tuple(f"row-{number}" for number in range(len(lengths))),
        tokens=drawn.integers(0, shape.vocab_size, len(mask)).astype(np.int32),
        cu_seqlens=starts,
        loss_mask=mask,
        rollout_log_probs=np.zeros(len(mask), dtype=np.float32),
        weight_versions=np.where(mask, 0, -1).astype(np.int32),
        routed_experts=None,
        rewards=np.full(len(lengths), 0.5, dtype=np.float32),
        num_tests=np.full(len(lengths), 4, dtype=np.int32),
    )


@contextmanager
def counted(on_gpu: bool) -> Iterator[tuple[Callable[[], None], Callable[[], int]]]:
    """(forget the peak so far, the peak since) of tensors made within the block."""
    if on_gpu:
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        yield torch.cuda.reset_peak_memory_stats, lambda: torch.cuda.max_memory_allocated() - before
    else:
        with _LiveTensors() as live:
            yield live.reset, lambda: live.peak_bytes


class _LiveTensors(TorchDispatchMode):
    """Counts the bytes of storages that operations within it made and that are still alive."""

    def __init__(self) -> None:
        super().__init__()
        self.now_bytes = self.peak_bytes = 0
        self.known: set[int] = set()

    def reset(self) -> None:
        self.peak_bytes = self.now_bytes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        tree_map_only(torch.Tensor, self._note, out)
        return out

    def _note(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self.known:
            self.known.add(key)
            self.now_bytes += size
            self.peak_bytes = max(self.peak_bytes, self.now_bytes)
            weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now_bytes -= size
