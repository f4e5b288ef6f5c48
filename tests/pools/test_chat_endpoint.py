"""Asking an endpoint over real HTTP on 127.0.0.1: what is tried again, what is not, and what each failure is called."""

import asyncio
import json

import pytest
from pydantic import BaseModel, ConfigDict

from t1core.pools.llm.answer import ask_for, find_object
from t1core.pools.llm.endpoint import Cost, EndpointFailed, EndpointSettings, FailureKind, open_endpoint
from tests.pools.scripted_endpoint import MODEL, Say, scripted
from tests.rollout.closing_server import closing

QUESTION = [{"role": "user", "content": "how many?"}]


class Number(BaseModel):
    model_config = ConfigDict(extra="forbid")
    number: int


def ask(script, *, max_retries=2, complaint_of=lambda value: None, owner="somebody", **settings):
    """(value or failure, what the server noted)."""

    async def run():
        async with scripted(script, owner=owner) as server:
            async with open_endpoint(server.settings(**settings)) as endpoint:
                try:
                    answered = await ask_for(
                        endpoint, QUESTION, form=Number, complaint_of=complaint_of, max_retries=max_retries
                    )
                    return answered, server
                except EndpointFailed as failed:
                    return failed, server

    return asyncio.run(run())


def test_a_plain_answer_costs_one_call_and_the_schema_was_asked_for():
    answered, server = ask([Say('{"number": 3}')])
    assert answered.value.number == 3
    cost = answered.cost
    assert (cost.num_calls, cost.prompt_tokens, cost.completion_tokens) == (1, 100, 10)
    assert cost.failures == {} and cost.seconds > 0
    asked = server.asked[0]
    assert asked["model"] == MODEL and asked["messages"] == QUESTION and "temperature" not in asked
    assert asked["response_format"]["json_schema"]["schema"]["required"] == ["number"]


def test_what_passes_is_asked_again_and_every_failure_is_counted():
    script = [
        Say(status=429, headers={"Retry-After": "0"}),
        Say(status=500),
        Say(raw="<html>proxy</html>"),
        Say('{"number": 3}'),
    ]
    answered, server = ask(script)
    assert answered.value.number == 3 and len(server.asked) == 4
    assert answered.cost.num_calls == 4
    assert answered.cost.failures == {"broken": 1, "busy": 1, "unreadable": 1}
    assert answered.cost.completion_tokens == 10  # failed calls say nothing of tokens


def test_a_server_that_closes_idle_connections_costs_no_try():
    completion = {"choices": [{"message": {"content": "3"}, "finish_reason": "stop"}]}

    async def run():
        async with closing(
            lambda path: {"data": [{"id": MODEL}]} if "models" in path else completion
        ) as server:
            settings = EndpointSettings(url=f"{server.url}/v1", model=MODEL, max_tries=1)
            async with open_endpoint(settings) as endpoint:
                return [await endpoint.ask(QUESTION, conversation="c") for _ in range(3)]

    assert [(reply.text, reply.cost.failures) for reply in asyncio.run(run())] == [("3", {})] * 3


@pytest.mark.parametrize(
    ("say", "kind", "num_calls"),
    [
        (Say(status=429), FailureKind.BUSY, 3),
        (Say(status=503), FailureKind.BROKEN, 3),
        (Say(status=401), FailureKind.REFUSED, 1),
        (Say(raw="[]"), FailureKind.UNREADABLE, 3),
        (Say(raw='{"choices": []}'), FailureKind.UNREADABLE, 3),
        (Say(text=None), FailureKind.UNREADABLE, 3),
        (Say('{"number": 3}', wait_s=5.0), FailureKind.SLOW, 3),
    ],
)
def test_what_never_passes_ends_by_its_name_after_the_tries(say, kind, num_calls):
    failed, server = ask([say] * num_calls, max_tries=3, timeout_s=0.3 if say.wait_s else 20.0)
    assert isinstance(failed, EndpointFailed)
    assert failed.kind is kind
    assert failed.cost.num_calls == len(server.asked) == num_calls
    assert failed.cost.failures == {str(kind): num_calls}


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ("no idea", FailureKind.NO_JSON),
        ("{'number': 3}", FailureKind.NO_JSON),
        ('{"number": ', FailureKind.CUT),
        ('{"numb', FailureKind.CUT),
        ('{"number": "many"}', FailureKind.INVALID),
        ('{"number": 3, "more": 1}', FailureKind.INVALID),
        ("", FailureKind.NO_JSON),
    ],
)
def test_a_wrong_answer_is_asked_for_again_with_the_complaint(wrong, kind):
    answered, server = ask([Say(wrong), Say('{"number": 4}')])
    assert answered.value.number == 4
    assert answered.cost.failures == {str(kind): 1} and answered.cost.num_calls == 2
    again = server.asked[1]["messages"]
    assert again[:1] == QUESTION and again[1] == {"role": "assistant", "content": wrong}
    assert "cannot be used" in again[2]["content"]


