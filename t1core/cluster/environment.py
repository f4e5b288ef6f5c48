"""What every process of a campaign finds in its environment; set before Ray or a Hugging Face library is imported."""

import os
import warnings

OFFLINE_ENV = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


def apply() -> None:
    """Set what is not set yet, and hide what these libraries announce at import about things they lack."""
    for name, value in OFFLINE_ENV.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", module=r"(megatron|torch|transformers)(\.|$)")
