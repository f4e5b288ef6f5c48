"""Settings: frozen models, TOML presets, dotted overrides, resolved JSON out. Knows neither torch nor ray."""

from t1core.config.campaign import CampaignConfig, ClusterSettings
from t1core.config.capacity import CapacitySettings
from t1core.config.evaluation import EvaluationSettings
from t1core.config.load import list_presets, load_config, preset_path
from t1core.config.model import ModelSettings, WarmStartSettings
from t1core.config.rollout import (
    AgentSettings,
    RewardSettings,
    RolloutSettings,
    SandboxSettings,
    TaskSettings,
    VerifierSettings,
)
from t1core.config.schedule import ScheduleSettings
from t1core.config.sglang import SGLangSettings
from t1core.config.train import OptimizerSettings, TrainSettings

__all__ = [
    "AgentSettings",
    "CampaignConfig",
    "CapacitySettings",
    "ClusterSettings",
    "EvaluationSettings",
    "ModelSettings",
    "OptimizerSettings",
    "RewardSettings",
    "RolloutSettings",
    "SGLangSettings",
    "SandboxSettings",
    "ScheduleSettings",
    "TaskSettings",
    "TrainSettings",
    "VerifierSettings",
    "WarmStartSettings",
    "list_presets",
    "load_config",
    "preset_path",
]
