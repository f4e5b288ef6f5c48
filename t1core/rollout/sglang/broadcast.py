"""A gloo group of two sides: this process, rank 0, which sends weights, and the server's ranks, which
receive them.

The server joins with torch's process-group machinery; this side builds the same group by hand, from the
store up, since making it through torch.distributed would claim the process's one default group.
"""

from collections.abc import Mapping
from datetime import timedelta

import torch
import torch.distributed as dist

GROUP = "t1core-weights"


class WeightBroadcast:
    """Rank 0 of the group. Building it blocks until every rank of the server has joined, as does a send."""

    def __init__(self, *, port: int, num_receivers: int, timeout_s: float) -> None:
        """Listens on the loopback at `port`. Raises torch's DistError or RuntimeError when nobody joins in
        time.
        """
        timeout = timedelta(seconds=timeout_s)
        size = num_receivers + 1
        self._store = dist.TCPStore(
            "127.0.0.1", port, size, is_master=True, timeout=timeout, wait_for_workers=False
        )
        # the prefixes under which torch nests a named gloo group's keys: group name, group again, first
        # device type
        keys = dist.PrefixStore("cpu/", dist.PrefixStore(f"{GROUP}/", dist.PrefixStore(GROUP, self._store)))
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(interface="lo")]
        options._timeout = timeout
        self._group = dist.ProcessGroupGloo(keys, 0, size, options)

    def send(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Broadcast each tensor in order."""
        options = dist.BroadcastOptions()
        options.rootRank = 0
        options.rootTensor = 0
        for tensor in tensors.values():
            self._group.broadcast([tensor.contiguous()], options).wait()


def description(tensors: Mapping[str, torch.Tensor]) -> dict[str, list]:
    """Names, types and shapes in the order of `WeightBroadcast.send`, as update_weights_from_distributed
    wants them.
    """
    return {
        "names": list(tensors),
        "dtypes": [str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()],
        "shapes": [list(tensor.shape) for tensor in tensors.values()],
    }
