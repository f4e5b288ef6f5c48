"""A tokenizer with ids to write out, a template with the habits of real ones, an engine that says what it is told,
and a client that speaks HTTP.
"""

import contextlib
from collections import deque
from pathlib import Path

import aiohttp
import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from t1core.records import Generation
from t1core.rollout.chat import ChatFormat, ChatServer, SessionSettings, serving
from t1core.store.token_file import read_rows

NAMED = {
    "<|im_start|>": 1, "<|im_end|>": 2, "user\n": 3, "assistant\n": 4, "\n": 5,
    "go": 10, "ls": 11, "ok": 12, "ec": 13, "ho hi": 14, "echo": 15, " hi": 16,
    "<think>": 17, "</think>": 18, "hm": 19,
    "<tool_response>": 20, "</tool_response>": 21, "<tool_call>": 22, "</tool_call>": 23,
    '{"name": "run", "arguments": {"a": 1}}': 24, '{"name":"run","arguments":{"a":1}}': 25,
    "one": 26, "two": 27, " ok": 28,
}  # fmt: skip

# It prunes the reasoning before the last user message, groups tool messages into one, and serialises calls its own way.
TEMPLATE = (
    "{% set last = namespace(user=-1) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set last.user = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}"
    "{% if m.role == 'tool' %}"
    "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user\n' }}{% endif %}"
    "{{ '<tool_response>' + m.content + '</tool_response>' }}"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}"
    "{% else %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.reasoning_content and loop.index0 > last.user %}"
    "{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}"
    "{{ m.content }}"
    '{% for c in m.tool_calls or [] %}{{ \'<tool_call>{"name": "\' + c.function.name + \'", "arguments": \' }}'
    "{{ c.function.arguments | tojson }}{{ '}</tool_call>' }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def chat_format() -> ChatFormat:
    vocabulary = NAMED | {c: 100 + i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in list(NAMED)[2:]])
    return ChatFormat(tokenizer, template=TEMPLATE)


def written_routes(start: int, end: int) -> np.ndarray:
    """Row j of one layer of two experts is [j, j + 1]."""
    return np.array([[[j, j + 1]] for j in range(start, end)], dtype=np.uint8).reshape(-1, 1, 2)


class ToldEngine:
    """Answers with the ids it was told, and remembers the prompts."""

    def __init__(self) -> None:
        self.told: deque[tuple[list[int], str]] = deque()
        self.prompts: list[list[int]] = []
        self.starts: list[int] = []
        self.released: list[str] = []

    def says(self, *ids: int, finish_reason: str = "stop") -> None:
        self.told.append((list(ids), finish_reason))

    async def generate(self, input_ids, *, sampling, request_id, session_id, routed_experts_start):
        ids, finish_reason = self.told.popleft()
        self.prompts.append(input_ids.tolist())
        self.starts.append(routed_experts_start)
        return Generation(
            output_ids=np.array(ids, dtype=np.int32),
            output_logprobs=-np.array(ids, dtype=np.float32) / 100,
            routed_experts=written_routes(routed_experts_start, len(input_ids) + len(ids) - 1),
            routed_experts_start=routed_experts_start,
            finish_reason=finish_reason,
            weight_version=7,
            output_versions=np.full(len(ids), 7, dtype=np.int32),
            cached_tokens=0,
        )

    async def release_session(self, session_id):
        self.released.append(session_id)

    async def health(self):
        return {"weight_version": 7}


class Client:
    """What a harness does, over HTTP."""

    def __init__(self, http: aiohttp.ClientSession, address: str) -> None:
        self._http, self._address = http, address

    async def post(self, path: str, body: dict, **headers: str) -> tuple[int, dict]:
        async with self._http.post(self._address + path, json=body, headers=headers) as reply:
            return reply.status, await reply.json()

    async def chat(self, messages: list[dict], **options) -> dict:
        """The answer's message, in the session named s."""
        status, reply = await self.post("/sessions/s/v1/chat/completions", {"messages": messages} | options)
        assert status == 200, reply
        return reply["choices"][0]["message"]

    async def end(self, reward: float = 0.5) -> "Ended":
        status, told = await self.post("/sessions/s/end", {"reward": reward})
        assert status == 200, told
        return Ended(told)


class Ended:
    """An ended session as a reader finds it."""

    def __init__(self, told: dict) -> None:
        self.told = told
        rows = read_rows(Path(told["file"]), completed=())
        self.rows = [row.tokens.tolist() for row in rows]
        self.masks = [row.loss_mask.tolist() for row in rows]
        self.routes = [row.rollout_routed_experts.tolist() for row in rows]
        self.relations = [[str(span.relation) for span in row.spans] for row in rows]


@contextlib.asynccontextmanager
async def chatting(directory, *, history: str = "tokens", **settings):
    """(engine, client) of a running server."""
    given = {"model_name": "m", "context_tokens": 400, "max_new_tokens": 20, "rows_dir": directory}
    engine = ToldEngine()
    server = ChatServer(
        engine, chat=chat_format(), settings=SessionSettings(history=history, **given | settings)
    )
    async with serving(server) as address, aiohttp.ClientSession() as http:
        yield engine, Client(http, address)
