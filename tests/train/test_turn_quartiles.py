"""Explained variance by the quarter of a row's turns, against turns counted by hand."""

import math

import numpy as np
import pytest
import torch

from t1core.train.diagnostics import value_metrics
from t1core.train.streams import BatchStreams

# Row 0 has five turns (the third of two tokens), row 1 one turn that follows row 0's last at once, row 2 two turns.
MASK = [*(0, 1, 0, 1, 0, 1, 1, 0, 1, 0, 1), *(1, 1), *(0, 1, 0, 1)]
ROWS = [0] * 11 + [1] * 2 + [2] * 4
# 4 i // 5 for i = 0..4 is 0, 0, 1, 2, 3; one turn is the first quarter; of two, the first and the third.
QUARTERS = {1: [1, 3, 11, 12, 14], 2: [5, 6], 3: [8, 16], 4: [10]}


def _metrics(values):
    rows, rewards = torch.tensor(ROWS), torch.tensor([0.1, 0.5, 0.9])
    mask = torch.tensor(MASK).bool()
    streams = BatchStreams(mask, rows, torch.arange(3), rewards, torch.zeros(len(MASK)), 3, ())
    return value_metrics(values, returns=rewards[rows], streams=streams, num_tests=np.array([1, 2, 3]))


@pytest.mark.parametrize("quarter", [1, 3])
def test_values_that_are_right_in_one_quarter_of_the_turns_explain_that_quarter_alone(quarter):
    rewards = torch.tensor([0.1, 0.5, 0.9])[torch.tensor(ROWS)]
    values = -rewards
    values[QUARTERS[quarter]] = rewards[QUARTERS[quarter]]
    metrics = _metrics(values)
    assert metrics[f"critic/ev_quartile/{quarter}"] == pytest.approx(1, abs=1e-5)
    assert metrics[f"critic/ev_quartile/{4 - quarter}"] == pytest.approx(-3, abs=1e-5)
    for alone in (2, 4):
        assert math.isnan(metrics[f"critic/ev_quartile/{alone}"]), "one row: its returns do not vary"
