"""One rank of a small PPO run, for the tests that compare layouts. Usage: ppo_rank.py JOB.json RANK"""

import json
import os
import sys
from pathlib import Path

import numpy as np


def main(job: dict, rank: int) -> None:
    import torch
    import torch.distributed as dist
    from ppo_scenario import pipelined_steps, settings

    from t1core.model.layout import Layout
    from t1core.train.trainer import Trainer

    torch.set_num_threads(1)
    world = job["world"]
    dist.init_process_group("gloo", init_method=f"file://{job['store']}", rank=rank, world_size=world)
    made = Trainer(settings(job["actor_path"], layout=Layout(**job["layout"]), **job["settings"]))
    made.setup()
    if job["load"]:
        made.load_checkpoint(job["load"])
    results = pipelined_steps(made, first=job["first_step"])
    if job["save"]:
        made.save_checkpoint(job["save"])
    weights = made.export_actor()
    made.save_weights(Path(job["out"]) / "critic", "critic")
    if rank == 0:
        np.savez(Path(job["out"]) / "actor.npz", **weights)
        np.savez(Path(job["out"]) / "tokens.npz", **results[-1].per_token)
        (Path(job["out"]) / "metrics.json").write_text(json.dumps([result.metrics for result in results]))
    made.close()


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    main(json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2]))
