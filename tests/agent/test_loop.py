"""The agent loop's clock: who is to blame when time runs out, and how long a batch of commands may take."""

import asyncio
import time

import numpy as np
import pytest
from scripted import ScriptedModel, ScriptedTerminal, act, run_scripted

from t1core.agent.context import AgentLimits
from t1core.agent.loop import AgentInput, AgentRecord, GenerationStalled, run_agent
from t1core.agent.prompt import WORDINGS
from t1core.agent.protocol import PROTOCOLS
from t1core.agent.response import Command, render_response
from t1core.agent.tokenizer import train_tokenizer
from t1core.records import Generation, SamplingParams, StopReason
from t1core.rollout.faults import SilentEngine


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return train_tokenizer(["ls a few words"], tmp_path_factory.mktemp("tokenizer"), vocab_size=300)


class Terminal:
    """Each command takes as long as it may wait."""

    def __init__(self):
        self.waits = []

    async def send_keys(self, keys, *, max_wait_s):
        self.waits.append(max_wait_s)
        await asyncio.sleep(max_wait_s)
        return False

    async def colours(self):
        return "\x1b[32m$\x1b[39m"

    async def incremental(self):
        return "screen"


def answering(tokenizer, text, *, after_s=0.0):
    async def generate(input_ids, **request):
        await asyncio.sleep(after_s)
        ids = np.append(tokenizer.encode(text), np.int32(tokenizer.im_end)).astype(np.int32)
        return Generation(
            output_ids=ids,
            output_logprobs=np.zeros(len(ids), np.float32),
            finish_reason="stop",
            weight_version=0,
            output_versions=np.zeros(len(ids), np.int32),
            routed_experts=None,
            routed_experts_start=0,
            cached_tokens=0,
        )

    return generate


def run(tokenizer, generate, *, timeout_s=5.0, max_wait_s=2.0, terminal=None, max_turns=1):
    record = AgentRecord()
    limits = AgentLimits(
        max_turns=max_turns, max_new_tokens=64, context_tokens=100_000, context_margin_tokens=0, timeout_s=timeout_s,
        max_wait_s=max_wait_s, output_limit_bytes=1000,
    )  # fmt: skip
    asyncio.run(
        run_agent(
            record,
            AgentInput(
                trial_id="t",
                instruction="do",
                terminal=terminal or Terminal(),
                generate=generate,
                tokenizer=tokenizer,
                protocol=PROTOCOLS["json"],
                wording=WORDINGS["compact"],
                limits=limits,
                sampling=SamplingParams(max_new_tokens=64),
            ),
        )
    )
    return record


def commands(count, duration_s):
    return render_response((Command("x\n", duration_s),) * count, analysis="a", plan="p")


def test_time_that_ran_out_in_a_silent_engine_is_not_the_models_doing(tokenizer):
    with pytest.raises(GenerationStalled, match="t/0 had no answer"):
        run(tokenizer, SilentEngine(None).generate, timeout_s=0.3)


def test_time_that_ran_out_over_many_calls_is_the_models_doing(tokenizer):
    generate = answering(tokenizer, commands(1, 0.0), after_s=0.1)
    record = run(tokenizer, generate, timeout_s=1.0, max_turns=1000)
    assert record.stop_reason is StopReason.AGENT_TIMEOUT and len(record.turns) > 1


def test_time_that_ran_out_at_the_terminal_is_the_models_doing(tokenizer):
    record = run(tokenizer, answering(tokenizer, commands(1, 30.0)), timeout_s=0.3, max_wait_s=30.0)
    assert record.stop_reason is StopReason.AGENT_TIMEOUT


def test_a_timeout_of_somebody_else_passes_through(tokenizer):
    async def generate(input_ids, **request):
        raise TimeoutError("a socket's")

    with pytest.raises(TimeoutError, match="a socket's"):
        run(tokenizer, generate)


def test_the_wait_is_capped_for_the_whole_batch_of_commands(tokenizer):
    terminal, began = Terminal(), time.monotonic()
    record = run(tokenizer, answering(tokenizer, commands(5, 0.4)), max_wait_s=0.6, terminal=terminal)
    assert time.monotonic() - began < 1.5 and record.stop_reason is StopReason.MAX_TURNS
    assert len(terminal.waits) == 5, "every command is still typed"
    assert terminal.waits[0] == 0.4 and terminal.waits[1] < 0.21 and max(terminal.waits[2:]) < 0.05


def test_a_turn_keeps_the_pane_in_colour_and_the_model_is_not_shown_it(tokenizer):
    record = run(tokenizer, answering(tokenizer, commands(1, 0.0)), max_turns=2)
    assert [turn.colours for turn in record.turns] == ["\x1b[32m$\x1b[39m"] * 2
    assert "\x1b" not in tokenizer.decode(record.calls[1].prompt_token_ids)


def test_completion_is_claimed_twice_in_a_row_and_an_unreadable_answer_between_is_no_retraction(tokenizer):
    claim, retract, noise = act("", done=True), act("ls"), ("no answer", "stop")
    for texts, stop, turns in (
        ([claim, claim], StopReason.COMPLETED, 2),
        ([claim, retract, claim, claim], StopReason.COMPLETED, 4),
        ([claim, noise, claim], StopReason.COMPLETED, 3),
        ([claim, retract, claim], StopReason.MAX_TURNS, 3),
    ):
        record = run_scripted(ScriptedModel(tokenizer, *texts), ScriptedTerminal("$"), max_turns=len(texts))
        assert (record.stop_reason, len(record.turns)) == (stop, turns)
