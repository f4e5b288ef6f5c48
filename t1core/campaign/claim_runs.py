"""Running the arms of claims: every run once, several at a time, each in a process of its own.

    claims -> runs (arm, seed), each configuration once -> processes -> run directories
    `<root>/claims/<arm>-<key>-seed<n>`

All arms start from the policy and the critic that `t1 prepare` makes for the preset, unless an arm says otherwise. A
run that has finished is not run again, one that was broken off goes on or begins anew; so the same command may be given
again.
"""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from t1core.campaign.asset import Assets
from t1core.campaign.asset_key import weights_key
from t1core.campaign.claim import Claim, Form
from t1core.campaign.launch import toml_string
from t1core.config import CampaignConfig, load_config
from t1core.store import Run, RunState

Say = Callable[[str], None]
FOLDER = "claims"
_POLL_S = 0.5
_END_DEADLINE_S = 60.0
_ATTEMPTS = 2  # a run that did not get as far as its first step is tried once more: Ray may have been late
# What changes nothing that is measured.
_PLACES = ("name", "run_root", "sinks", "cluster")


@dataclass(frozen=True)
class ArmRun:
    """One run to make. `key` tells its configuration and what it starts from, but for the seed; `sources` by role
    (actor, critic, pretrain) are runs that must be there before; `critic` is where a critic is fitted first; `claims`
    say whose arms it is: (claim, arm)."""

    arm: str
    seed: int
    key: str
    preset: str
    settings: tuple[str, ...]
    path: Path
    sources: Mapping[str, "ArmRun"] = field(default_factory=dict)
    critic: Path | None = None
    claims: tuple[tuple[str, str], ...] = ()

    @property
    def told(self) -> str:
        return f"{', '.join(f'{claim}/{arm}' for claim, arm in self.claims)}, seed {self.seed}"

    @property
    def is_finished(self) -> bool:
        return _state(self.path) is RunState.FINISHED


def plan_runs(
    claims: Sequence[Claim],
    *,
    form: Form,
    root: Path,
    assets: Callable[[CampaignConfig], Assets],
    changes: Sequence[str] = (),
    arms: Sequence[str] = (),
    seeds: Sequence[int] = (),
) -> list[ArmRun]:
    """Every run of the claims, one configuration once, seed by seed so that whole seeds come first.

    `assets` prepares what a preset starts from; `changes` are settings that win over all; `arms` and `seeds` restrict.
    ValueError for an arm that there is not.
    """
    unknown = sorted(set(arms) - {arm for claim in claims for arm in claim.arms})
    if unknown:
        raise ValueError(f"--arm {', '.join(unknown)}: no claim given has such an arm")
    started: dict[str, Assets] = {}
    planned: dict[tuple[str, int], ArmRun] = {}
    for seed in dict.fromkeys(seed for claim in claims for seed in (seeds or claim.seeds_of(form))):
        for claim in claims:
            if seed not in (seeds or claim.seeds_of(form)):
                continue
            preset = claim.preset_of(form)
            if preset not in started:
                started[preset] = assets(load_config(preset, changes))
            of_arm: dict[str, ArmRun] = {}
            chosen = _chosen(claim, form=form, arms=arms)
            for arm in chosen:
                run = _arm_run(
                    claim,
                    arm,
                    form=form,
                    seed=seed,
                    root=root,
                    assets=started[preset],
                    changes=changes,
                    earlier=of_arm,
                )
                known = planned.get((run.key, seed), run)
                of_arm[arm] = planned[run.key, seed] = replace(
                    known, claims=(*known.claims, (claim.name, arm))
                )
    return list(planned.values())


def _chosen(claim: Claim, *, form: Form, arms: Sequence[str]) -> tuple[str, ...]:
    names = claim.arms_of(form)
    if not arms:
        return names
    chosen = set(arms)
    for name in reversed(names):
        if name in chosen:
            chosen.update(claim.arms[name].sources)
    return tuple(name for name in names if name in chosen)


