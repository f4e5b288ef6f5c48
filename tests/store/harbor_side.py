"""Harbor's side of the exchange of trial directories. Runs where harbor is installed.

view JOBS TRIAL: what Harbor's viewer answers for a trial below JOBS/<job>, and whether its models read every file
run TASK DIR:    a trial of a task directory under Harbor: its Terminus-2, answering from a script, in a bubblewrap box
"""

import asyncio
import json
import os
import sys
from pathlib import Path

os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HARBOR_TELEMETRY": "off"}


def view(jobs, trial):
    from fastapi.testclient import TestClient
    from harbor.models.trajectories import Trajectory
    from harbor.models.trial.config import TrialConfig
    from harbor.models.trial.result import TrialResult
    from harbor.viewer.server import create_app

    directory = next(Path(jobs).glob(f"*/{trial}"))
    for model, name in (
        (TrialResult, "result.json"),
        (TrialConfig, "config.json"),
        (Trajectory, "agent/trajectory.json"),
    ):
        model.model_validate_json((directory / name).read_text())
    client = TestClient(create_app(Path(jobs)))
    job = directory.parent.name
    found = {"jobs": client.get("/api/jobs").json()["items"]}
    for name in ("", "/trajectory", "/verifier-output", "/files", "/artifacts"):
        answer = client.get(f"/api/jobs/{job}/trials/{trial}{name}")
        found[name] = [answer.status_code, answer.json()]
    return found


def run(task, directory):
    from harbor.agents.terminus_2 import Terminus2
    from harbor.llms.base import BaseLLM, LLMResponse
    from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
    from harbor.trial.trial import Trial

    def answer(*lines, done=False):
        commands = [{"keystrokes": line + "\n", "duration": 0.5} for line in lines]
        return json.dumps({"analysis": "a", "plan": "p", "commands": commands, "task_complete": done})

    script = [answer("touch /app/a"), answer(done=True), answer(done=True)]

    class ScriptedLLM(BaseLLM):
        async def call(self, prompt, message_history=(), **options):
            return LLMResponse(content=script.pop(0))

        def get_model_context_limit(self):
            return 1_000_000

        def get_model_output_limit(self):
            return 4096

    class Scripted(Terminus2):
        def _init_llm(self, *args, **options):
            return ScriptedLLM()

    sys.modules["harbor_side"] = sys.modules["__main__"]
    sys.modules["__main__"].Scripted = Scripted
    config = TrialConfig(
        task=TaskConfig(path=Path(task)),
        trials_dir=Path(directory),
        agent=AgentConfig(
            import_path="harbor_side:Scripted",
            model_name="scripted/model",
            kwargs={"record_terminal_session": False, "enable_summarize": False, "max_turns": 5},
        ),
        environment=EnvironmentConfig(import_path="tests.sandbox.harbor_environment:BoxEnvironment"),
    )

    async def main():
        from tests.sandbox import harbor_environment

        trial = await Trial.create(config)
        try:
            await trial.run()
        finally:
            await harbor_environment.close()
        return str(trial.paths.trial_dir)

    return asyncio.run(main())


if __name__ == "__main__":
    print(json.dumps({"view": view, "run": run}[sys.argv[1]](*sys.argv[2:])))
