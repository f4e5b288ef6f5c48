"""The `sglang` engine kind: real SGLang, in a process and an environment of its own."""

from typing import Literal

from pydantic import Field

from t1core.config.section import Settings


class SGLangSettings(Settings):
    python: str = ""
    """Python of the environment that SGLang is installed in. Empty: the variable T1CORE_SGLANG_PYTHON, else
    `.venv-sglang/bin/python`, which `setup.sh sglang` or `setup.sh sglang-cpu` makes."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where it computes. auto: on a GPU where torch sees one."""
    gpu: int = Field(0, ge=0)
    """First GPU it takes, counted among those that are visible. Trainer ranks take theirs from 0 up."""
    tensor_parallel: int = Field(1, ge=1)
    """GPUs that share one copy of the model. The check of what the server stores knows 1 alone."""
    gpu_memory_frac: float = Field(0.8, gt=0, lt=1)
    """Share of the GPU memory that is free at its start which it may take, weights, caches and graphs together."""
    max_total_tokens: int = Field(0, ge=0)
    """Tokens of its cache, over live requests and kept prefixes. 0: two full contexts a live trial."""
    cuda_graphs: bool = True
    """On a GPU, capture decoding steps as CUDA graphs: a slower start, faster steps."""
    transport: Literal["tensor", "disk", "gloo"] = "tensor"
    """How weights reach it: in the body of a request, through a file, or broadcast in a process group."""
    flags: tuple[str, ...] = ()
    """More flags of `sglang.launch_server`. Those that would spoil what is recorded are refused."""
    start_deadline_s: float = Field(600.0, gt=0)
    """Time it may take to come up. Kernels that it compiles on first use are compiled in it, too."""
