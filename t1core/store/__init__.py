"""The run directory: the only part that reads or writes it. Imports neither torch nor ray."""

from t1core.store.atomic import DiskFull, write_json
from t1core.store.harbor_trial import is_harbor_trial, read_harbor_trial, write_harbor_trial
from t1core.store.live import InFlight
from t1core.store.provenance import collect_provenance, describe_provenance
from t1core.store.run import Run, RunBusy, find_runs
from t1core.store.schema import NewerSchema
from t1core.store.setting_aside import Standing
from t1core.store.status import RunState, Status, is_process, process_started
from t1core.store.tail import MetricRow, Update
from t1core.store.trial_table import StoredCall, StoredTrial

__all__ = [
    "DiskFull",
    "InFlight",
    "MetricRow",
    "NewerSchema",
    "Run",
    "RunBusy",
    "RunState",
    "Standing",
    "Status",
    "StoredCall",
    "StoredTrial",
    "Update",
    "collect_provenance",
    "describe_provenance",
    "find_runs",
    "is_harbor_trial",
    "is_process",
    "process_started",
    "read_harbor_trial",
    "write_harbor_trial",
    "write_json",
]
