"""A random nano checkpoint with a tokenizer, and one small Ray session for the tests that need no campaign."""

import contextlib
from pathlib import Path

import pytest

from t1core.agent.prompt import WORDINGS
from t1core.agent.tokenizer import train_tokenizer
from t1core.campaign.demonstrations import demonstration_texts


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> Path:
    """Random weights: nothing is learnt, everything runs."""
    from t1core.model.convert import init_hf
    from t1core.model.shape import ModelShape

    directory = tmp_path_factory.mktemp("random-nano")
    texts = demonstration_texts(seed=0, count=100, wording=WORDINGS["compact"])
    train_tokenizer(texts, directory, vocab_size=384)
    init_hf(ModelShape.nano(vocab_size=384, hidden_size=64, moe_intermediate_size=32), directory, seed=0)
    return directory


@pytest.fixture(scope="module")
def ray_running():
    from t1core.cluster.session import ray_session

    with contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # a private instance is ours, whatever else there is
            stack.enter_context(ray_session(address="", num_cpus=2, object_store_mb=80))
        yield
