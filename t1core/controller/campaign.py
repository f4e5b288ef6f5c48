"""What the loop and the evaluation work on: one campaign's configuration, parts, run and pool, and how far it is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

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


@dataclass(frozen=True)
class Mark:
    """Where collecting stands: what the next batch depends on and a checkpoint keeps. `live`: trials that go on."""

    position: int
    live: tuple[TrialSpec, ...]
    estimates: dict[str, Any]
    survival: dict[str, Any]


@dataclass
class Campaign:
    """`say` gets one line a step for people.

    `first` and `version`: weight versions before the first update, and of what the engine holds; `checksum` is that of
    these weights. `position`: tasks of the sequence of epochs that were drawn. `carried`: trials that go on in the next
    step; `relaunches`: what the next step launches before its own, since it was lost with an earlier driver.
    `steps_before`: steps that earlier attempts trained.
    """

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
    first: int = 0
    version: int = 0
    checksum: str = ""
    position: int = 0
    estimates: TaskEstimates = field(default_factory=TaskEstimates)
    survival: Survival = field(default_factory=Survival)
    carried: list[LiveTrial] = field(default_factory=list)
    relaunches: list[TrialSpec] = field(default_factory=list)
    steps_before: int = 0
    _mark: Mark | None = None  # set while a batch is being collected

    @property
    def mark(self) -> Mark:
        """Where the batch that is being collected began, or where the next one will."""
        if self._mark is not None:
            return self._mark
        return Mark(
            position=self.position,
            live=(*(trial.spec for trial in self.carried), *self.relaunches),
            estimates=self.estimates.to_dict(),
            survival=self.survival.to_dict(),
        )

    def begin_collecting(self) -> tuple[list[LiveTrial], list[TrialSpec]]:
        """Mark the place: (trials that go on, specs to launch again)."""
        self._mark = self.mark
        again, self.relaunches = self.relaunches, []
        return list(self.carried), again

    def end_collecting(self, continued: list[LiveTrial]) -> None:
        self.carried = continued
        self._mark = None

    async def publish(self, version: int, *, frozen: bool) -> Any:
        """Bring the actor's weights to the engine as `version`; with `frozen`, requests under way go on afterwards."""
        publication = await self.crew.publish(version, mode="in_place" if frozen else "abort")
        self.version, self.checksum = version, publication.checksum
        return publication
