"""A trial: one attempt of the policy at one task, how it ended, and everything that was captured on the way."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from t1core.records.call import ModelCall
from t1core.records.grade import Grade


class StopReason(StrEnum):
    """Why a trial's agent loop ended. Every trial has exactly one."""

    COMPLETED = "completed"  # the agent declared completion and confirmed it
    MAX_TURNS = "max_turns"
    CONTEXT_FULL = "context_full"
    MAX_TOKENS = "max_tokens"
    AGENT_TIMEOUT = "agent_timeout"
    BOX_BROKEN = "box_broken"  # its commands passed a limit that ends a box, or took the terminal away; graded as it is
    CUT = "cut"  # cancelled as part of the tail of a step
    FAILED = "failed"  # something other than the model broke; see the Failure


class Boundary(StrEnum):
    """Which part broke."""

    ENGINE = "engine"
    SANDBOX = "sandbox"
    AGENT = "agent"
    TASK = "task"
    VERIFIER = "verifier"
    OURS = "ours"


@dataclass(frozen=True)
class Failure:
    """Something other than the model's own doing that broke; stored as data, counted apart, never scored 0."""

    boundary: Boundary
    kind: str
    message: str
    retryable: bool = False


@dataclass(frozen=True)
class Turn:
    """One turn as a reader sees it: what the model said, what was typed, what the terminal showed.

    `observation` is the text given to the model after this turn ("" after the last). Times are seconds since the
    trial's start. A summarising turn has no commands; its response is the summary, its observation the prompt that
    goes on from it, and it is no parse error.
    """

    index: int
    model_call_id: str
    response: str
    commands: tuple[tuple[str, float], ...]  # (keystrokes, duration in seconds)
    is_parse_error: bool
    is_completion_claim: bool
    observation: str
    screen: str
    started_s: float
    generated_s: float
    ended_s: float
    repairs: tuple[str, ...] = ()  # how a near-valid answer was mended
    is_wait_expired: bool = False  # a command was still running when the wait for it was over
    is_summary: bool = False  # the history was summarised here, and a new stream of tokens begins
    is_summary_lost: bool = False  # and the summary could not be used
    colours: str = ""  # the visible pane with its SGR sequences, for readers alone


@dataclass(frozen=True)
class TrialInFlight:
    """A trial in flight. `state` is queue, open, generate (waiting for the engine), terminal, grade, assemble or
    release; `state_s` how long it has been in it, `age_s` how long ago it arrived."""

    trial_id: str
    task_id: str
    step: int
    state: str
    state_s: float
    age_s: float
    num_turns: int
    sampled_tokens: int


@dataclass(frozen=True)
class Trajectory:
    """A finished trial."""

    trial_id: str
    task_id: str
    family: str
    split: str
    num_tests: int
    step: int
    stop_reason: StopReason
    failure: Failure | None
    turns: tuple[Turn, ...]
    calls: tuple[ModelCall, ...]
    grade: Grade | None
    timings_s: Mapping[str, float] = field(default_factory=dict)  # open, generate, terminal, grade, total
    cpu_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def reward(self) -> float | None:
        return self.grade.reward if self.grade is not None else None
