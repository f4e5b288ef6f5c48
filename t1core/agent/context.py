"""The context budget is arithmetic, checked before anything starts.

A call with prompt p fits when p + max_new_tokens + margin <= window. Where history is summarised, one more call has to
fit after the longest ordinary one: it sees that call's prompt and answer, the request for a summary, and needs room to
write it. So an ordinary prompt may be no longer than

    trigger <= window - max_new_tokens - request - summary_tokens - margin

and a prompt above the trigger is not sent: the history before it is summarised first. With the trigger above that
bound, summaries are asked for where they no longer fit, and nearly all fail.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SummaryBudget:
    """When history is summarised, in tokens: an ordinary prompt above `trigger` is not sent; a summary has `summary`
    tokens at most; asking for it takes `request` tokens."""

    trigger: int
    summary: int
    request: int


def summary_budget(
    *,
    context_tokens: int,
    max_new_tokens: int,
    context_margin_tokens: int,
    summary_tokens: int,
    request_tokens: int,
    trigger_tokens: int = 0,
) -> SummaryBudget:
    """The budget with the given trigger, or with the latest feasible one where `trigger_tokens` is 0.

    Raises ValueError, with the arithmetic, for a trigger outside the feasible region, and for a window without one.
    """
    latest = context_tokens - max_new_tokens - request_tokens - summary_tokens - context_margin_tokens
    sum_text = (
        f"context_tokens={context_tokens} - max_new_tokens={max_new_tokens} - request of {request_tokens} - "
        f"summary_tokens={summary_tokens} - context_margin_tokens={context_margin_tokens} = {latest}"
    )
    # A summary is carried into the next prompt beside the task: half the room at least is for what comes after it.
    if latest < 2 * summary_tokens:
        raise ValueError(
            f"agent.summary_tokens={summary_tokens} leaves no room to work in: a prompt may have {sum_text} tokens, "
            f"and a summary that is carried on needs twice its length; raise agent.context_tokens or lower "
            "agent.summary_tokens or agent.max_new_tokens"
        )
    if trigger_tokens > latest:
        raise ValueError(
            f"agent.summarize_above_tokens={trigger_tokens} lies outside the feasible region: {sum_text}, so a summary "
            f"asked for at the trigger needs {trigger_tokens - latest} tokens more than the window has; set "
            f"agent.summarize_above_tokens to {latest} or less, or to 0 for the latest feasible trigger"
        )
    if 0 < trigger_tokens < 2 * summary_tokens:
        raise ValueError(
            f"agent.summarize_above_tokens={trigger_tokens} is below twice agent.summary_tokens={summary_tokens}: the "
            "prompt after a summary would be above the trigger again; raise it or lower agent.summary_tokens"
        )
    return SummaryBudget(trigger_tokens or latest, summary_tokens, request_tokens)


@dataclass(frozen=True)
class AgentLimits:
    """What one trial may use. Times in seconds. `max_sampled_tokens` bounds all that a trial samples, None: nothing
    does. Without a `summary` budget a trial whose prompt no longer fits ends. `waits_until_idle`: a turn ends when the
    terminal is idle, whatever time the model asked for."""

    max_turns: int
    max_new_tokens: int
    context_tokens: int
    context_margin_tokens: int
    timeout_s: float
    max_wait_s: float
    output_limit_bytes: int
    max_sampled_tokens: int | None = None
    summary: SummaryBudget | None = None
    waits_until_idle: bool = False

    def __post_init__(self) -> None:
        if self.max_prompt_tokens < 1:
            raise ValueError(
                f"context_tokens={self.context_tokens} leaves no room for a prompt beside max_new_tokens="
                f"{self.max_new_tokens} and context_margin_tokens={self.context_margin_tokens}; raise context_tokens"
            )

    @property
    def max_prompt_tokens(self) -> int:
        """Longest prompt of an ordinary call: a longer one is never cut in silence. It leads to a summary, or ends the
        trial."""
        if self.summary is not None:
            return self.summary.trigger
        return self.context_tokens - self.max_new_tokens - self.context_margin_tokens


def agent_time_s(*, asked_s: float | None, cap_s: float) -> float:
    """Wall clock of a trial's agent loop: what its task asks for, never more than the operator's cap, never less for
    any other reason."""
    return cap_s if asked_s is None else min(asked_s, cap_s)


def capped_line(what: str, *, asked_s: Sequence[float | None], cap_s: float, setting: str) -> str | None:
    """What to say when an operator's cap takes time from tasks that ask for more; None where it takes none."""
    capped = [seconds for seconds in asked_s if seconds is not None and seconds > cap_s]
    if not capped:
        return None
    return (
        f"{len(capped)} of {len(asked_s)} tasks ask for more {what} time ({min(capped):g} to {max(capped):g} s) than "
        f"{setting}={cap_s:g} allows: they get {cap_s:g} s"
    )
