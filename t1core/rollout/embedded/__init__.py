"""The embedded engine: transformers' own Qwen3.5-MoE forward, with continuous batching, in this process."""

from t1core.rollout.embedded.engine import EmbeddedEngine

__all__ = ["EmbeddedEngine"]
