"""Every metric's name, unit, reducer and meaning, defined once. Who logs or plots is not known here."""

from t1core.metrics.catalogue import CATALOGUE
from t1core.metrics.metric import Metric, Reducer, reduce_parts
from t1core.metrics.names import check_names, lookup, with_aliases

__all__ = ["CATALOGUE", "Metric", "Reducer", "check_names", "lookup", "reduce_parts", "with_aliases"]
