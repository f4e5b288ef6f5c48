"""What a cap on a micro-batch's tokens does to the peak of memory: real updates of a nano actor, measured."""

import tempfile
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
import torch.distributed as dist

from t1core.model import cpu_shim, layout
from t1core.model.shape import ModelShape
from t1core.train.packing import assign_rows
from t1core.train.peak_memory import measure_peak


def peaks_by_cap(lengths: Sequence[int], *, caps: Sequence[int]) -> pd.DataFrame:
    """A row a cap: micro-batches, tokens of the largest, and MiB at the peak of an update, on one process."""
    shape = ModelShape.nano(vocab_size=2048, num_layers=4)
    cpu_shim.install()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        dist.init_process_group("gloo", init_method=f"file://{scratch}/store", rank=0, world_size=1)
        try:
            layout.initialize(layout.Layout(), seed=0)
            for cap in caps:
                (packed,) = assign_rows(np.array(lengths), max_tokens=cap, num_ranks=1)
                peak = measure_peak(shape, role="actor", lengths=lengths, max_tokens=cap, dtype=torch.float32)
                largest = max(sum(lengths[row] for row in held) for held in packed)
                rows.append(dict(cap=cap, micro_batches=len(packed), largest=largest, peak_mib=peak / 2**20))
            layout.destroy()
        finally:
            dist.destroy_process_group()
    return pd.DataFrame(rows)
