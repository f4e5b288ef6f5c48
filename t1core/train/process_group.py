"""Joining the trainer's process group: gloo on CPU, NCCL with CUDA, with an explicit timeout for both."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist


def join(*, timeout_s: float = 3600.0) -> None:
    """Open the default group from MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE.

    The timeout is explicit because Gloo's default of 30 minutes looks like a crash on long steps.
    """
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(
            int(os.environ.get("LOCAL_RANK", os.environ["RANK"])) % torch.cuda.device_count()
        )
    else:
        torch.set_num_threads(1)
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(seconds=timeout_s),
    )
