"""`t1 calibrate` on a CPU, tiny: what it fits predicts what it did not see, and `t1 plan` takes it."""

import json
from pathlib import Path

import pytest

from t1core.campaign.calibrate import calibrate, configurations, load_coefficients


def test_lengths_between_and_depths_beyond_are_held_out() -> None:
    fitted, held = configurations([4, 8], [100, 150, 200])
    assert fitted == [("critic", 4, 100), ("critic", 4, 200), ("actor", 4, 100), ("actor", 4, 200)]
    assert not set(fitted) & set(held)
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
    assert kept.phases == "apart" and kept.alpha_bytes > 0 and 8 < kept.logit_bytes < 24


def test_too_little_to_hold_anything_out_is_refused() -> None:
    how = dict(model="nano", num_experts=8, vocab_size=2048, output=None)
    for layers, tokens in (([4], [128, 192, 256]), ([4, 8], [128, 256]), ([8, 4], [128, 192, 256])):
        with pytest.raises(ValueError, match="give two depths and three lengths"):
            calibrate(layers=layers, tokens=tokens, **how)
