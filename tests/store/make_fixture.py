"""Writes the committed fixture run of the present schema version: `python -m tests.store.make_fixture`.

A fixture stays as it was written: raise the schema version, run this once, keep the older ones.
"""

from pathlib import Path

import numpy as np

from t1core.records import StopReason
from t1core.store import Run
from t1core.store.schema import SCHEMA_VERSION
from tests.store.records_by_hand import batch, engine_failure, trial

FOLDER = Path(__file__).parent / "fixtures"


def main() -> None:
    with Run.create(
        FOLDER,
        campaign="fixture",
        run_name=f"v{SCHEMA_VERSION}",
        config={"seed": 7},
        provenance={"fixture": True},
    ) as run:
        run.record_vocabulary(["<pad>", "a", "b", "c", "d", "e", "f", "g"])
        run.record_metrics({"reward/mean": 0.1, "critic/explained_variance": float("nan")}, step=0)
        run.record_metrics({"eval/heldout/solved_frac": 0.25}, step=0, kind="eval")
        broken = trial("c", passed=None, stop=StopReason.FAILED, failure=engine_failure())
        run.record_trajectories([trial("a"), trial("b", passed=4), broken], step=0)
        made, spans = batch("a", "b", step=0)
        run.record_tokens(made, per_token={"values": np.linspace(0, 1, 14, dtype=np.float32)}, spans=spans)
        run.update_status(step=0)
    (run.path / ".writer").unlink()


if __name__ == "__main__":
    main()
