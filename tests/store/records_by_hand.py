"""Small records written by hand for the tests of the store. Fixtures, not measurements."""

import numpy as np

from t1core.records import (
    Batch,
    Boundary,
    Failure,
    Grade,
    ModelCall,
    PrefixRelation,
    RewardSource,
    RowStatus,
    StopReason,
    TestResult,
    TestStatus,
    TrainingRow,
    Trajectory,
    Turn,
    TurnSpan,
)


def call(number: int, *, trial_id: str, prompt: list[int], completion: list[int]) -> ModelCall:
    return ModelCall(
        model_call_id=f"{trial_id}-c{number}",
        rollout_id=trial_id,
        parent_call_id=f"{trial_id}-c{number - 1}" if number else None,
        prompt_token_ids=np.array(prompt, dtype=np.int32),
        completion_token_ids=np.array(completion, dtype=np.int32),
        logprobs=np.full(len(completion), -0.5, dtype=np.float32),
        finish_reason="stop",
        weight_version=3,
        output_versions=np.full(len(completion), 3, dtype=np.int32),
        routed_experts=None,
        routed_experts_start=0,
    )


def turn(
    index: int, *, trial_id: str, observation: str = "", response: str = "", parse_error: bool = False
) -> Turn:
    return Turn(
        index=index,
        model_call_id=f"{trial_id}-c{index}",
        response=response or f'{{"commands": ["ls {index}"]}}',
        commands=((f"ls {index}\n", 0.1),),
        is_parse_error=parse_error,
        is_completion_claim=False,
        observation=observation,
        screen=f"root@box:/app# ls {index}",
        started_s=float(index),
        generated_s=index + 0.4,
        ended_s=index + 0.9,
    )


def trial(
    trial_id: str,
    *,
    step: int = 0,
    passed: int | None = 2,
    total: int = 4,
    stop: StopReason = StopReason.COMPLETED,
    failure: Failure | None = None,
    quarantined: bool = False,
    observation: str = "a.txt",
    family: str = "copy",
    split: str = "train",
    task_id: str = "copy-0",
) -> Trajectory:
    """Two turns, tokens [1 2 3 | 4 5] then [1 2 3 4 5 6 | 7]; the reward is passed / 20 as in T1."""
    tests = tuple(
        TestResult(
            f"test_outputs.py::test_{n}",
            TestStatus.PASSED if n < (passed or 0) else TestStatus.FAILED,
            0.01,
            "",
        )
        for n in range(total)
    )
    grade = None
    if passed is not None:
        grade = Grade(
            reward=passed / 20,
            source=RewardSource.CTRF,
            passed=passed,
            total=total,
            solved=passed == total,
            tests=tests,
            quarantined=quarantined,
            duration_s=0.3,
            cpu_s=0.2,
            ctrf_version="0.0.0",
        )
    return Trajectory(
        trial_id=trial_id,
        task_id=task_id,
        family=family,
        split=split,
        num_tests=total,
        step=step,
        stop_reason=stop,
        failure=failure,
        turns=(
            turn(0, trial_id=trial_id, observation=observation),
            turn(1, trial_id=trial_id, parse_error=True),
        ),
        calls=(
            call(0, trial_id=trial_id, prompt=[1, 2, 3], completion=[4, 5]),
            call(1, trial_id=trial_id, prompt=[1, 2, 3, 4, 5, 6], completion=[7]),
        ),
        grade=grade,
        timings_s={"open": 0.02, "total": 1.9},
        cpu_s={"box": 0.05},
    )


def engine_failure() -> Failure:
    return Failure(boundary=Boundary.ENGINE, kind="engine_dead", message="engine 0 is gone", retryable=True)


def row(trial_id: str, *, with_routes: bool = True) -> TrainingRow:
    """The training row of `trial`: tokens 1..7, sampled 4, 5 and 7."""
    return TrainingRow(
        rollout_id=trial_id,
        chunk=0,
        tokens=np.arange(1, 8, dtype=np.int32),
        response_length=4,
        loss_mask=np.array([0, 0, 0, 1, 1, 0, 1], dtype=np.uint8),
        rollout_log_probs=np.array([0, 0, 0, -0.5, -0.25, 0, -1], dtype=np.float32),
        rollout_routed_experts=np.arange(24, dtype=np.uint8).reshape(6, 2, 2) if with_routes else None,
        weight_versions=np.array([-1, -1, -1, 3, 3, -1, 3], dtype=np.int32),
        reward=0.1,
        status=RowStatus.COMPLETED,
        spans=(
            TurnSpan(f"{trial_id}-c0", 3, 5, PrefixRelation.STRICT),
            TurnSpan(f"{trial_id}-c1", 6, 7, PrefixRelation.STRICT),
        ),
    )


def batch(
    *trial_ids: str, step: int = 0, with_routes: bool = True
) -> tuple[Batch, tuple[tuple[TurnSpan, ...], ...]]:
    rows = [row(trial_id, with_routes=with_routes) for trial_id in trial_ids]
    return Batch.from_rows(rows, step=step, num_tests=[4] * len(rows)), tuple(row.spans for row in rows)
