"""A summarised trial on a real engine: routes, ids and versions of both its streams go into training rows."""

import asyncio

import numpy as np
import pytest

from t1core.agent.context import AgentLimits, SummaryBudget
from t1core.agent.loop import AgentInput, AgentRecord, run_agent
from t1core.agent.prompt import WORDINGS
from t1core.agent.protocol import PROTOCOLS
from t1core.agent.tokenizer import train_tokenizer
from t1core.model.checkpoint import init_hf
from t1core.model.shape import ModelShape
from t1core.records import PrefixRelation, RowStatus, SamplingParams
from t1core.rollout.embedded import EmbeddedEngine
from t1core.routing import validate
from t1core.tito import assemble, audit
from tests.agent.scripted import ScriptedTerminal


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    directory = tmp_path_factory.mktemp("policy")
    train_tokenizer(["a few words"], directory, vocab_size=300)
    init_hf(ModelShape.nano(vocab_size=300), directory, seed=0)
    return directory


def test_a_summarised_trial_is_trained_in_two_rows_with_all_their_routes(checkpoint):
    from t1core.agent.tokenizer import ChatTokenizer

    tokenizer = ChatTokenizer.load(checkpoint)
    request = len(tokenizer.reply(WORDINGS["compact"].summary_request, closed=False))
    record = AgentRecord()

    async def run():
        engine = EmbeddedEngine(checkpoint, dtype="float32", max_context=512)
        try:
            await run_agent(record, AgentInput(                trial_id="t",
                instruction="do",
                terminal=ScriptedTerminal("root"),
                generate=engine.generate,
                tokenizer=tokenizer,
                protocol=PROTOCOLS["json"],
                wording=WORDINGS["compact"],
                limits=AgentLimits(
                    max_turns=6, max_new_tokens=24, context_tokens=512, context_margin_tokens=0, timeout_s=300.0,
                    max_wait_s=1.0, output_limit_bytes=200,
                    summary=SummaryBudget(trigger=200, summary=16, request=request),
                ),
                sampling=SamplingParams(max_new_tokens=24, stop_token_ids=tokenizer.stop_token_ids, sampling_seed=1),
            ))  # fmt: skip
        finally:
            await engine.close()

    asyncio.run(run())
    num_summaries = sum(turn.is_summary for turn in record.turns)
    assert num_summaries >= 1, "the trial was meant to outgrow its window"
    rows = assemble(record.calls, reward=0.1, status=RowStatus.TRUNCATED, text_of=tokenizer.decode)
    assert len(rows) == 1 + num_summaries
    for row in rows:
        assert len(row.rollout_routed_experts) == len(row.tokens) - 1
        validate(row.rollout_routed_experts, num_tokens=len(row.tokens), num_experts=8)
    relations = [span.relation for row in rows for span in row.spans]
    assert relations.count(PrefixRelation.SPLIT) == num_summaries
    assert set(relations) <= {PrefixRelation.STRICT, PrefixRelation.SPLIT}
    found = audit(record.calls, rows)
    assert not found.problems and found.drift_frac == 0.0 and found.delivered_token_frac == 1.0
    trained = np.concatenate([row.tokens[row.loss_mask.astype(bool)] for row in rows])
    assert np.array_equal(trained, np.concatenate([call.completion_token_ids for call in record.calls]))
