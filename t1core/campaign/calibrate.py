"""Measuring the coefficients of the capacity model on the device at hand, and how well they predict what they were not
fitted to: other lengths, depths and roles.
"""

import dataclasses
import json
import logging
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from t1core.capacity.fit import Measured, fit, residuals
from t1core.capacity.memory import Coefficients
from t1core.capacity.sizes import Role, shape_of

Say = Callable[[str], None]
Configuration = tuple[Role, int, int]
"""Role, layers, tokens."""


def configurations(
    layers: Sequence[int], tokens: Sequence[int]
) -> tuple[list[Configuration], list[Configuration]]:
    """(what is fitted, what is held out) of depths and lengths, both ascending: fitted are critics of the first depth
    at every second length; held out are lengths between, other depths, and actors.
    """
    first, *deeper = layers
    seen, between = tokens[::2], tokens[1::2]
    fitted: list[Configuration] = [("critic", first, each) for each in seen]
    held: list[Configuration] = [(role, first, each) for role in ("critic", "actor") for each in between]
    held += [("actor", first, each) for each in (seen[0], seen[-1])]
    held += [
        (role, depth, each)
        for depth in deeper
        for role, each in (("critic", seen[-1]), ("critic", between[0]), ("actor", between[0]))
    ]
    return fitted, held


def calibrate(
    *,
    model: str,
    layers: Sequence[int],
    tokens: Sequence[int],
    num_experts: int,
    vocab_size: int,
    output: Path | None,
    say: Say = print,
) -> dict[str, Any]:
    """Measure, fit, predict, say, and keep the result as JSON. `model` gives the width; depth, experts and vocabulary
    are cut so that it fits one device. ValueError for a plan of fewer than two depths or three lengths.
    """
    if len(layers) < 2 or len(tokens) < 3 or [*layers, *tokens] != [*sorted(layers), *sorted(tokens)]:
        raise ValueError(
            f"--layers {list(layers)} --tokens {list(tokens)}: give two depths and three lengths at least, ascending, "
            "so that some can be held out"
        )
    import torch  # the sums of `t1 plan` do without
    import torch.distributed as dist

    from t1core.model import cpu_shim, layout
    from t1core.train.peak_memory import measure_logit_bytes, measure_peak

    cpu_shim.install()
    logging.getLogger("megatron.core").setLevel(logging.ERROR)  # each network announces its buffers' layout
    on_gpu = torch.cuda.is_available()
    precision, dtype = ("bf16", torch.bfloat16) if on_gpu else ("fp32", torch.float32)
    shapes = {
        depth: dataclasses.replace(
            shape_of(model), num_layers=depth, num_experts=num_experts, vocab_size=vocab_size
        )
        for depth in layers
    }
    found: dict[Configuration, Measured] = {}
    fitted, held = configurations(layers, tokens)
    with tempfile.TemporaryDirectory() as scratch:
        dist.init_process_group(
            "nccl" if on_gpu else "gloo", init_method=f"file://{scratch}/store", rank=0, world_size=1
        )
        try:
            layout.initialize(layout.Layout(), seed=0)
            logit_bytes = measure_logit_bytes(shapes[layers[0]], dtype=dtype)
            for each in (*fitted, *held):
                role, depth, length = each
                peak = measure_peak(
                    shapes[depth], role=role, lengths=[length], max_tokens=length, dtype=dtype
                )
                found[each] = Measured(role=role, num_layers=depth, tokens=length, peak_bytes=peak)
                say(f"{role:6} {depth:3} layers {length:7,} tokens  {peak / 2**30:8.3f} GiB")
            layout.destroy()
        finally:
            dist.destroy_process_group()
    machine = torch.cuda.get_device_name() if on_gpu else "CPU, live tensors only"
    coefficients = fit(
        [(shapes[each[1]], found[each]) for each in fitted],
        precision=precision,
        logit_bytes=logit_bytes,
        # torch's Adam takes its parameters all at once on a GPU and one by one on a CPU
        step_bytes=4 if on_gpu else 0,
        source=f"measured on {machine} at the width of {model}",
    )
    result = {
        "machine": machine,
        "torch": torch.__version__,
        "precision": precision,
        "model": model,
        "num_experts": num_experts,
        "vocab_size": vocab_size,
        "coefficients": dataclasses.asdict(coefficients),
        **{
            part: residuals(
                [(shapes[each[1]], found[each]) for each in chosen], coefficients, precision=precision
            )
            for part, chosen in (("fitted", fitted), ("held_out", held))
        },
    }
    for line in report_lines(result):
        say(line)
    if output is not None:
        output.write_text(json.dumps(result, indent=2) + "\n")
        say(f"written  {output}")
    return result


def report_lines(result: dict[str, Any]) -> list[str]:
    """The coefficients and every residual."""
    found = result["coefficients"]
    lines = [
        f"alpha {found['alpha_bytes'] / 2**10:.1f} KiB a token, b0 {found['b0_bytes'] / 2**30:.3f} GiB, "
        f"{found['logit_bytes']:.2f} B a logit  ({found['source']})"
    ]
    for part in ("fitted", "held_out"):
        for row in result[part]:
            lines.append(
                f"{part:9} {row['role']:6} {row['num_layers']:3} layers {row['tokens']:7,} tokens  measured "
                f"{row['peak_bytes'] / 2**30:8.3f}  predicted {row['predicted_bytes'] / 2**30:8.3f} GiB  "
                f"{row['residual_frac']:+.2%}"
            )
    worst = max(abs(row["residual_frac"]) for row in result["held_out"])
    return [*lines, f"largest residual held out: {worst:.2%}"]


def load_coefficients(path: str | Path) -> Coefficients:
    """The coefficients that `calibrate` kept. ValueError where the file holds none."""
    try:
        return Coefficients(**json.loads(Path(path).read_text())["coefficients"])
    except (OSError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} holds no result of t1 calibrate: {error}") from None
