"""The token view: the sampled tokens of each turn, coloured by log-prob gap, advantage or value.

A token carries one class for each quantity, so a radio button switches the colour by CSS, without a script.
"""

from collections.abc import Hashable

import numpy as np
import pandas as pd

from t1core.view.escape import visible

# |trainer - rollout| in nats; the class is the number of edges below it.
GAP_EDGES = (0.01, 0.03, 0.1, 0.3, 1.0)
_LEVELS = 6


def token_strips(tokens: pd.DataFrame, *, vocabulary: list[str] | None) -> dict[Hashable, str]:
    """HTML of each turn's sampled tokens, by model call id, or by turn number where the run kept no spans."""
    sampled = tokens[tokens["sampled"]]
    if sampled.empty:
        return {}
    frame = pd.DataFrame(
        {"text": _texts(sampled, vocabulary), "classes": _classes(sampled), "title": _titles(sampled)}
    )
    pieces = [
        f'<span class="{classes}" title="{visible(title)}">{visible(text)}</span>'
        for text, classes, title in zip(frame["text"], frame["classes"], frame["title"], strict=True)
    ]
    calls = sampled["model_call_id"].astype(object)
    keys = calls if calls.notna().any() else sampled["turn"]
    strips: dict[Hashable, list[str]] = {}
    for key, piece in zip(keys, pieces, strict=True):
        strips.setdefault(key, []).append(piece)
    return {key: f'<pre class="tokens">{"".join(row)}</pre>' for key, row in strips.items()}


def strip_legend(tokens: pd.DataFrame) -> str:
    """The radio buttons; they must stand before the turns, as their siblings, for the CSS to reach them."""
    names = {"gap": "log-prob gap", "advantage": "advantage", "value": "value"}
    has = {"gap": "trainer_logprobs", "advantage": "advantages", "value": "values"}
    shown = [key for key, column in has.items() if column in tokens]
    buttons = [
        f'<input type="radio" name="color" id="by-{key}"{" checked" if index == 0 else ""}>'
        f'<label for="by-{key}">{names[key]}</label>'
        for index, key in enumerate(shown)
    ]
    edges = ", ".join(f"{edge:g}" for edge in GAP_EDGES)
    note = (
        f"Tokens are coloured by the choice above. Gap: |trainer - rollout| in nats, steps at {edges}. "
        "Advantage: blue below 0, orange above, scaled to this trial. Value: this trial's lowest to highest. "
        "Point at a token for its numbers."
    )
    return f'{"".join(buttons)}<p class="note">{note}</p>' if shown else ""


def value_jumps(tokens: pd.DataFrame, *, vocabulary: list[str] | None, most: int = 5) -> str:
    """Where the value moved most between one sampled token and the next: what the critic took as news."""
    sampled = tokens[tokens["sampled"]]
    if "values" not in sampled or len(sampled) < 2:
        return ""
    change = sampled["values"].diff()
    top = change.abs().nlargest(most).index
    texts = pd.Series(_texts(sampled, vocabulary), index=sampled.index)
    items = "".join(
        f"<li>{change[index]:+.3f} at token {sampled.loc[index, 'position']} <code>{visible(texts[index])}</code>, "
        f'<a href="#turn-{sampled.loc[index, "turn"]}">turn {sampled.loc[index, "turn"]}</a></li>'
        for index in sorted(top)
    )
    return f"<details><summary>where the value moved most</summary><ul>{items}</ul></details>"


def _texts(sampled: pd.DataFrame, vocabulary: list[str] | None) -> list[str]:
    ids = sampled["token_id"].tolist()
    if vocabulary is None:
        return [f"[{token}]" for token in ids]
    return [vocabulary[token] if 0 <= token < len(vocabulary) else f"[{token}]" for token in ids]


def _classes(sampled: pd.DataFrame) -> list[str]:
    levels = []
    if "trainer_logprobs" in sampled:
        gap = (sampled["trainer_logprobs"] - sampled["rollout_logprob"]).abs().to_numpy()
        levels.append(("g", np.where(np.isfinite(gap), np.searchsorted(GAP_EDGES, gap), len(GAP_EDGES))))
    if "advantages" in sampled:
        advantage = np.nan_to_num(sampled["advantages"].to_numpy(dtype=np.float64))
        scale = np.abs(advantage).max() or 1.0
        levels.append(("a", np.rint(3 + 3 * advantage / scale).astype(int)))
    if "values" in sampled:
        value = np.nan_to_num(sampled["values"].to_numpy(dtype=np.float64))
        span = np.ptp(value) or 1.0
        levels.append(("v", np.minimum((_LEVELS * (value - value.min()) / span).astype(int), _LEVELS - 1)))
    return [" ".join(f"{letter}{level[row]}" for letter, level in levels) for row in range(len(sampled))]


def _titles(sampled: pd.DataFrame) -> list[str]:
    names = {
        "rollout_logprob": "rollout",
        "trainer_logprobs": "trainer",
        "free_logprobs": "trainer, free routing",
        "values": "value",
        "advantages": "advantage",
        "returns": "return",
    }
    shown = [(column, name) for column, name in names.items() if column in sampled]
    columns = [sampled[column].to_numpy() for column, _ in shown]
    fixed = zip(sampled["position"], sampled["token_id"], sampled["weight_version"], strict=True)
    return [
        f"token {position}, id {token}, version {version}; "
        + ", ".join(f"{name} {column[row]:.4g}" for (_, name), column in zip(shown, columns, strict=True))
        for row, (position, token, version) in enumerate(fixed)
    ]
