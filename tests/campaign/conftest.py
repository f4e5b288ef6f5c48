"""A random nano policy and a small practice pool, made once: campaigns on them skip the warm start."""

from pathlib import Path

import pytest

from t1core.agent.prompt import WORDINGS
from t1core.agent.tokenizer import train_tokenizer
from t1core.campaign.demonstrations import demonstration_texts
from t1core.tasks.practice.pool import generate_pool


@pytest.fixture(scope="session")
def actor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face directory of a policy that nobody trained."""
    from t1core.model.checkpoint import init_hf
    from t1core.model.shape import ModelShape

    directory = tmp_path_factory.mktemp("actor")
    texts = demonstration_texts(seed=0, count=200, wording=WORDINGS["compact"])
    tokenizer = train_tokenizer(texts, directory, vocab_size=512)
    assert tokenizer.vocab_size <= 512
    init_hf(ModelShape.nano(vocab_size=512), directory, seed=0)
    return directory


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pool with two training tasks a family; read only."""
    directory = tmp_path_factory.mktemp("practice") / "pool"
    generate_pool(directory, seed=5, tasks_per_family=2, heldout_per_family=1, heldout_family_tasks=2)
    return directory


@pytest.fixture
def settings(actor: Path, pool: Path, tmp_path: Path) -> list[str]:
    """Overrides of the smoke preset that leave nothing to prepare."""
    return [
        f"model.actor_path={actor}",
        f"tasks.pool={pool}",
        "tasks.startup_sample=2",
        f"run_root={tmp_path / 'runs'}",
        "cluster.min_free_memory_mb=500",
        "cluster.min_free_disk_mb=50",
    ]
