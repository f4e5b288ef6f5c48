"""Offline value pretraining: stored trajectories of one or more runs, filtered by policy age, into a critic's weights.

    runs -> batches of their stored steps -> rows young enough -> trials held out -> epochs of critic updates -> weights

A row's age is the number of weight versions between the policy that sampled it and the newest that sampled in its run.
"""

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from t1core.config import CampaignConfig
from t1core.records import Batch
from t1core.store import Run

Say = Callable[[str], None]


def pretrain_critic(
    config: CampaignConfig,
    runs: Sequence[Path],
    *,
    output: Path,
    actor: Path | None = None,
    max_age: int | None = None,
    epochs: int = 3,
    heldout_frac: float = 0.1,
    say: Say = print,
) -> None:
    """Fit a critic to the stored returns and write its weights to `output`.

    The critic starts from `model.critic_path` if the configuration names one, else from the backbone of `actor`, by
    default the first run's last one. The rewards are those that were trained on, shaping included. ValueError, before
    anything loads, when `output` is the actor's directory or holds an actor, when no stored row is young enough, and
    for settings of a campaign that say nothing about a critic or would have no effect here.
    """
    from t1core.cluster.training import train_settings
    from t1core.train.directories import holds_value_head, refuse_shared_directory
    from t1core.train.value_pretraining import ValuePretrainer

    if config.train.advantage == "grpo":
        raise ValueError("train.advantage=grpo has no critic to pretrain: set it to gae")
    if config.train.load:
        raise ValueError(
            f"train.load={config.train.load!r} has no effect here: start from its critic with "
            "model.critic_path=<checkpoint>/hf/critic"
        )
    actor = actor or runs[0] / "checkpoints" / "final" / "actor"
    given = config.model.critic_path
    refuse_shared_directory(actor=actor, critic=output, field="output")
    if holds_value_head(output) is False:
        raise ValueError(f"output={output} holds an actor's weights: give the critic a directory of its own")
    stored = [batch for run in runs for batch in stored_batches(Run.open(run), max_age=max_age)]
    if not stored:
        raise ValueError(
            f"no stored row of {', '.join(map(str, runs))} was sampled by a policy of age {max_age} or less: "
            "raise max_age"
        )
    learnt, judged = split_by_trial(stored, heldout_frac=heldout_frac, seed=config.seed)
    settings = train_settings(
        config, actor_path=str(actor), critic_path=given if given and given != "cold" else None
    )
    with alone_unless_launched() as is_first:
        pretrainer = ValuePretrainer(settings)
        pretrainer.setup()
        try:
            for epoch in range(epochs + 1):
                if epoch:
                    order = np.random.default_rng([config.seed, epoch]).permutation(len(learnt))
                    reports = [pretrainer.step(learnt[i]) for i in order]
                found = pretrainer.judge(judged or learnt)
                if is_first:
                    loss = f"loss {reports[-1]['critic/loss']:.4f}  " if epoch else ""
                    say(
                        f"epoch {epoch}/{epochs}  {loss}{'held-out' if judged else 'seen'} "
                        f"EV {found['critic/explained_variance']:+.3f}  bias {found['critic/value_bias']:+.3f}"
                    )
            pretrainer.save(output)
        finally:
            pretrainer.close()
        if is_first:
            say(f"critic {output}")


def stored_batches(run: Run, *, max_age: int | None) -> list[Batch]:
    """The run's stored batches with their rows of age `max_age` or less; steps without such a row are left out.

    A row that several versions sampled is as old as its oldest token; rows without a loss token are left out.
    """
    batches = [run.batch(step)[0] for step in run.token_steps()]
    newest = max((int(batch.weight_versions.max()) for batch in batches), default=0)
    kept = []
    for batch in batches:
        rows = []
        for row in range(len(batch)):
            span = slice(batch.cu_seqlens[row], batch.cu_seqlens[row + 1])
            versions = batch.weight_versions[span][batch.loss_mask[span].astype(bool)]
            if len(versions) and (max_age is None or newest - int(versions.min()) <= max_age):
                rows.append(row)
        if rows:
            kept.append(batch.take_rows(rows))
    return kept


def split_by_trial(
    batches: Sequence[Batch], *, heldout_frac: float, seed: int
) -> tuple[list[Batch], list[Batch]]:
    """(batches to learn from, batches to judge on): in each, about `heldout_frac` of the trials are held out whole.

    A batch with a single trial is learnt from.
    """
    learnt, judged = [], []
    for number, batch in enumerate(batches):
        trials = sorted(set(batch.rollout_ids))
        count = min(round(heldout_frac * len(trials)), len(trials) - 1)
        chosen = np.random.default_rng([seed, number]).permutation(len(trials))[:count]
        held = {trials[i] for i in chosen}
        rows = [row for row, trial in enumerate(batch.rollout_ids) if trial not in held]
        learnt.append(batch.take_rows(rows))
        if held:
            judged.append(
                batch.take_rows([row for row, trial in enumerate(batch.rollout_ids) if trial in held])
            )
    return learnt, judged


@contextlib.contextmanager
def alone_unless_launched() -> Iterator[bool]:
    """Within the block the environment says which rank this is: as torchrun did, or the only one. Yields whether it is
    the first."""
    if "RANK" in os.environ:
        yield os.environ["RANK"] == "0"
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0", "WORLD_SIZE": "1"}
    os.environ |= own
    try:
        yield True
    finally:
        for name in own:
            del os.environ[name]
