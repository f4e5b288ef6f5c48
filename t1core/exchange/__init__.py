"""Other programs' formats of a trial: Harbor's rollout details, ATIF, slime's Sample, verl's AgentLoopOutput.

Plain dicts in those programs' words, without importing them. What a format has no word for travels in its free
field (`metadata`, `extra`, `extra_fields`), so that what goes out comes back whole.
"""

from t1core.exchange.atif import ATIF_VERSIONS, calls_from_atif, trajectory_to_atif
from t1core.exchange.harbor import calls_from_rollout_details
from t1core.exchange.slime import row_from_sample, row_to_sample
from t1core.exchange.verl import row_from_agent_loop, row_to_agent_loop

__all__ = [
    "ATIF_VERSIONS",
    "calls_from_atif",
    "calls_from_rollout_details",
    "row_from_agent_loop",
    "row_from_sample",
    "row_to_agent_loop",
    "row_to_sample",
    "trajectory_to_atif",
]
