"""t1core: PPO with a full-size critic for agents that do long jobs in a terminal."""

__version__ = "0.1.0"
