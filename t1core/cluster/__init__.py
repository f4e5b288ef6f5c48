"""Processes and their placement: the only part that imports Ray. Knows neither losses nor what a task says."""

from t1core.cluster import environment

environment.apply()  # must come before Ray, which reads it at import

from t1core.cluster.crew import Crew, Publication, start_crew  # noqa: E402
from t1core.cluster.part import PartDied, PartLost, PartSilent, guarded  # noqa: E402

__all__ = ["Crew", "PartDied", "PartLost", "PartSilent", "Publication", "guarded", "start_crew"]
