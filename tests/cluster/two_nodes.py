"""Two Ray nodes on this machine: prints how to join them as a line of JSON, and ends them when its input closes.

RAY_TMPDIR must name a directory of their own: Ray notes there where its newest cluster is, for whoever asks for one.
"""

import json
import os
import sys

from t1core.cluster import environment  # before Ray

environment.apply()

from ray.cluster_utils import Cluster  # noqa: E402

STORE_BYTES = 90 << 20


def main() -> None:
    assert "RAY_TMPDIR" in os.environ
    head = {"num_cpus": 2, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head | {"object_store_memory": STORE_BYTES})
    second = cluster.add_node(num_cpus=2, object_store_memory=STORE_BYTES)
    raylets = [node.all_processes["raylet"][0].process.pid for node in (cluster.head_node, second)]
    print(json.dumps({"address": cluster.address, "raylets": raylets}), flush=True)
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main()
