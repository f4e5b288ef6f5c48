"""Harbor's Terminus-2 against a chat server, in a box. Runs where both harbor and t1core's sandbox import.

    terminus2_client.py ADDRESS SESSION OUTPUT.json

What it asks and is answered is its own business: its own LiteLLM client over HTTP, the session named in a header as for
a trial of a Harbor job. It summarises as soon as it may.
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

from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.sandbox.sandbox import BoxSpec

LIMITS = {"max_input_tokens": 16_000, "max_output_tokens": 1024}


async def rollout_details(address, session):
    from harbor.agents.terminus_2 import Terminus2
    from harbor.models.agent.context import AgentContext

    sandbox = BubblewrapSandbox()
    try:
        box = await sandbox.open(BoxSpec(box_id="terminus2", environment_dir=None))

        async def execute(command, cwd=None, env=None, timeout_sec=None, user=None):
            done = await box.exec(command, timeout_s=timeout_sec or 60.0, env=env, cwd=cwd)
            return SimpleNamespace(
                stdout=done.stdout.decode(), stderr=done.stderr.decode(), return_code=done.rc
            )

        environment = SimpleNamespace(exec=execute, session_id="environment", default_user=None)
        with tempfile.TemporaryDirectory() as logs:
            agent = Terminus2(
                logs_dir=Path(logs),
                model_name="hosted_vllm/nano",
                api_base=f"{address}/v1",
                model_info=LIMITS | {"input_cost_per_token": 0.0, "output_cost_per_token": 0.0},
                session_id_headers=["X-Session-ID"],
                collect_rollout_details=True,
                max_turns=2,
                proactive_summarization_threshold=LIMITS["max_input_tokens"] - 1000,
                record_terminal_session=False,
            )
            agent.mcp_servers, agent.session_id = [], session
            agent._build_skills_section = lambda environment: asyncio.sleep(0)
            await box.exec("mkdir -p /logs/agent", timeout_s=60.0)
            await agent.setup(environment)
            context = AgentContext()
            await agent.run("Write hello to a.txt.", environment, context)
        return {"details": context.rollout_details, "summaries": context.metadata["summarization_count"]}
    finally:
        await sandbox.close()


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    Path(sys.argv[3]).write_text(json.dumps(asyncio.run(rollout_details(sys.argv[1], sys.argv[2]))))
