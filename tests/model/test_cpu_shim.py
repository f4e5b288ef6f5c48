"""The shim answers megatron-core for the CPU, and nobody else."""

import pytest
import torch

from t1core.model import cpu_shim


@pytest.fixture(autouse=True)
def without_cuda() -> None:
    if torch.cuda.is_available():
        pytest.skip("CUDA is present, so the shim does nothing")


def test_megatron_gets_cpu_tensors_where_it_asks_for_cuda() -> None:
    import megatron.core.tensor_parallel.layers as layers

    assert layers.torch is not torch
    assert layers.torch.cuda.current_device() == torch.device("cpu")
    assert layers.torch.zeros(2, device="cuda", pin_memory=True).device.type == "cpu"
    assert layers.torch.nn is torch.nn


def test_everyone_else_keeps_the_real_torch() -> None:
    assert torch.zeros(1).type() == "torch.FloatTensor"
    with pytest.raises((RuntimeError, AssertionError)):
        torch.zeros(1, device="cuda")
    with pytest.raises((RuntimeError, AssertionError)):
        torch.zeros(1).cuda()


def test_random_states_fork_without_disturbing_the_outside() -> None:
    from megatron.core.tensor_parallel import get_cuda_rng_tracker

    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    with get_cuda_rng_tracker().fork():
        inside = torch.rand(3)
    assert torch.equal(torch.rand(3), expected)
    assert not torch.equal(inside, expected)
    with pytest.raises(KeyError, match="never added"), get_cuda_rng_tracker().fork("nobody"):
        pass


def test_installing_twice_changes_nothing() -> None:
    before = torch.Tensor.type
    cpu_shim.install()
    assert torch.Tensor.type is before
