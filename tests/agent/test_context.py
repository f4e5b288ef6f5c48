"""The context budget: every bound worked by hand, T1's case among them."""

import pytest

from t1core.agent.context import AgentLimits, agent_time_s, summary_budget

# T1's run: a window of 86,016, answers and summaries of up to 8,192, a summary asked for above 78,016.
T1 = {
    "context_tokens": 86_016,
    "max_new_tokens": 8_192,
    "context_margin_tokens": 0,
    "summary_tokens": 8_192,
    "request_tokens": 100,
}


def test_a_trigger_outside_the_feasible_region_is_refused_with_the_arithmetic():
    # 86,016 - 8,192 - 100 - 8,192 = 69,532; a trigger at 78,016 is 8,484 too late.
    with pytest.raises(ValueError) as refusal:
        summary_budget(**T1, trigger_tokens=78_016)
    for part in ("78016", "86016", "8192", "= 69532", "8484 tokens more", "69532 or less"):
        assert part in str(refusal.value)


def test_the_latest_feasible_trigger_is_taken_and_one_more_token_is_refused():
    assert summary_budget(**T1).trigger == 69_532
    assert summary_budget(**T1, trigger_tokens=69_532).trigger == 69_532
    with pytest.raises(ValueError, match="1 tokens more"):
        summary_budget(**T1, trigger_tokens=69_533)


def test_the_longest_history_leaves_room_for_its_summary_to_the_token():
    budget = summary_budget(**T1)
    longest_history = budget.trigger + T1["max_new_tokens"]
    assert longest_history + budget.request + budget.summary == T1["context_tokens"]


def test_the_margin_moves_the_trigger():
    assert summary_budget(**T1 | {"context_margin_tokens": 32}).trigger == 69_500


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"context_tokens": 20_000},
            "no room to work in",
        ),  # 20,000 - 16,484 = 3,516, two summaries are 16,384
        ({"trigger_tokens": 16_383}, "below twice agent.summary_tokens=8192"),
    ],
)
def test_a_budget_in_which_a_summary_would_call_for_the_next_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        summary_budget(**T1 | changes)


def test_without_summaries_a_prompt_may_fill_what_an_answer_leaves():
    limits = AgentLimits(
        max_turns=1, max_new_tokens=100, context_tokens=1000, context_margin_tokens=16, timeout_s=1.0, max_wait_s=1.0,
        output_limit_bytes=1000,
    )  # fmt: skip
    assert limits.max_prompt_tokens == 884


@pytest.mark.parametrize(("asked", "given"), [(None, 60.0), (30.0, 30.0), (60.0, 60.0), (900.0, 60.0)])
def test_a_task_gets_the_time_it_asks_for_up_to_the_operators_cap(asked, given):
    assert agent_time_s(asked_s=asked, cap_s=60.0) == given
