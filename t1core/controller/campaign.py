"""What the loop and the evaluation work on: one campaign's configuration, parts, run and pool."""

from collections.abc import Callable
from dataclasses import dataclass, field

from t1core.analysis.turn_growth import TurnGrowth
from t1core.cluster import Crew
from t1core.config import CampaignConfig
from t1core.store import Run
from t1core.tasks.pool import Pool

Say = Callable[[str], None]


@dataclass
class Campaign:
    """`say` gets one line a step for people."""

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