def _arm_run(
    claim: Claim,
    arm: str,
    *,
    form: Form,
    seed: int,
    root: Path,
    assets: Assets,
    changes: Sequence[str],
    earlier: dict[str, ArmRun],
) -> ArmRun:
    about = claim.arms[arm]
    sources = {
        role: earlier[name]
        for role, name in (
            ("actor", about.actor_from),
            ("critic", about.critic_from),
            ("pretrain", about.pretrain_from),
        )
        if name
    }
    settings = (
        *_starts({"actor": assets.actor, "critic": assets.critic}),
        *claim.common_of(form),
        *_without_starts(changes),
        *about.settings,
        *_starts({role: _final(run, role) for role, run in sources.items() if role != "pretrain"}),
    )
    if _is_without_critic(settings):
        settings = tuple(one for one in settings if not one.startswith("model.critic_path="))
    preset = claim.preset_of(form)
    key = _run_key(load_config(preset, settings), assets=assets, sources=sources)
    folder = root.resolve() / FOLDER
    critic = folder / f"pretrained-{key}-seed{seed}" if "pretrain" in sources else None
    return ArmRun(
        arm=arm,
        seed=seed,
        key=key,
        preset=preset,
        settings=(*settings, *_starts({"critic": critic})),
        path=folder / f"{arm}-{key}-seed{seed}",
        sources=sources,
        critic=critic,
    )


def _final(run: ArmRun, role: str) -> Path:
    return run.path / "checkpoints" / "final" / role


def _without_starts(changes: Sequence[str]) -> tuple[str, ...]:
    """Without the paths that name what all arms start from: the prepared assets have them."""
    return tuple(one for one in changes if not one.startswith(("model.actor_path=", "model.critic_path=")))


def _starts(paths: Mapping[str, Path | None]) -> tuple[str, ...]:
    return tuple(
        f"model.{role}_path={toml_string(str(path))}" for role, path in paths.items() if path is not None
    )


def _is_without_critic(settings: Sequence[str]) -> bool:
    return any(setting.replace(" ", "") == "train.advantage=grpo" for setting in settings)


def _run_key(config: CampaignConfig, *, assets: Assets, sources: Mapping[str, ArmRun]) -> str:
    """Ten hex digits over all that determines a run but its seed and where things lie."""
    tree = config.model_dump(mode="json")
    for name in (*_PLACES, "seed"):
        del tree[name]
    for name, directory in (("actor_path", assets.actor), ("critic_path", assets.critic)):
        if directory is not None and tree["model"][name] == str(directory):
            tree["model"][name] = weights_key(directory)
    for role, source in sources.items():
        tree["model"]["actor_path" if role == "actor" else "critic_path"] = f"{role} of {source.key}"
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:10]


def run_all(
    runs: Sequence[ArmRun],
    *,
    num_jobs: int,
    until_s: float = 0.0,
    say: Say,
    finished: Callable[[ArmRun], None] = lambda run: None,
) -> list[ArmRun]:
    """Run what has not finished, at most `num_jobs` at once; gives those that have not finished afterwards.

    With `until_s` nothing is started that would, at the mean duration so far, end later than that many seconds from
    now, and what still runs then is ended. `finished` is called as each ends well. An interrupt ends all and is raised.
    """
    began = time.monotonic()
    waiting = [run for run in runs if not run.is_finished]
    for run in runs:
        if run not in waiting:
            say(f"{run.told}: finished before, {run.path}")
    living: dict[int, _Living] = {}
    durations: list[float] = []
    tried: dict[Path, int] = {}
    num_all = len(waiting)
    try:
        while waiting or living:
            elapsed = time.monotonic() - began
            if until_s and elapsed > until_s:
                say(f"{elapsed:.0f} s are over: {len(living)} runs are ended, {len(waiting)} were not begun")
                _end(living.values())
                break
            typical = sum(durations) / len(durations) if durations else 0.0
            if until_s and not living and elapsed + typical > until_s:
                say(
                    f"{len(waiting)} runs were not begun: they take {typical:.0f} s, {until_s - elapsed:.0f} are left"
                )
                break
            for run in _ready(waiting):
                if len(living) >= num_jobs or (until_s and elapsed + typical > until_s):
                    break
                waiting.remove(run)
                one = _start(run)
                living[one.process.pid] = one
            for pid, one in list(living.items()):
                if (code := one.process.poll()) is None:
                    continue
                del living[pid]
                if one.is_fitting and code == 0:
                    waiting.insert(0, one.run)
                    continue
                took = time.monotonic() - one.began
                if one.run.is_finished:
                    durations.append(took)
                    say(f"{one.run.told}: {took:.0f} s ({len(durations)} of {num_all})")
                    finished(one.run)
                    continue
                tried[one.run.path] = tried.get(one.run.path, 0) + 1
                if tried[one.run.path] < _ATTEMPTS and not _has_stepped(one.run.path):
                    say(f"{one.run.told}: {_why(one.run)}; once more")
                    waiting.insert(0, one.run)
                else:
                    say(f"{one.run.told}: {_why(one.run)}; it is left out, see {_log(one.run)}")
            if waiting and not living and not _ready(waiting):
                say(f"{len(waiting)} runs start from one that did not finish, and were not begun")
                break
            time.sleep(_POLL_S)
    except BaseException:
        _end(living.values())
        raise
    return [run for run in runs if not run.is_finished]


