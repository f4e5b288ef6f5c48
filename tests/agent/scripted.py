"""An agent loop over a model that says what it is told to say and a terminal that prints what it is told to print."""

import asyncio

import numpy as np

from t1core.agent.context import AgentLimits
from t1core.agent.loop import AgentInput, AgentRecord, run_agent
from t1core.agent.prompt import WORDINGS
from t1core.agent.protocol import PROTOCOLS
from t1core.agent.response import Command, render_response
from t1core.records import Generation, SamplingParams


class ScriptedTerminal:
    """Prints `screens` one after another, then the last again and again; notes the keys and how long it may wait."""

    def __init__(self, *screens):
        self.screens, self.keys, self.waits_s = list(screens), [], []

    async def send_keys(self, keys, *, max_wait_s):
        self.keys.append(keys)
        self.waits_s.append(max_wait_s)
        return True

    async def colours(self):
        return ""

    async def incremental(self):
        return self.screens.pop(0) if len(self.screens) > 1 else self.screens[0]


class ScriptedModel:
    """Answers with `texts` in turn, each (text, finish reason); notes the requests."""

    def __init__(self, tokenizer, *texts):
        self.tokenizer, self.texts, self.requests = tokenizer, list(texts), []

    async def generate(self, input_ids, **request):
        self.requests.append((np.array(input_ids), request))
        text, reason = self.texts.pop(0)
        ids = self.tokenizer.encode(text)
        if reason == "stop":
            ids = np.append(ids, np.int32(self.tokenizer.im_end))
        ids = ids[: request["sampling"].max_new_tokens].astype(np.int32)
        zeros = np.zeros(len(ids), np.float32)
        return Generation(ids, zeros, None, 0, reason, 0, zeros.astype(np.int32), 0)


def act(line, *, done=False):
    """An answer that types one line, or none."""
    commands = (Command(line + "\n", 0.1),) if line else ()
    return render_response(commands, analysis="a", plan="p", task_complete=done), "stop"


def run_scripted(model, terminal, *, prompt="compact", instruction="do", **limits):
    """Run a whole trial: its record."""
    record = AgentRecord()
    given = {
        "max_turns": 20,
        "max_new_tokens": 100,
        "context_tokens": 100_000,
        "context_margin_tokens": 0,
        "timeout_s": 60.0,
        "max_wait_s": 2.0,
        "output_limit_bytes": 1000,
    }
    work = run_agent(
        record,
        AgentInput(
            trial_id="t",
            instruction=instruction,
            terminal=terminal,
            generate=model.generate,
            tokenizer=model.tokenizer,
            protocol=PROTOCOLS["json"],
            wording=WORDINGS[prompt],
            limits=AgentLimits(**given | limits),
            sampling=SamplingParams(max_new_tokens=1, sampling_seed=5),
        ),
    )
    asyncio.run(work)
    return record
