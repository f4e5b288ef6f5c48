"""What a trial host is made of: sandbox, grader, tokenizer and the way to its engine."""

import asyncio
import json
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from t1core.agent.choose import protocol_of, wording_of
from t1core.agent.context import AgentLimits
from t1core.agent.tokenizer import ChatTokenizer
from t1core.cluster.agent_limits import agent_limits
from t1core.cluster.deadlines import Deadlines
from t1core.config import AgentSettings, CampaignConfig
from t1core.records import Generation
from t1core.rollout.engine import Engine, EngineDead
from t1core.rollout.pacing import Pacer
from t1core.rollout.trial import BoxLimits, RewardRule, TrialRunner
from t1core.sandbox.kinds import open_kind
from t1core.sandbox.runtime import ensure_runtime
from t1core.sandbox.sandbox import Sandbox
from t1core.verifier.grader import Grader


class EngineSilent(EngineDead):
    """The engine did not answer a control call within its deadline."""


class RemoteEngine:
    """The engine contract's client side, over a Ray actor. Control calls have a deadline; a trial bounds `generate`."""

    def __init__(self, actor: ray.actor.ActorHandle, *, control_deadline_s: float) -> None:
        self._actor = actor
        self._control_deadline_s = control_deadline_s

    async def generate(self, input_ids, **request: Any) -> Generation:
        return await self._await(self._actor.generate.remote(input_ids, **request))

    async def abort_request(self, request_id: str) -> bool:
        return await self._control("abort_request", request_id)

    async def release_session(self, session_id: str) -> None:
        await self._control("release_session", session_id)

    async def _control(self, method: str, ident: str) -> Any:
        limit = asyncio.timeout(self._control_deadline_s)
        try:
            async with limit:
                return await self._await(getattr(self._actor, method).remote(ident))
        except TimeoutError:
            if not limit.expired():
                raise
            raise EngineSilent(
                f"the engine did not answer {method} within {self._control_deadline_s:g} s"
            ) from None

    async def _await(self, reference: Awaitable[Any]) -> Any:
        try:
            return await reference
        except RayTaskError as error:  # first: it is also an instance of the error it carries
            raise (error.cause if isinstance(error.cause, Exception) else error) from error
        except RayActorError as error:
            raise EngineDead(f"the engine's process is gone: {error}"[:300]) from None


def make_boxes(config: CampaignConfig) -> tuple[Sandbox, Grader]:
    """A sandbox and a grader, not started yet, with the campaign's limits and over the same image."""
    image = Path(config.sandbox.image_dir).absolute() if config.sandbox.image_dir else None
    grader = Grader(
        runtime=ensure_runtime(),
        max_parallel=config.verifier.max_parallel or None,
        memory_mb=config.verifier.memory_mb,
        max_processes=config.verifier.max_processes,
        image=image,
    )
    sandbox = open_kind(
        config.sandbox.kind,
        image=image,
        is_overlay=config.sandbox.image_root == "overlay",
        environment=config.sandbox.harbor_environment,
        options=json.loads(config.sandbox.harbor_options or "{}"),
    )
    return sandbox, grader


async def make_runner(
    settings: dict[str, Any], engine: "RemoteEngine | Engine"
) -> tuple[TrialRunner, Sandbox, Grader]:
    """Build a host from a resolved configuration, the model's directory, experts and vocabulary, the engine's name.
    `engine` is one in this process, or the way to another's."""
    config = CampaignConfig.model_validate(settings["config"])
    deadlines = Deadlines.of(config)
    agent = config.agent
    tokenizer = ChatTokenizer.load(settings["model_path"])
    wording = wording_of(agent.prompt, protocol=agent.protocol)
    sandbox, grader = make_boxes(config)
    try:
        await grader.start()
    except BaseException:
        await sandbox.close()
        raise

    def limits(agent: AgentSettings) -> AgentLimits:
        counted = agent_limits(agent, tokenizer=tokenizer, wording=wording)
        return replace(counted, waits_until_idle=config.rollout.deterministic)

    runner = TrialRunner(
        sandbox=sandbox,
        grader=grader,
        generate=engine.generate,
        abort_request=engine.abort_request,
        release_session=engine.release_session,
        tokenizer=tokenizer,
        protocol=protocol_of(agent.prompt, protocol=agent.protocol),
        wording=wording,
        limits=limits(agent),
        evaluation_limits=limits(config.evaluation.agent(agent)),
        verifier_timeout_s=config.rollout.verifier_timeout_s,
        box_limits=BoxLimits(
            memory_mb=config.sandbox.memory_mb,
            storage_mb=config.sandbox.storage_mb,
            max_processes=config.sandbox.max_processes,
        ),
        reward=RewardRule(config.reward.kind, config.reward.scale, config.reward.subtract_nop),
        pacer=Pacer(config.sandbox.create_rate_per_s / config.cluster.num_hosts),
        num_experts=settings["num_experts"],
        engine_name=settings["engine_name"],
        vocab_size=settings["vocab_size"],
        is_reencoded=config.rollout.token_fidelity == "reencoded",
        deadline_s=deadlines.trial_s,
        control_deadline_s=deadlines.control_s,
    )
    return runner, sandbox, grader