@dataclass(frozen=True)
class _Living:
    """A process at work: on a run, or on fitting the critic that it starts from."""

    run: ArmRun
    process: subprocess.Popen
    began: float
    is_fitting: bool


def _ready(waiting: Sequence[ArmRun]) -> list[ArmRun]:
    """Those whose sources have finished, in order."""
    return [run for run in waiting if all(source.is_finished for source in run.sources.values())]


def _start(run: ArmRun) -> _Living:
    is_fitting = run.critic is not None and not run.critic.is_dir()
    _log(run).parent.mkdir(parents=True, exist_ok=True)
    with _log(run).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "t1core.cli", *(_fitting(run) if is_fitting else _campaign(run))],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return _Living(run, process, time.monotonic(), is_fitting)


def _campaign(run: ArmRun) -> list[str]:
    if (run.path / "config.json").is_file():
        return ["resume", str(run.path), "--from-start"]
    fields = (
        f"seed={run.seed}",
        f"name={FOLDER}",
        f"run_root={toml_string(str(run.path.parent.parent))}",
    )
    return ["campaign", run.preset, "--run-name", run.path.name, *_sets((*run.settings, *fields))]


def _fitting(run: ArmRun) -> list[str]:
    """Fit a critic to the stored trajectories of the source, from the backbone of the policy that they started from."""
    source = run.sources["pretrain"]
    actor = Run.open(source.path).plan()["actor"]
    own = tuple(one for one in run.settings if not one.startswith("model.critic_path="))
    return [
        *("pretrain-critic", str(source.path), "--output", str(run.critic)),
        *("--actor", actor, "--preset", run.preset),
        *_sets((*own, f"seed={run.seed}")),
    ]


def _sets(settings: Sequence[str]) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


def _end(living: Iterable[_Living]) -> None:
    for one in living:
        with contextlib.suppress(ProcessLookupError):
            one.process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + _END_DEADLINE_S
    for one in living:
        try:
            one.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.process.pid, signal.SIGKILL)


def _state(path: Path) -> RunState | None:
    return Run.open(path).status().state if (path / "status.json").is_file() else None


def _has_stepped(path: Path) -> bool:
    return (path / "status.json").is_file() and Run.open(path).status().step >= 0


def _why(run: ArmRun) -> str:
    if (run.path / "status.json").is_file():
        status = Run.open(run.path).status()
        return f"{status.state}: {(status.error or 'its process is gone without a word')[:300]}"
    lines = _log(run).read_text(errors="replace").strip().splitlines()
    return f"ended before it began: {lines[-1][:300] if lines else 'without a word'}"


def _log(run: ArmRun) -> Path:
    return run.path.with_name(run.path.name + ".log")


def runs_of(claim: Claim, runs: Sequence[ArmRun]) -> Iterator[tuple[str, ArmRun]]:
    """(arm, run) of each of a claim's runs."""
    for run in runs:
        for name, arm in run.claims:
            if name == claim.name:
                yield arm, run
