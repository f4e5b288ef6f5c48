"""An agent's ways to a reward it has not earned, run against a task's tests to see which of them they fall for."""
