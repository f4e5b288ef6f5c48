"""The short form of a claim on real processes."""

import pytest

from t1core.campaign.claim import read_claim
from t1core.campaign.claim_command import run_claims
from t1core.campaign.claim_results import read_results

SMALL = (
    "agent.max_turns=2",
    "agent.max_new_tokens=48",
    "cluster.probe_grace_s=3600",
    "rollout.rollout_batch_size=4",
    "rollout.over_sampling_batch_size=4",
    "rollout.max_live_trials=4",
)


@pytest.mark.slow
def test_the_short_form_runs_two_arms_and_the_same_command_runs_nothing_again(settings, tmp_path):
    changes = [*(one for one in settings if not one.startswith("run_root=")), *SMALL]
    said = []

    def again():
        return run_claims(
            ["papermill/claims/fidelity.yaml"],
            form="short",
            num_jobs=1,
            root=tmp_path / "runs",
            changes=changes,
            say=said.append,
        )

    assert again(), said
    claim = read_claim("papermill/claims/fidelity.yaml")
    results = read_results(tmp_path / "runs" / "claims" / "fidelity.zip")
    assert (
        set(results.frames) == {("both", 0), ("no_tito", 0)} == {(arm, 0) for arm in claim.arms_of("short")}
    )
    for (arm, _), frames in results.frames.items():
        assert len(frames.metrics) == 2
        drift = frames.metrics["tito/drift_frac"]
        # a random policy's answers rarely are what their texts encode to
        assert (drift == 0).all() if arm == "both" else (drift > 0.1).all()
    assert any("decides nothing" in line for line in said)
    said.clear()
    assert again() and sum("finished before" in line for line in said) == 2
