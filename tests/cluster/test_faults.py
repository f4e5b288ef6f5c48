"""Parts of a running campaign are killed or stopped: it ends, names the part, says so in its status, leaves nothing."""

import signal

import pytest
from running_campaign import RunningCampaign

from t1core.cluster.environment import OFFLINE_ENV
from t1core.store import Run

START_S = 420.0  # about 25 s on an idle machine


def broken(directory, checkpoint, *, actor_class, number, within_s, overrides=()):
    """Break one part of a campaign in mid-step: (status, what it said)."""
    with RunningCampaign(directory, actor_path=checkpoint, overrides=overrides) as campaign:
        campaign.until_in_mid_step(within_s=START_S)
        watched = next(iter(Run.open(campaign.run).follow()))
        assert watched.live is not None, "nothing is told of trials in flight"
        campaign.break_part(actor_class, number)
        campaign.until_ended(within_s=within_s)
        assert campaign.driver.returncode == 1
        assert campaign.alive() == [], "processes are left"
        assert list(campaign.box_root.glob("block-*/*")) == [], "boxes are left"
        assert campaign.shared_memory() == [], "shared memory is left"
        finished = Run.open(campaign.run)
        assert 0 in finished.metrics("train").index, "the finished step is not readable"
        assert {"step", "reward"} <= set(finished.trials("train").columns) and len(finished.trials("train"))
        trained = finished.tokens(0)
        assert (trained["flipped_layers"].notna() == trained["sampled"]).all() and trained["sampled"].any()
        for part in ("raylet", f"ray::{actor_class}"):
            assert OFFLINE_ENV.items() <= campaign.environments[part].items(), part
        assert campaign.foreign_peers() == set()
        return campaign.status(), campaign.said()


def test_a_killed_trial_host_ends_the_campaign_by_name_and_takes_its_boxes_along(tmp_path, checkpoint):
    status, said = broken(tmp_path, checkpoint, actor_class="HostActor", number=signal.SIGKILL, within_s=300)
    assert status["state"] == "failed" and "PartDied: trial host 0 died during run_trial" in status["error"]
    assert "PartDied" in said


def test_a_stopped_engine_is_named_within_its_deadline(tmp_path, checkpoint):
    overrides = ("cluster.control_deadline_s=10.0",)
    status, _ = broken(
        tmp_path,
        checkpoint,
        actor_class="EngineActor",
        number=signal.SIGSTOP,
        within_s=300,
        overrides=overrides,
    )
    assert status["state"] == "failed"
    assert "PartSilent: engine 0 did not answer ping within 10 s" in status["error"]


@pytest.mark.slow
def test_a_killed_trainer_ends_the_campaign_by_name(tmp_path, checkpoint):
    status, _ = broken(tmp_path, checkpoint, actor_class="TrainerActor", number=signal.SIGKILL, within_s=300)
    assert status["state"] == "failed" and "PartDied: trainer rank 0 died during" in status["error"]


@pytest.mark.slow
def test_a_killed_engine_ends_the_campaign_by_name(tmp_path, checkpoint):
    status, _ = broken(tmp_path, checkpoint, actor_class="EngineActor", number=signal.SIGKILL, within_s=300)
    assert status["state"] == "failed" and "PartDied: engine 0 died during" in status["error"]
