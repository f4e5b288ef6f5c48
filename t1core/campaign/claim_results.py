"""What a claim's notebook needs of its runs, in one small file: configurations, metrics, trial tables, provenance.

<claim>.zip
  claim.json        the claim, the form, and of each run its arm, seed, state, configuration and provenance
  metrics.parquet   arm, seed, step, kind, name, value
  trials.parquet    arm, seed, and the columns of the trial tables that analyses read
"""

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from t1core.analysis import RunFrames
from t1core.campaign.asset_key import weights_key
from t1core.campaign.claim import Claim, Form
from t1core.campaign.claim_runs import ArmRun, runs_of
from t1core.store import Run
from t1core.store.atomic import write_atomic
from t1core.store.schema import SCHEMA_VERSION, check_version

_TRIAL_COLUMNS = (
    *("trial_id", "task_id", "family", "split", "kind", "step", "num_tests", "outcome", "stop_reason"),
    *(
        "reward",
        "passed",
        "total",
        "solved",
        "num_turns",
        "num_parse_errors",
        "sampled_tokens",
        "time_total_s",
    ),
)
_LEFT_OUT = (
    "rollout/family/",
    "memory/",
    "reward/source",
)  # of the metrics: many, and in the trial tables too


@dataclass(frozen=True)
class ClaimResults:
    """Runs of a claim by (arm, seed): what analyses read, and where each came from."""

    form: str
    frames: Mapping[tuple[str, int], RunFrames]
    provenance: Mapping[tuple[str, int], Mapping[str, Any]]
    unfinished: tuple[str, ...] = ()


def results_of(claim: Claim, runs: Sequence[ArmRun], *, form: Form) -> ClaimResults:
    """The finished runs of a claim, from their run directories."""
    frames, provenance, unfinished = {}, {}, []
    for arm, planned in runs_of(claim, runs):
        if not planned.is_finished:
            unfinished.append(f"{arm} seed {planned.seed}")
            continue
        run = Run.open(planned.path)
        metrics = run.metrics("train")
        dropped = [name for name in metrics if name.startswith(_LEFT_OUT)]
        trials = run.trials().reindex(columns=list(_TRIAL_COLUMNS))
        frames[arm, planned.seed] = RunFrames(_told_config(run), metrics.drop(columns=dropped), trials)
        provenance[arm, planned.seed] = _told_provenance(run)
    return ClaimResults(form, frames, provenance, tuple(unfinished))


def keep_results(claim: Claim, results: ClaimResults, path: Path) -> None:
    """Write results as one file, whole or not at all."""
    about = {
        "schema_version": SCHEMA_VERSION,
        "claim": claim.model_dump(mode="json"),
        "form": results.form,
        "unfinished": list(results.unfinished),
        "runs": [
            {"arm": arm, "seed": seed, "config": frames.config, "provenance": results.provenance[arm, seed]}
            for (arm, seed), frames in results.frames.items()
        ],
    }
    metrics = [
        frames.metrics.copy()  # in one piece: the wide frame is made column by column
        .rename_axis("step")
        .reset_index()
        .melt("step", var_name="name", value_name="value")
        .dropna()
        .assign(arm=arm, seed=seed)
        for (arm, seed), frames in results.frames.items()
    ]
    trials = [frames.trials.assign(arm=arm, seed=seed) for (arm, seed), frames in results.frames.items()]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("claim.json", json.dumps(about, indent=1))
        for name, parts in (("metrics", metrics), ("trials", trials)):
            frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
            file.writestr(f"{name}.parquet", frame.to_parquet(index=False, compression="zstd"))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, [packed.getvalue()])


def read_results(path: Path | str) -> ClaimResults:
    """Kept results. ValueError for a file that is none."""
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as file:
            about = json.loads(file.read("claim.json"))
            metrics, trials = (
                pd.read_parquet(io.BytesIO(file.read(f"{name}.parquet"))) for name in ("metrics", "trials")
            )
    except (FileNotFoundError, zipfile.BadZipFile, KeyError) as error:
        raise ValueError(
            f"{path} holds no results of a claim ({type(error).__name__}): make them with `t1 claim --keep`"
        ) from None
    check_version(about.get("schema_version"), path=path)
    frames, provenance = {}, {}
    for run in about["runs"]:
        key = run["arm"], run["seed"]
        own = metrics[(metrics["arm"] == key[0]) & (metrics["seed"] == key[1])]
        wide = own.pivot(index="step", columns="name", values="value").rename_axis(columns=None).sort_index()
        rows = trials[(trials["arm"] == key[0]) & (trials["seed"] == key[1])]
        frames[key] = RunFrames(
            run["config"], wide, rows.drop(columns=["arm", "seed"]).reset_index(drop=True)
        )
        provenance[key] = run["provenance"]
    return ClaimResults(about["form"], frames, provenance, tuple(about["unfinished"]))


def merged(parts: Sequence[ClaimResults]) -> ClaimResults:
    """Several results of one claim together, the later ones in place of earlier runs of the same arm and seed."""
    frames, provenance = {}, {}
    for part in parts:
        frames |= part.frames
        provenance |= part.provenance
    done = {f"{arm} seed {seed}" for arm, seed in frames}
    unfinished = dict.fromkeys(name for part in parts for name in part.unfinished if name not in done)
    return ClaimResults(parts[-1].form, frames, provenance, tuple(unfinished))


def _told_config(run: Run) -> dict[str, Any]:
    """The configuration without the places of one machine; what was started from by a digest of its weights."""
    config, plan = run.config(), run.plan()
    config["run_root"] = ""
    config["tasks"]["pool"] = Path(config["tasks"]["pool"]).name
    for role in ("actor", "critic"):
        given = plan[role]
        config["model"][f"{role}_path"] = f"weights {weights_key(Path(given))[:12]}" if given else ""
    return config


def _told_provenance(run: Run) -> dict[str, Any]:
    provenance = run.provenance()
    git = {
        name: value for name, value in provenance["git"].items() if name in ("commit", "is_clean", "reason")
    }
    status = run.status()
    return provenance | {"git": git, "attempts": status.attempt, "seconds": status.heartbeat - status.started}
