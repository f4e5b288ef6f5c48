"""The context budget is arithmetic: prompt + new tokens + margin must fit the window, and that is checked first."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AgentLimits:
    """What one trial may use. Times in seconds."""

    max_turns: int
    max_new_tokens: int
    context_tokens: int
    context_margin_tokens: int
    timeout_s: float
    max_wait_s: float
    output_limit_bytes: int

    def __post_init__(self) -> None:
        if self.max_prompt_tokens < 1:
            raise ValueError(
                f"context_tokens={self.context_tokens} leaves no room for a prompt beside max_new_tokens="
                f"{self.max_new_tokens} and context_margin_tokens={self.context_margin_tokens}; raise context_tokens"
            )

    @property
    def max_prompt_tokens(self) -> int:
        """Longest prompt a call may have: a longer one ends the trial instead of being cut in silence."""
        return self.context_tokens - self.max_new_tokens - self.context_margin_tokens
