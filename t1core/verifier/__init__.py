"""Grading: a dead box's files, the task's tests, a report we can trust as far as stated, and the reward
from it."""
