"""How long the page of a long trial takes to make and how large it is, beside an element a token.

    python benchmarks/trial_page.py              # 60 turns, 80k tokens, with and without noise in every quantity

Both pages are made in turn from the same trial, so that other work on the machine weighs on both. Times are CPU
seconds. `element_a_token` is the same page with every token in an element of its own.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from t1core.store import StoredTrial
from t1core.view import token_strip, trial_page

OUTPUT = Path(__file__).resolve().parents[1] / "figures" / "results" / "trial_page.json"


def long_trial(*, num_turns: int, num_tokens: int, noise: float, seed: int = 0) -> StoredTrial:
    """A trial whose turns each add as much context as they sample. With `noise` 0 every quantity moves smoothly; with 1
    every token has an advantage, a value, a gap and flips of its own.
    """
    rng = np.random.default_rng(seed)
    turns = np.minimum(np.arange(num_tokens) * num_turns // num_tokens, num_turns - 1)
    place = np.arange(num_tokens) * num_turns % num_tokens
    sampled = place >= num_tokens // 2
    line = np.linspace(0, 1, num_tokens)

    def noisy(values: np.ndarray) -> np.ndarray:
        return np.where(sampled, values + noise * rng.standard_normal(num_tokens), np.nan)

    tokens = pd.DataFrame(
        {
            "row": 0,
            "position": np.arange(num_tokens),
            "token_id": np.arange(num_tokens) % 100,
            "sampled": sampled,
            "turn": np.where(sampled, turns, -1),
            "model_call_id": pd.Categorical(
                [f"c{turn}" if s else None for turn, s in zip(turns, sampled, strict=True)]
            ),
            "rollout_logprob": np.where(sampled, -0.5, np.nan),
            "weight_version": np.where(sampled, 1, -1),
            "trainer_logprobs": noisy(np.full(num_tokens, -0.499)),
            "values": noisy(line),
            "advantages": noisy(2 * line - 1),
            "returns": np.where(sampled, 0.5, np.nan),
            "flipped_layers": np.where(sampled, rng.poisson(noise, num_tokens), np.nan),
        }
    )
    turn = {
        "response": '{"commands": ["ls"]}', "is_parse_error": False, "is_completion_claim": False,
        "observation": "a.txt\n" * 40, "screen": "a.txt\n" * 40,
        "colours": "\x1b[34ma.txt\x1b[0m\n" * 40, "started_s": 0.0, "generated_s": 1.0,
        "ended_s": 2.0, "is_wait_expired": False, "is_summary": False, "is_summary_lost": False,
    }  # fmt: skip
    frame = pd.DataFrame([turn | {"index": n, "model_call_id": f"c{n}"} for n in range(num_turns)])
    frame["commands"] = [[{"keystrokes": "ls\n", "duration_s": 0.1}]] * num_turns
    frame["repairs"] = [[]] * num_turns
    trial = pd.Series(
        {
            "trial_id": "long", "task_id": "t", "family": "f", "split": "train", "step": 0, "outcome": "accepted",
            "stop_reason": "completed", "reward": 0.1, "reward_source": "ctrf", "passed": 2, "total": 4, "flags": [],
            "sampled_tokens": int(sampled.sum()), "failure_kind": None, "grader_output": "",
        }
    )  # fmt: skip
    return StoredTrial(trial, frame, pd.DataFrame(columns=["name", "status"]), tokens, ["x"] * 100)


def measure(*, num_turns: int, num_tokens: int, noise: float, repeats: int) -> dict[str, Any]:
    """Median CPU seconds, bytes and elements of both pages."""
    stored = long_trial(num_turns=num_turns, num_tokens=num_tokens, noise=noise)
    ways = {"run_length": token_strip._runs, "element_a_token": _single}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    pages: dict[str, str] = {}
    for _ in range(repeats):
        for name, runs in ways.items():
            token_strip._runs = runs
            began = time.process_time()
            pages[name] = trial_page(stored).html
            taken[name].append(time.process_time() - began)
    token_strip._runs = ways["run_length"]
    return {
        "parameters": {"num_turns": num_turns, "num_tokens": num_tokens, "noise": noise, "repeats": repeats},
        "ways": {
            name: {
                "cpu_s": statistics.median(taken[name]),
                "bytes": len(page.encode()),
                "elements": page.count("<b ") + page.count("<i>"),
            }
            for name, page in pages.items()
        },
    }


def _single(tokens: pd.DataFrame, **_: Any) -> list[tuple[int, int]]:
    return [(at, at + 1) for at in range(len(tokens))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--num-turns", type=int, default=60)
    parser.add_argument("--num-tokens", type=int, default=80_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", default=str(OUTPUT), help="'' writes nothing")
    given = parser.parse_args()
    found = [
        measure(num_turns=given.num_turns, num_tokens=given.num_tokens, noise=noise, repeats=given.repeats)
        for noise in (0.0, 0.02, 1.0)
    ]
    for one in found:
        for name, way in one["ways"].items():
            print(
                f"noise {one['parameters']['noise']:<5} {name:16} {way['cpu_s']:6.2f} s  "
                f"{way['bytes'] / 1e6:6.2f} MB  {way['elements']} elements"
            )
    if given.output:
        Path(given.output).write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
