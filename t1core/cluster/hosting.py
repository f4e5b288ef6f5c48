"""What a trial host is made of: sandbox, grader, tokenizer and the way to its engine."""

from typing import Any

import ray
from ray.exceptions import RayActorError

from t1core.agent.context import AgentLimits
from t1core.agent.prompt import WORDINGS
from t1core.agent.tokenizer import ChatTokenizer
from t1core.config import CampaignConfig
from t1core.records import Generation
from t1core.rollout.engine import EngineDead
from t1core.rollout.pacing import Pacer
from t1core.rollout.trial import BoxLimits, RewardRule, TrialRunner
from t1core.sandbox.bubblewrap import BubblewrapSandbox
from t1core.sandbox.runtime import ensure_runtime
from t1core.verifier.grader import Grader


class RemoteEngine:
    """The engine contract's client side, over a Ray actor."""

    def __init__(self, actor: ray.actor.ActorHandle) -> None:
        self._actor = actor

    async def generate(self, input_ids, **request: Any) -> Generation:
        return await self._await(self._actor.generate.remote(input_ids, **request))

    async def abort_request(self, request_id: str) -> bool:
        return await self._await(self._actor.abort_request.remote(request_id))

    async def release_session(self, session_id: str) -> None:
        await self._await(self._actor.release_session.remote(session_id))

    async def _await(self, reference: Any) -> Any:
        try:
            return await reference
        except RayActorError as error:
            raise EngineDead(f"the engine's process is gone: {error}"[:300]) from None


async def make_runner(
    settings: dict[str, Any], engine: ray.actor.ActorHandle
) -> tuple[TrialRunner, Any, Grader]:
    """Build a host from a resolved configuration, the model's directory and its number of experts."""
    config = CampaignConfig.model_validate(settings["config"])
    runtime = ensure_runtime()
    sandbox = BubblewrapSandbox()
    grader = Grader(runtime=runtime)
    await grader.start()
    remote = RemoteEngine(engine)
    agent = config.agent
    runner = TrialRunner(
        sandbox=sandbox,
        grader=grader,
        generate=remote.generate,
        abort_request=remote.abort_request,
        release_session=remote.release_session,
        tokenizer=ChatTokenizer.load(settings["model_path"]),
        wording=WORDINGS[agent.prompt],
        limits=AgentLimits(
            max_turns=agent.max_turns,
            max_new_tokens=agent.max_new_tokens,
            context_tokens=agent.context_tokens,
            context_margin_tokens=agent.context_margin_tokens,
            timeout_s=agent.agent_timeout_s,
            max_wait_s=agent.max_wait_s,
            output_limit_bytes=agent.output_limit_bytes,
        ),
        box_limits=BoxLimits(
            memory_mb=config.sandbox.memory_mb,
            storage_mb=config.sandbox.storage_mb,
            max_processes=config.sandbox.max_processes,
        ),
        reward=RewardRule(config.reward.kind, config.reward.scale, config.reward.subtract_nop),
        pacer=Pacer(config.sandbox.create_rate_per_s),
        num_experts=settings["num_experts"],
    )
    return runner, sandbox, grader
