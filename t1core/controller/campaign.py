"""What the loop and the evaluation work on: one campaign's configuration, parts, run and pool, and how far it is."""

from collections.abc import Callable
from dataclasses import dataclass, field

from t1core.analysis.survival import Survival
from t1core.analysis.turn_growth import TurnGrowth
from t1core.cluster import Crew
from t1core.config import CampaignConfig
from t1core.rollout.estimates import TaskEstimates
from t1core.rollout.skim import LiveTrial
from t1core.rollout.trial import TrialSpec
from t1core.store import Run
from t1core.tasks.pool import Pool

Say = Callable[[str], None]


@dataclass
class Campaign:
    """`say` gets one line a step for people. `position`: tasks of the endless sequence of epochs that were drawn.
    `carried`: trials that go on in the next step; `relaunches`: what the next step launches before its own, since it
    was lost with an earlier driver. `steps_before`: steps that earlier attempts trained.
    `checksum`: of the weights that were published last."""

    config: CampaignConfig
    crew: Crew
    run: Run
    pool: Pool
    say: Say = print
    is_evaluated: bool = True
    loop_started: float = 0.0
    evaluation_s: float = 0.0
    steps: list[dict[str, float]] = field(default_factory=list)
    growth: TurnGrowth | None = None
    position: int = 0
    estimates: TaskEstimates = field(default_factory=TaskEstimates)
    survival: Survival = field(default_factory=Survival)
    carried: list[LiveTrial] = field(default_factory=list)
    relaunches: list[TrialSpec] = field(default_factory=list)
    steps_before: int = 0
    checksum: str = ""
