"""Token fidelity: what the engine sampled is what the trainer trains, id by id. numpy only, but for `stored`."""

from t1core.tito.assemble import UnresolvedRetry, assemble
from t1core.tito.audit import Audit, audit
from t1core.tito.reencode import reencoded_row

__all__ = ["Audit", "UnresolvedRetry", "assemble", "audit", "reencoded_row"]
