"""Settings: frozen models, TOML presets, dotted overrides, resolved JSON out. Knows neither torch nor ray."""

from t1core.config.load import list_presets, load_config, preset_path
from t1core.config.settings import (
    AgentSettings,
    CampaignConfig,
    ClusterSettings,
    EvaluationSettings,
    ModelSettings,
    OptimizerSettings,
    RewardSettings,
    RolloutSettings,
    SandboxSettings,
    TaskSettings,
    TrainSettings,
    WarmStartSettings,
)

__all__ = [
    "AgentSettings",
    "CampaignConfig",
    "ClusterSettings",
    "EvaluationSettings",
    "ModelSettings",
    "OptimizerSettings",
    "RewardSettings",
    "RolloutSettings",
    "SandboxSettings",
    "TaskSettings",
    "TrainSettings",
    "WarmStartSettings",
    "list_presets",
    "load_config",
    "preset_path",
]
