"""Foreign harnesses over HTTP, with the ids written out: what reaches the engine and what becomes of the captures.

1 and 2 open and close a message, 3 is "user" and 4 "assistant" with their newlines, 5 a newline.
"""

import asyncio

import pytest

from tests.rollout.chat_by_hand import chatting, written_routes

GO = {"role": "user", "content": "go"}
LS = {"role": "user", "content": "ls"}
GO_IDS = [1, 3, 10, 2, 5, 1, 4]
LS_IDS = [5, 1, 3, 11, 2, 5, 1, 4]  # behind a closed message
TOOLS = [{"type": "function", "function": {"name": "run", "parameters": {}}}]


def run(test):
    """Run an async test that takes pytest's arguments."""

    def body(tmp_path):
        asyncio.run(asyncio.wait_for(test(tmp_path), timeout=60))

    body.__name__ = test.__name__
    return body


@run
async def test_a_template_that_prunes_reasoning_does_not_touch_the_sampled_ids(tmp_path):
    async with chatting(tmp_path) as (engine, client):
        engine.says(17, 19, 18, 12, 2)  # <think>hm</think>ok
        answer = await client.chat([GO])
        assert answer == {"role": "assistant", "content": "ok", "reasoning_content": "hm"}
        engine.says(12, 2)
        await client.chat(
            [GO, {"role": "assistant", "content": "ok"}, LS]
        )  # the client leaves the reasoning out
        assert engine.prompts == [GO_IDS, [*GO_IDS, 17, 19, 18, 12, 2, *LS_IDS]]
        assert engine.starts == [0, 11]
        ended = await client.end()
        assert ended.rows == [[*GO_IDS, 17, 19, 18, 12, 2, *LS_IDS, 12, 2]]
        assert ended.masks == [[0] * 7 + [1] * 5 + [0] * 8 + [1, 1]]
        assert ended.relations == [["strict", "strict"]]
        assert ended.routes == [written_routes(0, 21).tolist()]
        assert engine.released == ["s"]


@run
async def test_a_rendered_history_without_its_reasoning_is_split(tmp_path):
    async with chatting(tmp_path, history="rendered") as (engine, client):
        engine.says(17, 19, 18, 12, 2)
        answer = await client.chat([GO])
        engine.says(12, 2)
        await client.chat([GO, answer, LS])
        assert engine.prompts[1] == [*GO_IDS, 12, 2, *LS_IDS]
        ended = await client.end()
        assert ended.rows == [[*GO_IDS, 17, 19, 18, 12, 2], [*GO_IDS, 12, 2, *LS_IDS, 12, 2]]
        assert ended.masks == [[0] * 7 + [1] * 5, [0] * 17 + [1, 1]]
        assert ended.relations == [["strict"], ["split"]]


@run
async def test_consecutive_tool_messages_become_the_one_message_that_the_template_makes_of_them(tmp_path):
    async with chatting(tmp_path) as (engine, client):
        engine.says(22, 24, 23, 2)
        answer = await client.chat([GO], tools=TOOLS)
        (call,) = answer["tool_calls"]
        assert call["function"] == {"name": "run", "arguments": '{"a": 1}'} and answer["content"] == ""
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": content} for content in ("one", "two")
        ]
        engine.says(12, 2)
        await client.chat([GO, answer, *results], tools=TOOLS)
        told = [5, 1, 3, 20, 26, 21, 20, 27, 21, 2, 5, 1, 4]
        assert engine.prompts[1] == [*GO_IDS, 22, 24, 23, 2, *told]
        ended = await client.end()
        assert ended.rows == [[*GO_IDS, 22, 24, 23, 2, *told, 12, 2]]
        assert ended.relations == [["strict", "strict"]]


@pytest.mark.parametrize("history", ["tokens", "rendered"])
def test_a_tool_call_that_was_serialised_anew(tmp_path, history):
    async def body():
        async with chatting(tmp_path, history=history) as (engine, client):
            engine.says(22, 25, 23, 2)  # without blanks, as sampled
            answer = await client.chat([GO], tools=TOOLS)
            answer["tool_calls"][0]["function"]["arguments"] = '{ "a" : 1 }'  # the client's own way
            result = {"role": "tool", "tool_call_id": answer["tool_calls"][0]["id"], "content": "one"}
            engine.says(12, 2)
            await client.chat([GO, answer, result], tools=TOOLS)
            told = [5, 1, 3, 20, 26, 21, 2, 5, 1, 4]
            sampled, rendered = [22, 25, 23, 2], [22, 24, 23, 2]
            ended = await client.end()
            if history == "tokens":
                assert engine.prompts[1] == GO_IDS + sampled + told
                assert ended.rows == [GO_IDS + sampled + told + [12, 2]]
                assert ended.relations == [["strict", "strict"]]
            else:
                assert engine.prompts[1] == GO_IDS + rendered + told
                assert ended.rows == [GO_IDS + sampled, GO_IDS + rendered + told + [12, 2]]
                assert ended.relations == [["strict"], ["split"]]

    asyncio.run(body())


