"""How a policy is evaluated: on what, how often, within which limits, and which number is reported."""

from typing import Literal, Self

from pydantic import Field, model_validator

from t1core.config.rollout import AgentSettings
from t1core.config.section import Settings


class EvaluationSettings(Settings):
    every: int = Field(0, ge=0)
    """Evaluate every so many steps; 0: only before the first step and after the last."""
    tasks_per_split: int = Field(48, ge=1)
    """Held-out tasks evaluated of each split (`heldout`, `heldout_family`)."""
    attempts: int = Field(1, ge=1)
    """Trials of each task."""
    protocol: str = "held-out"
    """Name of the way of scoring, kept with every score."""
    headline: Literal["resolved", "dense"] = "resolved"
    """The number that is reported first: tasks resolved (pass@1), or mean dense reward."""
    temperature: float = Field(1.0, ge=0)
    """Sampling temperature of evaluation."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Smallest set of tokens of this probability that is sampled from."""
    top_k: int = -1
    """Most probable tokens that are sampled from; -1: all."""
    max_turns: int = Field(0, ge=0)
    """Model calls a trial; 0, here and below: as in training."""
    max_new_tokens: int = Field(0, ge=0)
    """Tokens a model call may sample."""
    context_tokens: int = Field(0, ge=0)
    """Window of prompt plus completion."""
    agent_timeout_s: float = Field(0.0, ge=0)
    """Cap on the wall clock of a trial's agent loop."""
    max_wait_s: float = Field(0.0, ge=0)
    """Cap on the wait for one command batch."""
    output_limit_bytes: int = Field(0, ge=0)
    """Bytes that an observation keeps."""

    @model_validator(mode="after")
    def check(self) -> Self:
        if self.top_k == 0 or self.top_k < -1:
            raise ValueError(
                f"top_k={self.top_k}: give the number of tokens sampled from, or -1 for all of them"
            )
        return self

    def agent(self, training: AgentSettings) -> AgentSettings:
        """The agent's settings in evaluation: those of training, but for the limits set here."""
        names = (
            *("max_turns", "max_new_tokens", "context_tokens"),
            *("agent_timeout_s", "max_wait_s", "output_limit_bytes"),
        )
        own = {name: value for name in names if (value := getattr(self, name))}
        return AgentSettings.model_validate(training.model_dump() | own)
