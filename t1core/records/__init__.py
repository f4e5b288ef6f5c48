"""The nouns: what passes between the parts. Frozen data over numpy arrays; no files, no torch, no ray."""

from t1core.records.batch import Batch
from t1core.records.call import (
    CAPTURE_SCHEMA_VERSION,
    CopiedTurn,
    Generation,
    ModelCall,
    SamplingParams,
    routes_digest,
)
from t1core.records.grade import Grade, RewardSource, TestResult, TestStatus
from t1core.records.row import PrefixRelation, RowStatus, TrainingRow, TurnSpan
from t1core.records.score import Score
from t1core.records.task import HealthCheck, Task, TaskEnvironment
from t1core.records.trial import Boundary, Failure, StopReason, Trajectory, TrialInFlight, Turn

__all__ = [
    "CAPTURE_SCHEMA_VERSION",
    "Batch",
    "Boundary",
    "CopiedTurn",
    "Failure",
    "Generation",
    "Grade",
    "HealthCheck",
    "ModelCall",
    "PrefixRelation",
    "RewardSource",
    "RowStatus",
    "SamplingParams",
    "Score",
    "StopReason",
    "Task",
    "TaskEnvironment",
    "TestResult",
    "TestStatus",
    "TrainingRow",
    "Trajectory",
    "TrialInFlight",
    "Turn",
    "TurnSpan",
    "routes_digest",
]
