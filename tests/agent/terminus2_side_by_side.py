"""Harbor's Terminus-2 and ours on the same script, in boxes opened alike. Runs where both harbor and t1core import.

    answers: texts on stdin -> how each side reads them
    trials:  scripts on stdin -> of each, the prompt of every model call on each side

The template that both sides' messages are put in only appends: each message is `<|im_start|>role\\ntext<|im_end|>\\n`,
and the prompt of a call ends with `<|im_start|>assistant\\n`.
"""

import asyncio
import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HARBOR_TELEMETRY": "off"}

from t1core.agent.choose import protocol_of, wording_of
from t1core.agent.context import AgentLimits
from t1core.agent.loop import AgentInput, AgentRecord, run_agent
from t1core.agent.protocol import PROTOCOLS
from t1core.agent.terminus2 import terminus2_protocol
from t1core.agent.tokenizer import train_tokenizer
from t1core.records import Generation, SamplingParams
from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.sandbox.sandbox import BoxSpec

OUTPUT_TOKENS = 4096
PROMPT = r"root@box:\w# "  # the box's own


def read_answers(texts, form):
    """[ours, Harbor's] a text: commands, completion, whether it is void; else how much was mended or odd about it."""
    harbor = terminus2_protocol(form).parse

    def told(response):
        count = sum(block.count("\n- ") + 1 for block in response.warnings)
        return {
            "commands": [[item.keystrokes, item.duration_s] for item in response.commands],
            "task_complete": response.task_complete,
            "is_void": bool(response.errors),
            "num_oddities": 0 if response.errors else count,
        }

    def ours(text):
        response = PROTOCOLS[form].parse(text)
        count = 0 if response.errors else len(response.repairs) + len(response.warnings)
        return told(response) | {"num_oddities": count}

    return [[ours(text), told(harbor(text))] for text in texts]


def rendered(messages):
    text = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in messages)
    return text + "<|im_start|>assistant\n"


async def harbor_prompts(box, *, script, form, instruction):
    from harbor.agents.terminus_2 import Terminus2
    from harbor.llms.base import BaseLLM, LLMResponse, OutputLengthExceededError
    from harbor.models.agent.context import AgentContext

    prompts = []

    class ScriptedLLM(BaseLLM):
        def __init__(self):
            self.answers = list(script)

        async def call(self, prompt, message_history=(), **options):
            prompts.append(
                rendered([(m["role"], m["content"]) for m in message_history] + [("user", prompt)])
            )
            text, reason = self.answers.pop(0)
            if reason == "length":
                raise OutputLengthExceededError("cut", truncated_response=text)
            return LLMResponse(content=text)

        def get_model_context_limit(self):
            return 1_000_000

        def get_model_output_limit(self):
            return OUTPUT_TOKENS

    class Scripted(Terminus2):
        def _init_llm(self, *args, **options):
            return ScriptedLLM()

    class Environment(SimpleNamespace):
        async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None):
            done = await box.exec(command, timeout_s=timeout_sec or 60.0, env=env, cwd=cwd)
            return SimpleNamespace(
                stdout=done.stdout.decode(), stderr=done.stderr.decode(), return_code=done.rc
            )

    with tempfile.TemporaryDirectory() as logs:
        agent = Scripted(
            logs_dir=Path(logs),
            model_name="scripted/model",
            parser_name=form,
            max_turns=len(script),
            enable_summarize=False,
            record_terminal_session=False,
        )
        environment = Environment(session_id="side-by-side", default_user=None)
        agent.mcp_servers = []
        # Harbor starts the shell through another one, which drops the prompt that the box's environment sets.
        await box.exec(f"mkdir -p /logs/agent; echo \"PS1='{PROMPT}'\" > /root/.bash_profile", timeout_s=60.0)
        await agent.setup(environment)
        while not (
            await agent._session.capture_pane()
        ).strip():  # Harbor's own start has no wait for the prompt
            await asyncio.sleep(0.1)
        agent._build_skills_section = lambda environment: asyncio.sleep(0)
        await agent.run(instruction, environment, AgentContext())
    return prompts


async def our_prompts(box, *, script, form, instruction):
    tokenizer = train_tokenizer(["words"], tempfile.mkdtemp(), vocab_size=300)
    prompts, answers = [], list(script)

    async def generate(input_ids, **request):
        prompts.append(_text(tokenizer, input_ids))
        text, reason = answers.pop(0)
        ids = tokenizer.encode(text)
        if reason == "stop":
            ids = [*ids, tokenizer.im_end]
        ids = _array(ids)
        zeros = _array([0.0] * len(ids), float)
        return Generation(ids, zeros, None, 0, reason, 0, _array([0] * len(ids)), 0)

    record = AgentRecord()
    await run_agent(
        record,
        AgentInput(
            trial_id="t",
            instruction=instruction,
            terminal=await box.terminal(),
            generate=generate,
            tokenizer=tokenizer,
            protocol=protocol_of("terminus2", protocol=form),
            wording=wording_of("terminus2", protocol=form),
            limits=AgentLimits(
                max_turns=len(script),
                max_new_tokens=OUTPUT_TOKENS,
                context_tokens=10_000_000,
                context_margin_tokens=0,
                timeout_s=500.0,
                max_wait_s=60.0,
                output_limit_bytes=10_000,
            ),
            sampling=SamplingParams(max_new_tokens=OUTPUT_TOKENS),
        ),
    )
    return prompts, str(record.stop_reason)


def _array(values, kind=int):
    import numpy as np

    return np.array(values, np.int32 if kind is int else np.float32)


def _text(tokenizer, ids):
    return tokenizer._tokenizer.decode([int(i) for i in ids], skip_special_tokens=False)


async def run_trials(requests):
    sandbox = BubblewrapSandbox()
    found = []
    try:
        for request in requests:
            box = await sandbox.open(BoxSpec(box_id="harbor", environment_dir=None))
            theirs = await harbor_prompts(box, **request)
            await box.close()
            box = await sandbox.open(BoxSpec(box_id="ours", environment_dir=None))
            ours, stop = await our_prompts(box, **request)
            await box.close()
            found.append({"ours": ours, "theirs": theirs, "stop": stop})
        return found
    finally:
        await sandbox.close()


def main():
    logging.disable(logging.WARNING)
    request = json.load(sys.stdin)
    if sys.argv[1] == "answers":
        found = {form: read_answers(texts, form) for form, texts in request.items()}
    else:
        found = asyncio.run(run_trials(request))
    Path(sys.argv[2]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
