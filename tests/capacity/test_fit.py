"""Coefficients that made the peaks are found again, and others are seen to be wrong."""

import dataclasses

import pytest

from t1core.capacity.fit import Measured, fit, predicted_bytes, residuals
from t1core.capacity.memory import Coefficients
from t1core.model.shape import ModelShape

TRUE = Coefficients(5000.0, 2e6, 14.0, phases="apart", step_bytes=4, source="made up", scored="blocks")
SHAPES = {depth: ModelShape.nano(vocab_size=4096, num_layers=depth) for depth in (4, 8)}


def made_up(role: str, depth: int, tokens: int) -> tuple[ModelShape, Measured]:
    shape = SHAPES[depth]
    blank = Measured(role=role, num_layers=depth, tokens=tokens, peak_bytes=0)
    peak = predicted_bytes(shape, blank, TRUE, precision="bf16")
    return shape, dataclasses.replace(blank, peak_bytes=round(peak))


def test_what_made_the_peaks_is_found_and_predicts_other_lengths_depths_and_roles() -> None:
    seen = [made_up("critic", 4, tokens) for tokens in (4096, 8192, 16_384)]
    found = fit(seen, precision="bf16", logit_bytes=14, step_bytes=4, source="made up")
    assert found.alpha_bytes == pytest.approx(5000, rel=1e-6)
    assert found.b0_bytes == pytest.approx(2e6, rel=1e-4)
    assert found.logit_bytes == 14 and found.scored == "blocks"
    held = [made_up("actor", 8, 6000), made_up("critic", 8, 12_000), made_up("actor", 4, 40_000)]
    assert max(abs(row["residual_frac"]) for row in residuals(held, found, precision="bf16")) < 1e-6
    wrong = dataclasses.replace(found, logit_bytes=6)
    assert residuals(held, wrong, precision="bf16")[0]["residual_frac"] < -0.2


def test_measurements_that_tell_nothing_are_refused() -> None:
    one_length = [made_up("critic", 4, 4096), made_up("actor", 4, 8192)]
    with pytest.raises(ValueError, match="two lengths"):
        fit(one_length, precision="bf16", logit_bytes=14, step_bytes=4, source="")
