"""Frames of the benchmarks' kept results."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

_GIB = 2**30


def context_parallel_peaks(result: Mapping[str, Any]) -> pd.DataFrame:
    """tokens, slices, peak_over_whole, gradient of g and whether outputs are the whole's bits, of the operator in
    slices."""
    rows = []
    for one in result["operator"]:
        rows.append((one["tokens"], 1, 1.0, 0.0, True))
        for name, part in one.items():
            if name.endswith("slices"):
                exact = part["state"]["forward_is_bit_exact"]
                peak, gradient = part["slice_peak_over_whole"], part["state"]["g"]
                rows.append((one["tokens"], int(name.split()[0]), peak, gradient, exact))
    columns = ["tokens", "slices", "peak_over_whole", "gradient", "is_bit_exact"]
    return pd.DataFrame(rows, columns=columns)


def predicted_peaks(calibration: Mapping[str, Any]) -> pd.DataFrame:
    """part (fitted, held out), role, num_layers, tokens, predicted_gib, peak_gib and residual_gib of a calibration."""
    rows = [
        {"part": part.replace("_", " "), **one}
        for part in ("fitted", "held_out")
        for one in calibration[part]
    ]
    frame = pd.DataFrame(rows)
    frame["predicted_gib"] = frame["predicted_bytes"] / _GIB
    frame["peak_gib"] = frame["peak_bytes"] / _GIB
    frame["residual_gib"] = frame["predicted_gib"] - frame["peak_gib"]
    return frame[["part", "role", "num_layers", "tokens", "predicted_gib", "peak_gib", "residual_gib"]]
