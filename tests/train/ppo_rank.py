"""The ranks of small PPO runs, for the tests that compare layouts. Usage: ppo_rank.py JOB.json"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from forked_ranks import fork_ranks
from ppo_scenario import OBJECTIVES, awkward_batch, pipelined_steps, settings

from t1core.model.layout import Layout
from t1core.train.trainer import Trainer


def main(job: dict, rank: int) -> None:
    torch.set_num_threads(1)
    for objective in job["objectives"]:
        out = Path(job["out"]) / objective
        chosen = OBJECTIVES.get(objective, {})
        dist.init_process_group(
            "gloo", init_method=f"file://{job['out']}/store_{objective}", rank=rank, world_size=job["world"]
        )
        made = Trainer(
            settings(job["actor_path"], layout=Layout(**job["layout"]), **job["settings"], **chosen)
        )
        made.setup()
        if job["load"]:
            made.load_checkpoint(job["load"])
        how = {"batch": awkward_batch} if chosen else {}
        results = pipelined_steps(made, first=job["first_step"], **how)
        if job["save"]:
            made.save_checkpoint(job["save"])
        for role in made.learners:
            made.save_weights(out / role, role)
        if rank == 0:
            np.savez(out / "tokens.npz", **results[-1].per_token)
            (out / "metrics.json").write_text(json.dumps([result.metrics for result in results]))
        made.close()


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text())
    fork_ranks(lambda rank: main(job, rank), world=job["world"])
