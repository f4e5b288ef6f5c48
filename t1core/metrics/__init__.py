"""Every metric's name, unit, reducer and meaning, defined once. Who logs or plots is not known here."""

from t1core.metrics.catalogue import CATALOGUE
from t1core.metrics.metric import Metric, Reducer
from t1core.metrics.names import check_names, lookup

__all__ = ["CATALOGUE", "Metric", "Reducer", "check_names", "lookup"]
