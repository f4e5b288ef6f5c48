"""Fixtures of the trainer's tests."""

import pytest
from ppo_scenario import write_checkpoint


@pytest.fixture(scope="session")
def actor_path(tmp_path_factory):
    """A random policy in Hugging Face form; read only."""
    return write_checkpoint(tmp_path_factory.mktemp("policy"))
