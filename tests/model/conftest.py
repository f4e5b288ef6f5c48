"""One rank with Megatron's groups on it, and a nano model whose weights are large enough to show mistakes."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from t1core.model import checkpoint, layout
from t1core.model.shape import ModelShape

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.FileStore(str(tmp_path_factory.mktemp("group") / "store"), 1)
    backends = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backends, store=store, rank=0, world_size=1)
    layout.initialize(layout.Layout(), seed=1)
    yield
    layout.destroy()
    dist.destroy_process_group()


@pytest.fixture(scope="session")
def shape() -> ModelShape:
    return ModelShape.nano(vocab_size=512)


@pytest.fixture(scope="session")
def state(shape: ModelShape) -> dict[str, torch.Tensor]:
    """Matrices five times the usual, norms off their identity: logits of order 5, routing far from even."""
    state = checkpoint.initial_state(shape, seed=3)
    generator = torch.Generator().manual_seed(4)
    for name, tensor in state.items():
        if tensor.dim() == 1:
            tensor.add_(0.1 * torch.randn(tensor.shape, generator=generator))
        elif not name.endswith("conv1d.weight"):
            tensor.mul_(5 * 0.02 / shape.initializer_range)
    return state


@pytest.fixture(scope="session")
def hf_directory(
    shape: ModelShape, state: dict[str, torch.Tensor], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint")
    checkpoint.write_hf(state, shape, directory)
    return directory
