"""`t1 calibrate` on a CPU, tiny: what it fits predicts what it did not see, and `t1 plan` takes it."""

import json
from pathlib import Path

import pytest

from t1core.campaign.calibrate import calibrate, configurations, load_coefficients
from t1core.model import scoring_block


def test_lengths_between_and_depths_beyond_are_held_out() -> None:
    fitted, held = configurations([4, 8], [100, 150, 200])
    assert fitted == [("critic", 4, 100), ("critic", 4, 200)]
    assert not set(fitted) & set(held)
    assert {("actor", 4, 100), ("actor", 4, 200)} <= set(held)
    assert {("critic", 4, 150), ("actor", 4, 150), ("critic", 8, 200), ("actor", 8, 150)} <= set(held)


def test_peaks_that_were_not_fitted_are_predicted(tmp_path: Path) -> None:
    said: list[str] = []
    output = tmp_path / "found.json"
    found = calibrate(
        model="nano",
        layers=[1, 2],
        tokens=[128, 192, 256],
        num_experts=8,
        vocab_size=2048,
        output=output,
        say=said.append,
    )
    assert max(abs(row["residual_frac"]) for row in found["held_out"]) < 0.02, said
    assert any(line.startswith("largest residual held out") for line in said)
    assert json.loads(output.read_text())["coefficients"] == found["coefficients"]
    kept = load_coefficients(output)
    assert kept.phases == "apart" and kept.alpha_bytes > 0 and kept.logit_bytes == pytest.approx(16, abs=0.1)


@pytest.mark.slow
def test_peaks_of_rows_longer_than_a_block_are_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 320 tokens: the logits' term no longer grows, and the gradient's sum of the vocabulary joins it."""
    vocab = 4096
    monkeypatch.setattr(scoring_block, "LOGITS", 320 * vocab)
    how = dict(model="nano", layers=[1, 2], tokens=[384, 512, 640], num_experts=8, output=None)
    found = calibrate(**how, vocab_size=vocab)
    assert found["coefficients"]["scored"] == "blocks" and found["coefficients"][
        "logit_bytes"
    ] == pytest.approx(16, abs=0.1)
    assert max(abs(row["residual_frac"]) for row in found["held_out"]) < 0.005
    actors = [row["peak_bytes"] for row in found["fitted"] + found["held_out"] if row["role"] == "actor"]
    whole = (640 - 384) * vocab * 16
    assert max(actors[:3]) - min(actors[:3]) < whole / 20  # of one layer: its hidden states


def test_a_result_kept_when_logits_were_scored_whole_still_says_so() -> None:
    kept = load_coefficients("figures/results/capacity_calibration.json")
    assert kept.scored == "whole" and kept.logit_bytes == pytest.approx(18.4, abs=0.05)


def test_too_little_to_hold_anything_out_is_refused() -> None:
    how = dict(model="nano", num_experts=8, vocab_size=2048, output=None)
    for layers, tokens in (([4], [128, 192, 256]), ([4, 8], [128, 256]), ([8, 4], [128, 192, 256])):
        with pytest.raises(ValueError, match="give two depths and three lengths"):
            calibrate(layers=layers, tokens=tokens, **how)
