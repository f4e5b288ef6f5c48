"""The server's command line and environment, and the flags that are refused because they break what we
record.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

Device = Literal["cpu", "cuda"]
CPU_SHIM = Path(__file__).parent / "cpu_shim"

REFUSED_FLAGS: Mapping[str, str] = {
    "--enable-hierarchical-cache": "routes of prefixes that come back from the host tier are wrong",
    "--pp-size": "each pipeline rank records only its own layers' routes, the rest stay zero",
    "--pipeline-parallel-size": "each pipeline rank records only its own layers' routes, the rest stay zero",
    "--speculative-algorithm": "EAGLE with top-k > 1 records wrong routes, NGRAM none, both in silence",
    "--dp-size": "data-parallel servers refuse weight updates; start one engine for each replica",
    "--data-parallel-size": "data-parallel servers refuse weight updates; start one engine for each replica",
    "--enable-dp-attention": "routing capture beside it is broken on forced prefill graphs",
    "--enable-eplb": "experts move between ranks and weight updates by name no longer fit",
}
"""Flag -> what goes silently wrong with it."""


def check_extra_flags(flags: Sequence[str]) -> None:
    """Raise ValueError for a flag in REFUSED_FLAGS, in either spelling (`--flag value`, `--flag=value`)."""
    for flag in flags:
        name = flag.split("=", 1)[0]
        if name in REFUSED_FLAGS:
            raise ValueError(f"sglang flag {name}: {REFUSED_FLAGS[name]}; leave it out")


def server_flags(
    model: Path,
    *,
    device: Device,
    dtype: str,
    port: int,
    weight_version: int,
    context_length: int,
    max_running_requests: int,
    max_total_tokens: int,
    tensor_parallel: int = 1,
    gpu: int = 0,
    gpu_memory_frac: float = 0.8,
    cuda_graphs: bool = True,
    extra: Sequence[str] = (),
) -> list[str]:
    """Arguments of `sglang.launch_server`. Sizes are in tokens; extra flags come last and are checked.

    `gpu` is the first that the server takes; `gpu_memory_frac` is of the memory that is free there at its start.
    """
    check_extra_flags(extra)
    flags = [
        *("--model-path", str(model), "--host", "127.0.0.1", "--port", str(port), "--dtype", dtype),
        *("--skip-tokenizer-init", "--enable-return-routed-experts", "--disable-shared-experts-fusion"),
        *("--weight-version", str(weight_version), "--context-length", str(context_length)),
        *("--max-running-requests", str(max_running_requests), "--max-total-tokens", str(max_total_tokens)),
        *("--sampling-backend", "pytorch", "--grammar-backend", "none", "--log-level", "info"),
        *("--tp-size", str(tensor_parallel)),
        # one slot a running request, one for each prefix kept, and the double buffers of the hybrid cache
        *("--max-mamba-cache-size", str(4 * max_running_requests), "--mamba-ssm-dtype", "float32"),
        # an idle scheduler spins on its sockets otherwise: 70 % of a core
        "--sleep-on-idle",
    ]
    if device == "cpu":
        flags += [
            *("--device", "cpu", "--attention-backend", "torch_native", "--disable-overlap-schedule"),
            *("--cuda-graph-backend-decode", "disabled", "--cuda-graph-backend-prefill", "disabled"),
        ]
    else:
        # The runners that capture was checked with; others may route inside a kernel, past it.
        flags += [
            *("--device", "cuda", "--attention-backend", "triton", "--moe-runner-backend", "triton"),
            *("--linear-attn-backend", "triton", "--cuda-graph-backend-prefill", "disabled"),
            *("--base-gpu-id", str(gpu), "--mem-fraction-static", str(gpu_memory_frac)),
        ]
        if cuda_graphs:
            flags += ["--cuda-graph-max-bs-decode", str(max_running_requests)]
        else:
            flags += ["--cuda-graph-backend-decode", "disabled"]
    return [*flags, *extra]


def server_environment(*, device: Device, scratch: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """The server's environment: offline, passive /health; on a CPU one thread, and a fp32 convolution state.

    `SGLANG_RETURN_ORIGINAL_LOGPROB` and our own interpreter's paths are taken out: the first would change
    which distribution log-probs describe, the others would mix two environments.
    """
    dropped = ("SGLANG_RETURN_ORIGINAL_LOGPROB", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {name: value for name, value in inherited.items() if name not in dropped}
    environment |= {
        "HF_HUB_OFFLINE": "1",
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",
        "TMPDIR": str(scratch),
    }
    if device == "cpu":
        environment |= {
            "SGLANG_USE_CPU_ENGINE": "1",
            # On CUDA the kernel that reads the convolution's state takes the model's own type alone.
            "SGLANG_MAMBA_CONV_DTYPE": "float32",
            "PYTHONPATH": os.fspath(CPU_SHIM),
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "GLOO_SOCKET_IFNAME": "lo",
        }
    return environment
