"""Starting the kind of engine that a campaign asks for, in the process that hosts it."""

import asyncio
import importlib
import inspect
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from t1core.config import CampaignConfig
from t1core.rollout.engine import Engine, EngineRefused
from t1core.rollout.sglang.version import SGLangVersion

SGLANG_PYTHON = "T1CORE_SGLANG_PYTHON"
OWN_ENVIRONMENT = Path(".venv-sglang/bin/python")


async def start_engine(config: CampaignConfig, *, model: Path, name: str, log_file: Path) -> Engine:
    """The engine of `config.rollout`, holding the checkpoint in `model` as version 0.

    `log_file` is where an engine that is a process of its own says what it does. Raises EngineRefused for settings that
    it can't serve and EngineDead when it does not come up.
    """
    rollout = config.rollout
    if ":" in rollout.engine:
        made = own_engine(rollout.engine)(
            model,
            dtype=rollout.engine_dtype,
            max_running=rollout.max_live_trials * config.cluster.num_hosts,
            max_context=config.longest_context_tokens,
            log_file=log_file,
        )
        engine = await made if inspect.isawaitable(made) else made
        if not isinstance(engine, Engine):
            raise EngineRefused(
                f"rollout.engine={rollout.engine!r} made a {type(engine).__name__}, which lacks methods of "
                "t1core.rollout.engine.Engine: implement them all"
            )
        return engine
    if rollout.engine == "embedded":
        from t1core.rollout.embedded import EmbeddedEngine

        return EmbeddedEngine(
            model,
            dtype=rollout.engine_dtype,
            weight_version=0,
            max_running=rollout.max_live_trials * config.cluster.num_hosts,
            max_context=config.longest_context_tokens,
            batch_invariant=rollout.deterministic,
        )
    from t1core.rollout.sglang import SGLangEngine
    from t1core.rollout.sglang.server import check_environment

    chosen = rollout.sglang
    python, device = sglang_python(chosen.python), chosen_device(chosen.device)
    try:
        check_engine(config)
        check_tail(config, await asyncio.to_thread(check_environment, python, device=device))
    except ValueError as error:
        raise EngineRefused(str(error)) from error
    return await SGLangEngine.start(
        model,
        python=python,
        scratch=Path(tempfile.mkdtemp(prefix="t1-sglang-")),
        log_file=log_file,
        device=device,
        dtype=rollout.engine_dtype,
        max_running=rollout.max_live_trials * config.cluster.num_hosts,
        max_context=config.longest_context_tokens,
        max_total_tokens=cache_tokens(config),
        gpu=chosen.gpu,
        gpu_memory_frac=chosen.gpu_memory_frac,
        cuda_graphs=chosen.cuda_graphs,
        transport=chosen.transport,
        extra_flags=chosen.flags,
        start_deadline_s=chosen.start_deadline_s,
        control_deadline_s=config.cluster.control_deadline_s,
        name=name,
    )


def own_engine(name: str) -> Callable[..., Engine | Awaitable[Engine]]:
    """The function that `module:function` names. ValueError where there is none."""
    module, _, function = name.partition(":")
    try:
        make = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"rollout.engine={name!r}: {error}; put the module's folder on PYTHONPATH, where every process finds it"
        ) from None
    if not callable(make):
        raise ValueError(f"rollout.engine={name!r}: it is no function")
    return make


def check_engine(config: CampaignConfig) -> None:
    """ValueError for settings that no SGLang server can serve, whatever its version, and for an engine of one's own
    that is not there."""
    if ":" in config.rollout.engine:
        own_engine(config.rollout.engine)
    if config.rollout.engine != "sglang":
        return
    chosen = config.rollout.sglang
    if chosen.tensor_parallel != 1:
        raise ValueError(
            f"rollout.sglang.tensor_parallel={chosen.tensor_parallel}: what a server of several GPUs stores can't be "
            "checked yet, and weights are never published unchecked; set it to 1"
        )
    if cache_tokens(config) <= config.longest_context_tokens:
        raise ValueError(
            f"rollout.sglang.max_total_tokens={chosen.max_total_tokens} does not hold one request of "
            f"{config.longest_context_tokens} tokens and one more: raise it, or set it to 0"
        )


def check_tail(config: CampaignConfig, version: SGLangVersion) -> None:
    """ValueError where trials live on over an update and the server can't say which weights sampled which token."""
    rollout = config.rollout
    if rollout.tail == "continue" and not version.has_version_spans:
        raise ValueError(
            f"rollout.tail='continue' (mode={rollout.mode!r}) keeps requests alive over a weight update, and SGLang "
            f"{version} does not say which token came from which weights: use tail='cut' or 'wait', or install 0.5.19 "
            "or newer under rollout.sglang.python"
        )


def sglang_python(setting: str) -> Path:
    """The interpreter that `rollout.sglang.python` means. Not resolved: a virtual environment's is a link."""
    return Path(os.path.abspath(setting or os.environ.get(SGLANG_PYTHON) or OWN_ENVIRONMENT))


def chosen_device(setting: str) -> str:
    """`auto` is a GPU where torch sees one."""
    if setting != "auto":
        return setting
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def cache_tokens(config: CampaignConfig) -> int:
    """Tokens of the SGLang server's cache: a live trial's context, and as much for the prefixes it comes back to."""
    return (
        config.rollout.sglang.max_total_tokens
        or 2 * config.rollout.max_live_trials * config.cluster.num_hosts * config.longest_context_tokens
    )
