"""`t1 replay RUN TRIAL --from-turn K --policy MODEL`: a stored trial once more, and from turn K on a policy goes on.

    calls before turn K   answered as they were recorded, token by token; their commands are typed into a new box
    calls from turn K on  the policy's own, on a history of those very tokens and of the screens seen now
    then                  graded, as any trial is; nothing of it is stored

Box, agent, steps, limits and grader are those of the run's own configuration.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from t1core.campaign.replay import TurnReplay, find_task, screen_diff, stored_config
from t1core.campaign.report import printable
from t1core.config import CampaignConfig
from t1core.records import Generation, ModelCall, SamplingParams
from t1core.rollout.engine import Engine
from t1core.rollout.trial import TrialResult, TrialSpec
from t1core.store import Run, StoredTrial

Say = Callable[[str], None]


class Recorded:
    """Answers a trial's first calls as they were answered when it was recorded, and leaves the rest to an engine."""

    def __init__(self, calls: Sequence[ModelCall], engine: Engine) -> None:
        self._calls, self._engine = list(calls), engine

    async def generate(
        self,
        input_ids: np.ndarray,
        *,
        sampling: SamplingParams,
        request_id: str,
        session_id: str | None = None,
        routed_experts_start: int = 0,
    ) -> Generation:
        """See `Engine.generate`. What was recorded comes without routes: nothing is learnt from it."""
        if self._calls:
            call = self._calls.pop(0)
            return Generation(
                output_ids=call.completion_token_ids,
                output_logprobs=call.logprobs,
                routed_experts=None,
                routed_experts_start=0,
                finish_reason=call.finish_reason,
                weight_version=call.weight_version,
                output_versions=call.output_versions,
                cached_tokens=0,
            )
        return await self._engine.generate(
            input_ids, sampling=sampling, request_id=request_id, session_id=session_id
        )

    async def abort_request(self, request_id: str) -> bool:
        """See `Engine.abort_request`."""
        return await self._engine.abort_request(request_id)

    async def release_session(self, session_id: str) -> None:
        """See `Engine.release_session`."""
        await self._engine.release_session(session_id)


def continue_trial(
    run: Run,
    stored: StoredTrial,
    *,
    policy: Path,
    from_turn: int,
    task: Path | None,
    seed: int,
    say: Say,
) -> TrialResult:
    """Replay a stored trial up to turn `from_turn` and let a policy (a Hugging Face directory) go on; `seed` fixes its
    draws. Says how the recorded screens compare, what the policy did, and what that is worth.

    Raises ValueError for a turn that there is not, a task that can't be found, a run that kept no token ids, and a box
    or an engine that can't be had here.
    """
    calls = recorded_calls(run, stored, before=from_turn)
    config = stored_config(run)
    spec = TrialSpec(
        trial_id=f"replay/{stored.trial['trial_id']}",
        task=find_task(config, stored.trial, directory=task),
        step=int(stored.trial["step"]),
        attempt=0,
        sampling_seed=seed,
        is_evaluation=stored.trial["kind"] == "eval",
        needs_rows=False,
    )
    result = asyncio.run(_run(config, spec, calls, policy=policy.resolve(), logs=run.logs))
    for line in lines(result, stored, from_turn=from_turn):
        say(line)
    return result


def recorded_calls(run: Run, stored: StoredTrial, *, before: int) -> list[ModelCall]:
    """The calls that were made before a turn. ValueError for a turn that there is not."""
    indices = stored.turns["index"].tolist()
    if before not in (*indices, len(indices)):
        raise ValueError(f"--from-turn {before}: the trial has turns {', '.join(map(str, indices))}")
    trial = stored.trial
    calls = run.stored_calls(int(trial["step"]), kind=str(trial["kind"]))[trial["trial_id"]]
    return [one.call for one in calls[:before]]  # one a turn, in order


async def _run(
    config: CampaignConfig, spec: TrialSpec, calls: Sequence[ModelCall], *, policy: Path, logs: Path
) -> TrialResult:
    # Heavy libraries only once it is known what is asked for.
    from t1core.cluster.engines import start_engine
    from t1core.cluster.hosting import make_runner
    from t1core.model.shape import ModelShape

    shape = ModelShape.from_hf(policy)
    engine = await start_engine(config, model=policy, name="the engine", log_file=logs / "replay_engine.log")
    try:
        settings = {
            "config": config.model_dump(mode="json"),
            "model_path": str(policy),
            "num_experts": shape.num_experts,
            "vocab_size": shape.vocab_size,
            "engine_name": "the engine",
        }
        runner, sandbox, grader = await make_runner(settings, Recorded(calls, engine))
        try:
            return await runner.run(spec)
        finally:
            await grader.close()
            await sandbox.close()
    finally:
        await engine.close()


def lines(result: TrialResult, stored: StoredTrial, *, from_turn: int) -> Iterator[str]:
    """What is said of it: a line and a difference for each turn replayed, the policy's turns whole, the grade."""
    trajectory = result.trajectory
    screens = stored.turns.set_index("index")["screen"]
    for turn in trajectory.turns[:from_turn]:
        found = TurnReplay(turn.index, tuple(screen_diff(screens[turn.index], turn.screen)))
        yield f"turn {turn.index}: {'differs' if found.diff else 'as recorded'}"
        yield from (f"    {printable(line)}" for line in found.diff)
    for turn in trajectory.turns[from_turn:]:
        yield f"--- turn {turn.index}, the policy's"
        yield printable(turn.response)
        yield "--- terminal"
        yield printable(turn.observation or turn.screen)
    yield f"--- stop reason: {trajectory.stop_reason}"
    if (grade := trajectory.grade) is not None and grade.reward is not None:
        before = stored.trial["reward"]
        yield f"reward {grade.reward:.3f}, {grade.passed} of {grade.total} tests; recorded: {before:.3f}"
    if (failure := trajectory.failure) is not None:
        yield f"broken by {failure.boundary}: {failure.kind}: {printable(failure.message)}"
