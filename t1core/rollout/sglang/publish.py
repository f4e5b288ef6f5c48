"""Sending checked weights to the server, by one of three transports.

tensor: by value in the body of the request, for servers that share nothing with us. disk: a safetensors file
in a directory both see. gloo: broadcast through a process group, the way in which a trainer's ranks send. Whichever it
was, the server is then asked for a hash of each parameter it holds, and these must be those of what was sent.
"""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from t1core.model.checksum import weight_checksum
from t1core.rollout.sglang.broadcast import GROUP, WeightBroadcast, description
from t1core.rollout.sglang.client import Client
from t1core.rollout.sglang.server import free_port
from t1core.rollout.sglang.stored import as_stored, expected_hashes, stack_experts, wrong_parameters
from t1core.rollout.sglang.version import SGLangVersion
from t1core.rollout.sglang.weights import as_tensors, tensor_payload, write_weights

Transport = Literal["tensor", "disk", "gloo"]


class Publisher:
    """Puts new weights into the server that `client` speaks to."""

    def __init__(
        self,
        client: Client,
        *,
        sglang: SGLangVersion,
        transport: Transport,
        dtype: torch.dtype,
        scratch: Path,
        deadline_s: float,
    ) -> None:
        self.transport: Transport = transport
        self._client = client
        self._sglang = sglang
        self._dtype = dtype
        self._scratch = scratch
        self._deadline_s = deadline_s
        self._broadcast: WeightBroadcast | None = None

    async def publish(self, version: int, arrays: Mapping[str, np.ndarray], *, flush_cache: bool) -> str:
        """Load `arrays` as `version`. Returns the checksum of what the server then holds, as the trainer sums it up.

        Raises RuntimeError when a parameter of the server's is not what was sent.
        """
        options = {"weight_version": str(version), "flush_cache": flush_cache}
        stored = await asyncio.to_thread(
            lambda: as_stored(stack_experts(as_tensors(arrays)), dtype=self._dtype)
        )
        # Hashing releases the interpreter's lock: three sums over the weights, here and on the server, take as long as
        # the slowest.
        held, expected, checksum = await asyncio.gather(
            self._send(version, stored, options),
            asyncio.to_thread(expected_hashes, stored),
            asyncio.to_thread(weight_checksum, stored, dtype=self._dtype),
        )
        if wrong := wrong_parameters(expected, held):
            raise RuntimeError(
                f"after weight version {version} was sent by {self.transport}, {len(wrong)} of {len(expected)} "
                f"parameters that the server holds are not those sent: {', '.join(wrong[:4])}"
            )
        return checksum

    async def _send(
        self, version: int, stored: Mapping[str, torch.Tensor], options: Mapping[str, Any]
    ) -> Mapping[str, str]:
        """Returns the server's hash of each parameter it then holds."""
        match self.transport:
            case "tensor":
                await self._by_tensor(stored, options)
            case "disk":
                await self._by_disk(version, stored, options)
            case "gloo":
                await self._by_broadcast(stored, options)
        answer = await self._client.bulk("/weights_checker", action="checksum")
        (rank,) = answer["ranks"]
        return rank["checksums"]

    async def _by_tensor(self, tensors: Mapping[str, torch.Tensor], options: Mapping[str, Any]) -> None:
        payload = await asyncio.to_thread(tensor_payload, tensors)
        async with self._session():
            await self._client.bulk(
                "/update_weights_from_tensor", serialized_named_tensors=[payload], **options
            )

    async def _by_disk(
        self, version: int, tensors: Mapping[str, torch.Tensor], options: Mapping[str, Any]
    ) -> None:
        directory = self._scratch / f"weights-{version}"
        await asyncio.to_thread(write_weights, tensors, into=directory)
        try:
            await self._client.bulk("/update_weights_from_disk", model_path=str(directory), **options)
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    async def _by_broadcast(self, tensors: Mapping[str, torch.Tensor], options: Mapping[str, Any]) -> None:
        if self._broadcast is None:
            self._broadcast = await self._join()
        async with self._session():
            receive = self._client.bulk(
                "/update_weights_from_distributed", group_name=GROUP, **description(tensors), **options
            )
            await asyncio.gather(receive, asyncio.to_thread(self._broadcast.send, tensors))

    async def _join(self) -> WeightBroadcast:
        """Both sides of the group at once: each waits for the other."""
        port = free_port()
        join = self._client.control(
            "/init_weights_update_group",
            master_address="127.0.0.1",
            master_port=port,
            rank_offset=1,
            world_size=2,
            group_name=GROUP,
            backend="gloo",
        )
        make = asyncio.to_thread(WeightBroadcast, port=port, num_receivers=1, timeout_s=self._deadline_s)
        broadcast, _ = await asyncio.gather(make, join)
        return broadcast

    @contextlib.asynccontextmanager
    async def _session(self) -> AsyncIterator[None]:
        """From 0.5.21 weights come in between two calls; older servers have neither."""
        if self._sglang.has_weight_sessions:
            await self._client.control("/begin_weight_update")
        yield
        if self._sglang.has_weight_sessions:
            await self._client.control("/end_weight_update")
