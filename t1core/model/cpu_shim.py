"""Lets megatron-core 0.19.2 run on a machine without CUDA.

Megatron asks `torch.cuda` for devices, streams and generators in many places. On a CPU, `install()` gives
each `megatron.core` module (loaded now or later) a stand-in for its global name `torch`, in which
`torch.cuda` answers for the CPU and `device="cuda"` means the CPU. The real torch is left alone but for
`Tensor.type` and `Tensor.cuda`, which answer differently to megatron-core only, and `torch.compile`, which is
told to run eagerly. With CUDA present nothing is touched.
"""

import contextlib
import functools
import importlib.util
import sys
import types
from typing import Any

import torch

_CPU = torch.device("cpu")
_FACTORIES = (
    *("empty", "zeros", "ones", "full", "tensor", "arange", "rand", "randn", "randint", "eye", "linspace"),
    *("empty_like", "zeros_like", "ones_like", "full_like", "as_tensor", "empty_strided", "scalar_tensor"),
)
_PREFIX = "megatron.core"
_installed = False


class _Event:
    """A CUDA event on a device that has finished everything already."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record(self, *_: Any) -> None: ...

    def wait(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: Any) -> float:
        return 0.0


class _Stream(contextlib.nullcontext):
    """A CUDA stream on a device that has only one."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def wait_stream(self, *_: Any) -> None: ...

    def wait_event(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...

    def record_event(self, event: _Event | None = None) -> _Event:
        return event or _Event()

    def query(self) -> bool:
        return True

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, 0


_STREAM = _Stream()


class _CudaOnCpu(types.ModuleType):
    """`torch.cuda` as megatron-core sees it on a CPU."""

    Stream, Event = _Stream, _Event

    current_device = staticmethod(lambda: _CPU)
    device_count = staticmethod(lambda: 1)
    is_available = staticmethod(lambda: False)
    synchronize = staticmethod(lambda *_, **__: None)
    empty_cache = staticmethod(lambda: None)
    set_device = staticmethod(lambda *_: None)
    current_stream = staticmethod(lambda *_: _STREAM)
    default_stream = staticmethod(lambda *_: _STREAM)
    set_stream = staticmethod(lambda *_: None)
    stream = staticmethod(lambda _: contextlib.nullcontext())
    get_rng_state = staticmethod(lambda *_, **__: torch.get_rng_state())
    set_rng_state = staticmethod(lambda state, *_, **__: torch.set_rng_state(state))
    manual_seed = staticmethod(torch.manual_seed)
    is_current_stream_capturing = staticmethod(lambda: False)
    memory_allocated = staticmethod(lambda *_: 0)
    max_memory_allocated = staticmethod(lambda *_: 0)
    get_device_capability = staticmethod(lambda *_: (0, 0))

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cuda, name)


def _is_cuda(device: Any) -> bool:
    return (isinstance(device, str) and device.startswith("cuda")) or getattr(device, "type", None) == "cuda"


def _on_cpu(factory: Any) -> Any:
    @functools.wraps(factory)
    def wrapped(*args: Any, **kwargs: Any) -> torch.Tensor:
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = _CPU
        kwargs.pop("pin_memory", None)
        return factory(*args, **kwargs)

    return wrapped


class _TorchOnCpu(types.ModuleType):
    """`torch` as megatron-core sees it on a CPU; everything not named here is the real thing."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.cuda = _CudaOnCpu("torch.cuda")
        for name in _FACTORIES:
            setattr(self, name, _on_cpu(getattr(torch, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


_TORCH = _TorchOnCpu()


def _adopt(module: types.ModuleType) -> None:
    if module.__dict__.get("torch") is torch:
        module.__dict__["torch"] = _TORCH


class _Finder:
    """Adopts megatron-core modules that are imported after `install()`."""

    def __init__(self) -> None:
        self._searching: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if not name.startswith(_PREFIX) or name in self._searching:
            return None
        self._searching.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searching.discard(name)
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return None
        execute = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            _adopt(module)

        spec.loader.exec_module = exec_module
        return spec


def install() -> None:
    """Install the shim once; a no-op when CUDA is available or when it is already in place."""
    global _installed
    if _installed or torch.cuda.is_available():
        return
    _installed = True
    # Merely importable, flash-linear-attention is chosen by megatron-core and transformers, and its kernels
    # die on a CPU.
    sys.modules.setdefault("fla", None)
    torch.compiler.set_stance("force_eager")
    import megatron.core  # noqa: F401

    sys.meta_path.insert(0, _Finder())
    for name, module in list(sys.modules.items()):
        if name.startswith(_PREFIX) and module is not None:
            _adopt(module)
    _back_random_states_by_cpu()
    _keep_host_copies_simple()
    _answer_megatron_in_cuda_terms()


def _back_random_states_by_cpu() -> None:
    import megatron.core.tensor_parallel.random as random

    random._get_cuda_rng_state = lambda device="cuda", clone=False, graph_safe=False: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, device=-1, graph_safe=False: torch.set_rng_state(state)

    class CpuRngStatesTracker(random.CudaRNGStatesTracker):
        @contextlib.contextmanager
        def fork(self, name: str = random._MODEL_PARALLEL_RNG_TRACKER_NAME) -> Any:
            if name not in self.states_:
                raise KeyError(f"random state {name} was never added: seed model parallelism first")
            outside = torch.get_rng_state()
            torch.set_rng_state(self.states_[name])
            try:
                yield
            finally:
                self.states_[name] = torch.get_rng_state()
                torch.set_rng_state(outside)

    random.CudaRNGStatesTracker = CpuRngStatesTracker


def _keep_host_copies_simple() -> None:
    # Megatron's own helper converts to numpy only on the way from a GPU, yet its callers count on numpy.
    import megatron.core.transformer.moe.token_dispatcher as dispatcher

    def to_host(tensor: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:
        return tensor.numpy() if as_numpy and torch.is_tensor(tensor) else tensor

    dispatcher.maybe_move_tensor_to_cpu = to_host


def _answer_megatron_in_cuda_terms() -> None:
    def asked_by_megatron() -> bool:
        return sys._getframe(2).f_globals.get("__name__", "").startswith(_PREFIX)

    tensor_type, tensor_cuda = torch.Tensor.type, torch.Tensor.cuda

    # The optimiser tells fp32 from bf16 parameters by names such as torch.cuda.FloatTensor.
    def type_(self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if dtype is None and not args and not kwargs:
            name = tensor_type(self)
            return name.replace("torch.", "torch.cuda.", 1) if self.is_cpu and asked_by_megatron() else name
        return tensor_type(self, dtype, *args, **kwargs)

    def cuda(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self if asked_by_megatron() else tensor_cuda(self, *args, **kwargs)

    torch.Tensor.type = type_
    torch.Tensor.cuda = cuda
