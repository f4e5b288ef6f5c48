"""The pre-imported grader: a fork server under the runtime's Python. Imports nothing of the agent's, ever."""