@pytest.mark.parametrize("history", ["tokens", "rendered"])
def test_a_client_that_normalises_blanks(tmp_path, history):
    async def body():
        async with chatting(tmp_path, history=history) as (engine, client):
            engine.says(28, 5, 2)  # " ok\n"
            answer = await client.chat([GO])
            assert answer["content"] == " ok\n"
            engine.says(12, 2)
            await client.chat([GO, {"role": "assistant", "content": "ok"}, LS])
            ended = await client.end()
            if history == "tokens":
                assert ended.rows == [[*GO_IDS, 28, 5, 2, *LS_IDS, 12, 2]]
                assert ended.relations == [["strict", "strict"]]
            else:
                assert ended.rows == [[*GO_IDS, 28, 5, 2], [*GO_IDS, 12, 2, *LS_IDS, 12, 2]]
                assert ended.relations == [["strict"], ["split"]]

    asyncio.run(body())


@run
async def test_a_rollback_to_the_empty_history_begins_a_row_of_its_own(tmp_path):
    async with chatting(tmp_path) as (engine, client):
        engine.says(12, 2)
        answer = await client.chat([GO])
        engine.says(11, 2)
        await client.chat([GO, answer, LS])
        engine.says(26, 2)
        again = await client.chat([GO])
        engine.says(27, 2)
        await client.chat([GO, again, LS])
        assert engine.prompts == [GO_IDS, [*GO_IDS, 12, 2, *LS_IDS], GO_IDS, [*GO_IDS, 26, 2, *LS_IDS]]
        ended = await client.end()
        assert ended.rows == [
            [*GO_IDS, 12, 2, *LS_IDS, 11, 2],
            [*GO_IDS, 26, 2, *LS_IDS, 27, 2],
        ]
        assert ended.relations == [["strict", "strict"], ["split", "strict"]]
        assert ended.told["num_delivered"] == ended.told["num_sampled"] == 8


@run
async def test_a_rollback_by_one_turn_goes_on_from_the_ids_of_what_is_left(tmp_path):
    async with chatting(tmp_path) as (engine, client):
        engine.says(13, 14, 2)
        answer = await client.chat([GO])
        engine.says(11, 2)
        await client.chat([GO, answer, LS])
        engine.says(26, 2)
        await client.chat([GO, answer, GO])
        assert engine.prompts[2] == [*GO_IDS, 13, 14, 2, 5, 1, 3, 10, 2, 5, 1, 4]
        ended = await client.end()
        assert ended.masks[1] == [0] * 18 + [1, 1]  # the shared turn is trained in the first row only


@run
async def test_every_answer_of_a_long_conversation_keeps_its_ids(tmp_path):
    async with chatting(tmp_path) as (engine, client):
        messages = [GO]
        for _ in range(3):
            engine.says(13, 14, 2)
            messages += [await client.chat(messages), LS]
        assert engine.prompts[2] == [*GO_IDS, 13, 14, 2, *LS_IDS, 13, 14, 2, *LS_IDS]
        ended = await client.end()
        assert ended.relations == [["strict", "strict", "strict"]]


@run
async def test_a_rendered_history_in_other_tokens_is_told_by_its_offsets(tmp_path):
    async with chatting(tmp_path, history="rendered") as (engine, client):
        engine.says(13, 14, 2)  # "ec" "ho hi"
        answer = await client.chat([GO])
        assert answer["content"] == "echo hi"
        engine.says(12, 2)
        await client.chat([GO, answer, LS])
        assert engine.prompts[1] == [*GO_IDS, 15, 16, 2, *LS_IDS]  # "echo" " hi"
        ended = await client.end()
        assert ended.rows == [[*GO_IDS, 13, 14, 2, *LS_IDS, 12, 2]]
        assert ended.relations == [["strict", "retokenized"]]


@run
async def test_an_answer_cut_by_length_is_closed_by_context(tmp_path):
    async with chatting(tmp_path) as (engine, client):
        engine.says(12, finish_reason="length")
        answer = await client.chat([GO])
        engine.says(12, 2)
        await client.chat([GO, answer, LS])
        ended = await client.end()
        assert ended.rows == [[*GO_IDS, 12, 2, *LS_IDS, 12, 2]]
        assert ended.masks == [[0] * 7 + [1] + [0] * 9 + [1, 1]]


@run
async def test_of_two_answers_the_one_gone_on_from_is_trained_and_an_open_question_is_told(tmp_path):
    async with chatting(tmp_path) as (engine, client):
        engine.says(12, 2)
        engine.says(11, 2)
        await client.chat([GO])
        second = await client.chat([GO])
        status, told = await client.post("/sessions/s/end", {"reward": 1})
        assert status == 409 and told["error"]["code"] == "UnresolvedRetry"
        engine.says(26, 2)
        await client.chat([GO, second, LS])
        ended = await client.end()
        assert ended.rows == [[*GO_IDS, 11, 2, *LS_IDS, 26, 2]]
        assert (ended.told["num_delivered"], ended.told["num_sampled"]) == (4, 6)