def test_retries_are_bounded_and_the_failure_says_what_all_of_them_cost():
    failed, server = ask([Say("no")] * 3, max_retries=2)
    assert failed.kind is FailureKind.NO_JSON and "no valid answer in 3" in str(failed)
    assert len(server.asked) == 3
    assert failed.cost.failures == {"no_json": 3} and failed.cost.completion_tokens == 30


def test_an_answer_cut_by_its_length_is_called_cut():
    failed, _ = ask([Say("let me think", finish_reason="length")], max_retries=0)
    assert failed.kind is FailureKind.CUT


def test_a_complaint_of_the_asker_counts_as_invalid():
    answered, _ = ask(
        [Say('{"number": 3}'), Say('{"number": 4}')],
        complaint_of=lambda value: "too few" if value.number < 4 else None,
    )
    assert answered.value.number == 4 and answered.cost.failures == {"invalid": 1}


def test_the_costs_of_what_went_before_a_failure_are_in_it():
    failed, _ = ask([Say("no"), Say(status=400)])
    assert failed.kind is FailureKind.REFUSED
    assert failed.cost.num_calls == 2 and failed.cost.failures == {"no_json": 1, "refused": 1}


def test_one_conversation_has_one_name_and_a_server_of_ours_is_told_when_it_is_over():
    _, server = ask([Say("no"), Say('{"number": 4}')], owner="t1core")
    names = {headers["X-Session-ID"] for headers in server.headers}
    assert server.ended == list(names) and len(names) == 1
    _, stranger = ask([Say('{"number": 4}')])
    assert stranger.ended == []


def test_the_key_is_sent_and_one_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "secret")
    _, server = ask([Say('{"number": 4}')], api_key_env="SOME_KEY")
    assert server.headers[0]["Authorization"] == "Bearer secret"
    monkeypatch.delenv("SOME_KEY")
    with pytest.raises(ValueError, match="SOME_KEY: there is no such variable"):
        EndpointSettings(url="http://127.0.0.1/v1", model="m", api_key_env="SOME_KEY")


def test_a_model_that_is_not_served_and_an_address_without_a_server_are_refused():
    async def other_model():
        async with scripted([]) as server, open_endpoint(server.settings(model="other")):
            pass

    with pytest.raises(ValueError, match="does not serve model 'other'; it has scripted"):
        asyncio.run(other_model())

    async def nobody():
        async with scripted([]) as server:
            settings = server.settings()
        async with open_endpoint(settings):
            pass

    with pytest.raises(ValueError, match="nothing answers there"):
        asyncio.run(nobody())


def test_a_server_without_a_list_of_models_is_believed():
    async def run():
        async with scripted([Say("hello")], lists_models=False) as server:
            async with open_endpoint(server.settings(temperature=0.0, with_schema=False)) as endpoint:
                reply = await endpoint.ask(QUESTION, conversation="c", schema={"type": "object"})
        return reply, server.asked[0]

    reply, asked = asyncio.run(run())
    assert reply.text == "hello" and asked["temperature"] == 0.0 and "response_format" not in asked


@pytest.mark.parametrize(
    "change", [{"url": "127.0.0.1"}, {"timeout_s": 0}, {"max_tries": 0}, {"retry_wait_s": -1}]
)
def test_settings_that_cannot_be_are_refused(change):
    with pytest.raises(ValueError, match="endpoint"):
        EndpointSettings(**({"url": "http://127.0.0.1/v1", "model": "m"} | change))


def test_the_object_is_found_in_what_stands_around_it():
    fenced = 'Sure:\n```json\n{"a": {"b": "}"}}\n```\nDone {"c": 1}'
    assert json.loads(find_object(fenced)) == {"a": {"b": "}"}}
    with pytest.raises(ValueError, match="nested too deeply"):
        find_object('{"a":' * 100_000)
    assert find_object('<think>{"a": 1}</think>{"a": 2}') == '{"a": 2}'


def test_costs_add_up_by_kind():
    total = Cost(1, 2, 3, 0.5, {"busy": 1}) + Cost(1, 1, 1, 0.25, {"busy": 2, "slow": 1})
    assert total == Cost(2, 3, 4, 0.75, {"busy": 3, "slow": 1})
