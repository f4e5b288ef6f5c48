"""A claim as an experiment: arms that differ from a baseline in what they say, seeds, and what was expected beforehand.

A file under `papermill/claims` states the claim in one sentence, what T1 reports (quoted), what would refute it, the
metric that decides, and the contrasts between arms that the claim predicts. `t1 claim` runs it, `notebooks/claim.ipynb`
judges it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from t1core.analysis.claims import MEASURES, Contrast
from t1core.campaign.strict_yaml import read_yaml
from t1core.config import CampaignConfig, load_config
from t1core.config.explain import flat
from t1core.config.section import Settings

Form = Literal["full", "short"]


class Arm(Settings):
    """One way of running the campaign."""

    settings: tuple[str, ...] = ()
    """Dotted settings in which it differs from the baseline."""
    actor_from: str = ""
    """Arm whose trained actor it starts from, of the same seed."""
    critic_from: str = ""
    """Arm whose trained critic it starts from, of the same seed."""
    pretrain_from: str = ""
    """Arm whose stored trajectories, of the same seed, its critic is first fitted to (`t1 pretrain-critic`)."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Arms that must have run before."""
        return tuple(name for name in (self.actor_from, self.critic_from, self.pretrain_from) if name)


class ShortForm(Settings):
    """The same for two cores: shows that everything runs, and decides nothing."""

    preset: str = "smoke"
    settings: tuple[str, ...] = ("num_steps=2",)
    seeds: tuple[int, ...] = (0,)
    arms: tuple[str, ...] = ()
    """Those that are run; empty: the first two."""


class Claim(Settings):
    """A claim, its arms and its rule of decision."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    says: str
    """The claim in one sentence."""
    quoted: tuple[str, ...] = Field(min_length=1)
    """What T1 reports, as quoted."""
    refuted_by: str
    """What result would refute it."""
    needs_scale: str = ""
    """Why a campaign of this size may not show it, if so."""
    preset: str = "quickstart"
    settings: tuple[str, ...] = ()
    """Dotted settings of every arm."""
    seeds: tuple[int, ...] = (0, 1, 2)
    measure: str
    """The measure that decides (`t1core.analysis.claims`)."""
    also: tuple[str, ...] = ()
    """Measures that are told beside it and decide nothing."""
    arms: dict[str, Arm] = Field(min_length=2)
    """By name; the first is the baseline."""
    contrasts: tuple[Contrast, ...] = Field(min_length=1)
    """What the claim predicts; all must hold."""
    short: ShortForm = ShortForm()

    @model_validator(mode="after")
    def check(self) -> Self:
        names = list(self.arms)
        for measure in (self.measure, *self.also, *(one.measure for one in self.contrasts if one.measure)):
            if measure not in MEASURES:
                raise ValueError(f"measure {measure!r} is not one of {', '.join(MEASURES)}")
        for name in (
            *(arm for contrast in self.contrasts for arm in (contrast.arm, contrast.against)),
            *self.short.arms,
        ):
            if name not in names:
                raise ValueError(f"arm {name!r} is not one of {', '.join(names)}")
        for place, (name, arm) in enumerate(self.arms.items()):
            for source in arm.sources:
                if source not in names[:place]:
                    raise ValueError(f"arm {name!r} starts from {source!r}, which is no arm before it")
        baseline = self.config(names[0])
        for name in names[1:]:
            arm = self.arms[name]
            changed = _changed(self.config(name), baseline)
            idle = [setting for setting in arm.settings if not _touches(setting, changed)]
            if idle:
                raise ValueError(
                    f"arm {name!r}: {', '.join(idle)} is as in the baseline {names[0]!r}: change it, or leave it out"
                )
            if not arm.settings and not arm.sources:
                raise ValueError(f"arm {name!r} is the baseline {names[0]!r} once more: say what it changes")
        return self

    @property
    def baseline(self) -> str:
        return next(iter(self.arms))

    def arms_of(self, form: Form) -> tuple[str, ...]:
        """The arms that a form runs, with those that they start from."""
        names = tuple(self.arms)
        if form == "full":
            return names
        chosen = set(self.short.arms or names[:2])
        for name in reversed(names):  # sources come before what starts from them
            if name in chosen:
                chosen.update(self.arms[name].sources)
        return tuple(name for name in names if name in chosen)

    def seeds_of(self, form: Form) -> tuple[int, ...]:
        return self.seeds if form == "full" else self.short.seeds

    def preset_of(self, form: Form) -> str:
        return self.preset if form == "full" else self.short.preset

    def common_of(self, form: Form) -> tuple[str, ...]:
        """The settings of every arm."""
        return self.settings if form == "full" else self.short.settings

    def config(self, arm: str, *, form: Form = "full") -> CampaignConfig:
        """An arm's configuration, but for what it starts from. ValueError where it is none."""
        return load_config(self.preset_of(form), (*self.common_of(form), *self.arms[arm].settings))


def read_claim(path: Path | str) -> Claim:
    """A claim from its file, whose stem is its name. ValueError for a wrong key, arm, measure or setting."""
    path = Path(path)
    content = read_yaml(path, what="claim")
    if not isinstance(content, dict):
        raise ValueError(
            f"claim {path}: a mapping of keys to values is wanted, with `says`, `arms`, `contrasts`"
        )
    arms = content.get("arms")
    if isinstance(arms, dict):
        content["arms"] = {
            name: {"settings": arm} if isinstance(arm, list) else arm for name, arm in arms.items()
        }
    try:
        return Claim.model_validate({"name": path.stem, **content})
    except ValidationError as error:
        lines = [
            f"{'.'.join(map(str, item['loc'])) or 'claim'}: {item['msg'].removeprefix('Value error, ')}"
            for item in error.errors()
        ]
        raise ValueError(f"claim {path} is refused:\n  " + "\n  ".join(lines)) from None


def changed_keys(claim: Claim, arm: str, *, form: Form = "full") -> tuple[str, ...]:
    """The settings in which an arm differs from the baseline."""
    return tuple(sorted(_changed(claim.config(arm, form=form), claim.config(claim.baseline, form=form))))


def _changed(config: CampaignConfig, other: CampaignConfig) -> set[str]:
    ours, theirs = flat(config.model_dump(mode="json")), flat(other.model_dump(mode="json"))
    return {key for key, value in ours.items() if value != theirs[key]}


def _touches(setting: str, changed: set[str]) -> bool:
    key = setting.partition("=")[0].strip()
    return any(one == key or one.startswith(f"{key}.") for one in changed)


def read_claims(paths: Sequence[Path]) -> list[Claim]:
    """Several claims. ValueError where two have one name."""
    claims = [read_claim(path) for path in paths]
    names = [claim.name for claim in claims]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"claims of one name: {', '.join(twice)}; run them apart")
    return claims
