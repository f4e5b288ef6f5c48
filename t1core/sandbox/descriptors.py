"""Open files: the limit is raised to what a campaign's boxes take, or the shortfall is told with its arithmetic."""

import resource

from t1core.sandbox.room import BOX_DESCRIPTORS, SPARE_DESCRIPTORS


def raise_descriptors(num_boxes: int) -> str | None:
    """Raise this process's limit on open files to its hard limit where `num_boxes` need it; its children inherit that.
    What is wrong when the hard limit is too low, with the way out.
    """
    needed = SPARE_DESCRIPTORS + num_boxes * BOX_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= needed:
        return None
    if hard != resource.RLIM_INFINITY and hard < needed:
        fitting = (hard - SPARE_DESCRIPTORS) // BOX_DESCRIPTORS
        return (
            f"{num_boxes} boxes x {BOX_DESCRIPTORS} descriptors + {SPARE_DESCRIPTORS} = {needed} open files are needed "
            f"and {hard} are the hard limit: run under `ulimit -Hn {needed}`"
            + (f", or lower rollout.max_live_trials to {fitting}" if fitting > 0 else "")
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed if hard == resource.RLIM_INFINITY else hard, hard))
    return None
