"""A configuration's agent settings as the limits of its trials, counted with the model's own tokenizer."""

from t1core.agent.context import AgentLimits, SummaryBudget, summary_budget
from t1core.agent.prompt import Wording
from t1core.agent.tokenizer import ChatTokenizer
from t1core.config import AgentSettings


def agent_limits(agent: AgentSettings, *, tokenizer: ChatTokenizer, wording: Wording) -> AgentLimits:
    """The limits, time being the operator's cap. ValueError for a context budget that does not add up."""
    return AgentLimits(
        max_turns=agent.max_turns,
        max_new_tokens=agent.max_new_tokens,
        context_tokens=agent.context_tokens,
        context_margin_tokens=agent.context_margin_tokens,
        timeout_s=agent.agent_timeout_s,
        max_wait_s=agent.max_wait_s,
        output_limit_bytes=agent.output_limit_bytes,
        max_sampled_tokens=agent.max_sampled_tokens or None,
        summary=_summary(agent, tokenizer=tokenizer, wording=wording),
    )


def _summary(agent: AgentSettings, *, tokenizer: ChatTokenizer, wording: Wording) -> SummaryBudget | None:
    if not agent.summary_tokens:
        return None
    return summary_budget(
        context_tokens=agent.context_tokens,
        max_new_tokens=agent.max_new_tokens,
        context_margin_tokens=agent.context_margin_tokens,
        summary_tokens=agent.summary_tokens,
        request_tokens=len(tokenizer.reply(wording.summary_request, closed=False)),
        trigger_tokens=agent.summarize_above_tokens,
    )
