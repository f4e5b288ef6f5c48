"""Processes and their placement: the only part that imports Ray. Knows neither losses nor what a task says."""

from t1core.cluster.crew import Crew, Publication, start_crew
from t1core.cluster.part import PartDied, PartSilent, guarded

__all__ = ["Crew", "PartDied", "PartSilent", "Publication", "guarded", "start_crew"]
