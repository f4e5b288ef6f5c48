"""The client's HTTP against servers that close connections, idle or in the middle of a request."""

import asyncio

import pytest

from t1core.rollout.engine import EngineDead
from t1core.rollout.sglang.client import Client
from tests.rollout.closing_server import closing


class Process:
    """A server's process that has ended."""

    name = "engine 0"

    def check_alive(self):
        raise EngineDead("engine 0: the SGLang server ended with code -9")


def speak(answer, talk):
    """What `talk(client)` returns or raises, and what the server saw."""

    async def run():
        async with closing(answer) as server:
            client = Client(Process(), url=server.url, deadline_s=20.0)
            try:
                return await talk(client), server
            except EngineDead as error:
                return error, server
            finally:
                await client.close()

    return asyncio.run(run())


def test_no_request_meets_a_connection_that_its_server_closes():
    async def talk(client):
        return [
            await client.bulk("/update_weights_from_disk", model_path="weights-5"),
            await client.bulk("/weights_checker", action="checksum"),
            await client.get("/server_info"),
            await client.control("/continue_generation"),
            *await asyncio.gather(*(client.bulk("/generate", rid=str(i)) for i in range(3))),
        ]

    answered, server = speak(lambda path: path, talk)
    assert answered == server.paths  # each asked for once, none lost
    assert server.num_answered == 7


@pytest.mark.parametrize("way", ["bulk", "control"])
def test_a_call_that_its_server_drops_is_not_made_again(way):
    failed, server = speak(lambda path: None, lambda client: getattr(client, way)("/generate"))
    assert isinstance(failed, EngineDead) and "ended with code -9" in str(failed)
    assert server.paths == ["/generate"]