@run
async def test_of_two_answers_with_one_text_the_later_ones_ids_go_on(tmp_path):
    async with chatting(tmp_path) as (engine, client):
        engine.says(13, 14, 2)
        engine.says(15, 16, 2)
        first, second = await client.chat([GO]), await client.chat([GO])
        assert first["content"] == second["content"] == "echo hi"
        engine.says(12, 2)
        await client.chat([GO, first, LS])
        assert engine.prompts[2] == [*GO_IDS, 15, 16, 2, *LS_IDS]
        ended = await client.end()
        assert ended.rows == [[*GO_IDS, 15, 16, 2, *LS_IDS, 12, 2]]


@run
async def test_other_tools_are_another_history(tmp_path):
    async with chatting(tmp_path) as (engine, client):
        engine.says(13, 14, 2)
        answer = await client.chat([GO])
        engine.says(12, 2)
        await client.chat([GO, answer, LS], tools=TOOLS)
        assert engine.prompts[1] == [
            *GO_IDS,
            15,
            16,
            2,
            *LS_IDS,
        ]  # rendered anew: a template tells the tools first
        assert engine.starts == [0, 0]


@run
async def test_an_aborted_answer_is_asked_for_again(tmp_path):
    async with chatting(tmp_path) as (engine, client):
        engine.says(12, finish_reason="abort")
        status, told = await client.post("/sessions/s/v1/chat/completions", {"messages": [GO]})
        assert status == 503 and told["error"]["code"] == "aborted"
        engine.says(11, 2)
        await client.chat([GO])
        ended = await client.end()
        assert ended.rows == [[*GO_IDS, 11, 2]] and ended.told["num_calls"] == 2


@run
async def test_a_client_that_hangs_up_ends_its_call_and_leaves_no_capture(tmp_path):
    async with chatting(tmp_path) as (engine, client):
        asking = asyncio.create_task(client.chat([GO]))
        await engine.was_asked.wait()
        asking.cancel()
        await engine.was_cancelled.wait()
        engine.says(11, 2)
        await client.chat([GO])
        ended = await client.end()
        assert ended.rows == [[*GO_IDS, 11, 2]] and ended.told["num_calls"] == 1


@run
async def test_text_that_looks_like_a_special_token_closes_nothing(tmp_path):
    async with chatting(tmp_path) as (engine, client):
        engine.says(12, 2)
        answer = await client.chat([{"role": "user", "content": "<|im_end|>"}])
        engine.says(12, 2)
        await client.chat(
            [{"role": "user", "content": "<|im_end|>"}, answer, {"role": "user", "content": "<|im_start|>"}]
        )
        assert engine.prompts[0].count(2) == 1 and engine.prompts[0].count(1) == 2
        assert engine.prompts[1].count(2) == 3 and engine.prompts[1].count(1) == 4


@run
async def test_a_reply_carries_ids_and_log_probs_where_harbor_looks_for_them(tmp_path):
    async with chatting(tmp_path) as (engine, client):
        engine.says(12, 2)
        body = {"messages": [GO], "logprobs": True, "return_token_ids": True, "max_tokens": 5}
        status, reply = await client.post("/v1/chat/completions", body, **{"X-Session-ID": "s"})
        assert status == 200 and reply["prompt_token_ids"] == GO_IDS
        (choice,) = reply["choices"]
        assert choice["token_ids"] == [12, 2] and choice["finish_reason"] == "stop"
        shown = [(one["token"], round(one["logprob"], 4)) for one in choice["logprobs"]["content"]]
        assert shown == [("ok", -0.12), ("<|im_end|>", -0.02)]
        assert reply["usage"]["total_tokens"] == 9


@run
async def test_what_is_not_served_is_refused_with_the_way_out(tmp_path):
    async with chatting(tmp_path) as (engine, client):
        chat, many = "/sessions/s/v1/chat/completions", {"role": "user", "content": "go" * 400}
        ok = {"role": "assistant", "content": "ok"}
        for path, body, told in (
            ("/v1/chat/completions", {"messages": [GO]}, "X-Session-ID"),
            (chat, {"messages": []}, "at least one message"),
            (chat, {"messages": [GO], "stream": True}, "stream"),
            (chat, {"messages": [GO], "temperature": 0.7}, "temperature=0.7"),
            (chat, {"messages": [GO], "max_tokens": "20"}, "max_tokens='20'"),
            (chat, {"messages": [GO, ok]}, "last message is the assistant's"),
            (chat, {"messages": [many]}, "maximum context length is 400"),
            (chat, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "text only"),
            ("/sessions/s/end", {}, "reward is missing"),
        ):
            status, reply = await client.post(path, body)
            assert status == 400 and told in reply["error"]["message"], reply
        assert engine.prompts == []
    async with chatting(None, any_sampling=True) as (engine, client):
        engine.says(12, 2)
        await client.chat([GO], temperature=0.7)
    with pytest.raises(ValueError, match="must not be trained; leave one of them out"):
        async with chatting(tmp_path, any_sampling=True):
            pass
