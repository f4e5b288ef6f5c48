"""A Ray session sized for the machine: private and local by default, telemetry off, ended with its driver."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import psutil
import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from t1core.cluster.environment import OFFLINE_ENV
from t1core.cluster.private_home import environment, private_home


@contextlib.contextmanager
def ray_session(*, address: str, num_cpus: int, object_store_mb: int) -> Iterator[None]:
    """Join the Ray cluster at `address`, or start a private one that ends with this block.

    Raises RuntimeError when this process already has a session.
    """
    if ray.is_initialized():
        raise RuntimeError("this process already runs a Ray session; one campaign a process")
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    with contextlib.ExitStack() as stack:
        if address:
            ray.init(address=address, namespace=None, runtime_env={"env_vars": OFFLINE_ENV}, **quiet)
        else:
            home = stack.enter_context(private_home())
            workers_env = OFFLINE_ENV | {"HOME": str(Path.home())}
            with environment(HOME=str(home)):
                _start_local(
                    num_cpus=num_cpus,
                    object_store_memory=object_store_mb * 1024 * 1024,
                    include_dashboard=False,
                    configure_logging=True,
                    runtime_env={"env_vars": workers_env},
                    **quiet,
                )
        try:
            yield
        finally:
            ray.shutdown()


def _start_local(**options: object) -> None:
    """Start a private instance, whatever other cluster this machine runs. Ray gives its own processes 15 s to come up,
    which a busy machine can miss: retry.

    What a late start leaves running is ended first, since Ray forgets it and it would slow down the next one.
    """
    driver = psutil.Process()
    before = set(driver.children())
    for attempts_left in (2, 1, 0):
        try:
            ray.init(address="local", **options)  # without it Ray joins a cluster that `ray start` left here
            return
        except Exception as error:  # Ray raises a bare Exception when its processes are late
            ray.shutdown()
            _end_all(set(driver.children()) - before)
            if attempts_left == 0:
                raise RuntimeError(
                    f"Ray did not start on this machine: {error}; is it short of CPU or memory?"
                ) from error


def _end_all(processes: set[psutil.Process]) -> None:
    """Kill processes and their descendants, and wait until they are gone."""
    family = set(processes)
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            family.update(process.children(recursive=True))
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(family, timeout=10)


@contextlib.contextmanager
def placement(
    *, num_train_ranks: int, num_engines: int, cpus: int, timeout_s: float
) -> Iterator[PlacementGroup]:
    """Disjoint bundles: one a trainer rank, then one an engine. Trial hosts have none: `host_nodes` pins them.

    Raises RuntimeError when the cluster does not hold them, naming what was asked and what there is.
    """
    num_bundles = num_train_ranks + num_engines
    share = min(1.0, cpus / num_bundles)
    group = placement_group([{"CPU": share}] * num_bundles, strategy="PACK")
    try:
        if not group.wait(timeout_seconds=timeout_s):
            raise RuntimeError(
                f"no room for {num_train_ranks} trainer ranks and {num_engines} engines of {share:g} CPU each on a "
                f"cluster with {ray.cluster_resources().get('CPU', 0):g} CPUs; lower the parallel degrees"
            )
        yield group
    finally:
        remove_placement_group(group)


def host_nodes(group: PlacementGroup, *, num_train_ranks: int, num_hosts: int) -> list[str]:
    """The node of each trial host: the first engine's, then nodes without a trainer, then the others; in turn again
    where there are more hosts than nodes."""
    placed = placement_group_table(group)["bundles_to_node_id"]
    first = placed[num_train_ranks]
    training = {placed[rank] for rank in range(num_train_ranks)}
    others = {node["NodeID"] for node in ray.nodes() if node["Alive"]} - {first}
    nodes = [first, *sorted(others, key=lambda node: (node in training, node))]
    return [nodes[number % len(nodes)] for number in range(num_hosts)]
