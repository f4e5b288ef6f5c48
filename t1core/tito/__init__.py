"""Token fidelity: what the engine sampled is what the trainer trains, id by id. numpy only, but for `stored`."""

from t1core.tito.assemble import UnresolvedRetry, assemble
from t1core.tito.audit import Audit, audit

__all__ = ["Audit", "UnresolvedRetry", "assemble", "audit"]
