"""The token view: what each turn added to the stream of tokens, coloured by mask, log-prob gap, advantage, value or
routing flips.

A token carries a class for each quantity that is not at its plainest level, so a radio button switches the colour by
CSS, without a script. Neighbours of the same classes share one element: a page of 80k tokens stays small.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from t1core.view.escape import visible

# |trainer - rollout| in nats; the class is the number of edges below it.
GAP_EDGES = (0.01, 0.03, 0.1, 0.3, 1.0)
_LEVELS = 6
_NAMES = {
    "mask": "loss mask",
    "gap": "log-prob gap",
    "advantage": "advantage",
    "value": "value",
    "flips": "routing flips",
}
_COLUMNS = {
    "gap": "trainer_logprobs",
    "advantage": "advantages",
    "value": "values",
    "flips": "flipped_layers",
}
# What the colours of a choice mean, by class, from one end to the other.
_SCALES = {
    "gap": [
        ("g0", f"below {GAP_EDGES[0]:g} nats"),
        *((f"g{n + 1}", f"{edge:g}") for n, edge in enumerate(GAP_EDGES)),
    ],
    "advantage": [(f"a{n}", {0: "lowest", 3: "0", 6: "highest"}.get(n, "&nbsp;")) for n in range(7)],
    "value": [(f"v{n}", {0: "lowest", _LEVELS - 1: "highest"}.get(n, "&nbsp;")) for n in range(_LEVELS)],
    "flips": [("f0", "no layer"), ("f1", "1"), ("f2", "2"), ("f3", "3 or more")],
    "mask": [("m1", "trained on")],
}
_FIXED = ("position", "token_id", "weight_version")
_TITLED = {
    "rollout_logprob": "rollout",
    "trainer_logprobs": "trainer",
    "free_logprobs": "free",
    "values": "value",
    "advantages": "advantage",
    "returns": "return",
    "flipped_layers": "flipped layers",
}


@dataclass(frozen=True)
class _Level:
    """One quantity's class of each token: a letter and a number; `plain` is written as no class at all."""

    letter: str
    of_token: np.ndarray
    plain: int


def token_strips(tokens: pd.DataFrame, *, vocabulary: list[str] | None) -> dict[int, str]:
    """HTML of the tokens each turn added (its context, then what it sampled), by turn."""
    if not tokens["sampled"].any():
        return {}
    tokens = tokens.reset_index(drop=True)
    texts = _texts(tokens, vocabulary)
    levels = _levels(tokens)
    numbers = {name: tokens[name].to_numpy() for name in (*_FIXED, *_TITLED) if name in tokens}
    sampled = tokens["sampled"].to_numpy()
    turns = _strip_of(tokens)
    marked = {*_jumps(tokens).index, *_gaps(tokens).index}
    strips: dict[int, list[str]] = {}
    for start, end in _runs(tokens, levels=levels, turns=turns, marked=marked):
        text = visible("".join(texts[start:end]))
        if sampled[start]:
            classes = " ".join(
                f"{level.letter}{level.of_token[start]}"
                for level in levels
                if level.of_token[start] != level.plain
            )
            anchor = f" id='{_anchor(tokens, start)}'" if start in marked else ""
            css = f" class='{classes}'" if classes else ""
            piece = f"<b{anchor}{css} title='{_title(numbers, start, end)}'>{text}</b>"
        else:
            piece = f"<i>{text}</i>"
        strips.setdefault(int(turns[start]), []).append(piece)
    return {
        turn: f'<pre class="tokens"><a href="#turn-{turn}">turn {turn}</a> {"".join(row)}</pre>'
        for turn, row in strips.items()
    }


def strip_legend(tokens: pd.DataFrame) -> str:
    """The radio buttons; they must stand before the turns, as their siblings, for the CSS to reach them."""
    shown = [key for key, column in _COLUMNS.items() if column in tokens] + ["mask"]
    buttons = [
        f'<input type="radio" name="color" id="by-{key}"{" checked" if index == 0 else ""}>'
        f'<label for="by-{key}">{_NAMES[key]}</label>'
        for index, key in enumerate(shown)
    ]
    edges = ", ".join(f"{edge:g}" for edge in GAP_EDGES)
    missing = [_NAMES[key] for key, column in _COLUMNS.items() if column not in tokens]
    note = (
        "Tokens of the turns below are coloured by the choice above. Mask: what is trained on. Gap: |trainer - "
        f"rollout| in nats, steps at {edges}. Advantage: blue below 0, orange above, scaled to this trial. Value: this "
        "trial's lowest to highest. Flips: layers whose router, left free, chooses other experts. Grey tokens are "
        "context, which is not trained on. Point at tokens for their numbers."
        + (f" This run stored no {', no '.join(missing)}." if missing else "")
    )
    scales = "".join(_scale(key) for key in shown)
    return f'{"".join(buttons)}{scales}<p class="note">{note}</p>'


def _scale(key: str) -> str:
    """What the colours of one choice mean, in the colours themselves; shown while it is chosen."""
    steps = "".join(f'<span class="{css}">{text}</span>' for css, text in _SCALES[key])
    return f'<div class="scale {key}">{steps}</div>'


def value_jumps(tokens: pd.DataFrame, *, vocabulary: list[str] | None) -> str:
    """Where the value moved most between one sampled token and the next: what the critic took as news."""
    return _token_list(_jumps(tokens), tokens, vocabulary, summary="where the value moved most", sign="+")


def largest_gaps(tokens: pd.DataFrame, *, vocabulary: list[str] | None) -> str:
    """Where trainer and engine disagree most about a sampled token."""
    return _token_list(
        _gaps(tokens), tokens, vocabulary, summary="where trainer and engine disagree most", sign=""
    )


def turn_table(tokens: pd.DataFrame) -> str:
    """A line a turn: sampled tokens, value at its first and last token, largest gap, mean advantage, flips. Links to
    the turn."""
    sampled = tokens[tokens["sampled"]]
    if sampled.empty:
        return ""
    lines = []
    for turn, part in sampled.groupby("turn"):
        cells = {"turn": f'<a href="#turn-{turn}">{turn}</a>', "tokens": len(part)}
        if "values" in part:
            values = part["values"].to_numpy()
            cells["value"] = f"{values[0]:.3f} to {values[-1]:.3f}"
        if "trainer_logprobs" in part:
            gap = (part["trainer_logprobs"] - part["rollout_logprob"]).abs()
            cells["largest gap"] = f"{gap.max():.3g}"
        if "advantages" in part:
            cells["mean advantage"] = f"{part['advantages'].mean():+.3f}"
        if "flipped_layers" in part:
            cells["tokens with a flip"] = f"{(part['flipped_layers'] > 0).mean():.1%}"
        lines.append("<tr>" + "".join(f"<td>{value}</td>" for value in cells.values()) + "</tr>")
    head = "".join(f"<th>{name}</th>" for name in cells)
    return (
        f"<details><summary>tokens by turn</summary><table><tr>{head}</tr>{''.join(lines)}</table></details>"
    )


def _token_list(
    top: pd.Series, tokens: pd.DataFrame, vocabulary: list[str] | None, *, summary: str, sign: str
) -> str:
    if top.empty:
        return ""
    tokens = tokens.reset_index(drop=True)
    items = []
    for index in top.index:  # largest first
        token = tokens.loc[index]
        items.append(
            f"<li>{top[index]:{sign}.3f} at "
            f'<a href="#{_anchor(tokens, index)}">token {token["position"]}</a> '
            f"<code>{visible(_texts(tokens.loc[[index]], vocabulary)[0])}</code>, "
            f'<a href="#turn-{token["turn"]}">turn {token["turn"]}</a></li>'
        )
    return f"<details><summary>{summary}</summary><ul>{''.join(items)}</ul></details>"


def _jumps(tokens: pd.DataFrame, *, most: int = 5) -> pd.Series:
    """Changes of value from the sampled token before, of the largest size, by place in the frame."""
    sampled = tokens.reset_index(drop=True)
    sampled = sampled[sampled["sampled"]]
    if "values" not in sampled or len(sampled) < 2:
        return pd.Series(dtype=float)
    change = sampled.groupby("row")["values"].diff().dropna()
    return change[change.abs().nlargest(most).index]


def _gaps(tokens: pd.DataFrame, *, most: int = 5) -> pd.Series:
    sampled = tokens.reset_index(drop=True)
    sampled = sampled[sampled["sampled"]]
    if "trainer_logprobs" not in sampled:
        return pd.Series(dtype=float)
    gap = (sampled["trainer_logprobs"] - sampled["rollout_logprob"]).dropna()
    return gap[gap.abs().nlargest(most).index]


def _strip_of(tokens: pd.DataFrame) -> np.ndarray:
    """In which turn's strip each token stands: that of the next sampled token of its row, or of the last."""
    turns = tokens["turn"].where(tokens["sampled"])
    return turns.groupby(tokens["row"]).transform(lambda part: part.bfill().ffill()).to_numpy().astype(int)


def _runs(
    tokens: pd.DataFrame, *, levels: list[_Level], turns: np.ndarray, marked: set[int]
) -> Iterator[tuple[int, int]]:
    """Stretches [start, end) of one strip and of the same classes; a marked token stands alone."""
    sampled = tokens["sampled"].to_numpy()
    breaks = np.zeros(len(tokens), dtype=bool)
    breaks[0] = True
    for column in (sampled, tokens["row"].to_numpy(), turns, np.where(sampled, tokens["weight_version"], -1)):
        breaks[1:] |= column[1:] != column[:-1]
    for level in levels:
        breaks[1:] |= (level.of_token[1:] != level.of_token[:-1]) & sampled[1:]
    for index in marked:
        breaks[index] = True
        if index + 1 < len(tokens):
            breaks[index + 1] = True
    starts = np.flatnonzero(breaks).tolist()
    return zip(starts, [*starts[1:], len(tokens)], strict=True)


def _anchor(tokens: pd.DataFrame, index: int) -> str:
    return f"token-{tokens['row'].iat[index]}-{tokens['position'].iat[index]}"


def _texts(tokens: pd.DataFrame, vocabulary: list[str] | None) -> list[str]:
    ids = tokens["token_id"].tolist()
    if vocabulary is None:
        return [f"[{token}]" for token in ids]
    return [vocabulary[token] if 0 <= token < len(vocabulary) else f"[{token}]" for token in ids]


def _levels(tokens: pd.DataFrame) -> list[_Level]:
    levels = []
    if "trainer_logprobs" in tokens:
        gap = (tokens["trainer_logprobs"] - tokens["rollout_logprob"]).abs().to_numpy()
        levels.append(
            _Level("g", np.where(np.isfinite(gap), np.searchsorted(GAP_EDGES, gap), len(GAP_EDGES)), plain=0)
        )
    sampled = tokens["sampled"].to_numpy()
    if "advantages" in tokens:
        advantage = np.nan_to_num(tokens["advantages"].to_numpy(dtype=np.float64))
        scale = np.abs(advantage[sampled]).max() or 1.0
        levels.append(_Level("a", np.rint(3 + 3 * np.clip(advantage / scale, -1, 1)).astype(int), plain=3))
    if "values" in tokens:
        value = np.nan_to_num(tokens["values"].to_numpy(dtype=np.float64))
        low, span = value[sampled].min(), np.ptp(value[sampled]) or 1.0
        levels.append(
            _Level("v", np.clip((_LEVELS * (value - low) / span).astype(int), 0, _LEVELS - 1), plain=0)
        )
    if "flipped_layers" in tokens:
        flips = np.nan_to_num(tokens["flipped_layers"].to_numpy(dtype=np.float64))
        levels.append(_Level("f", np.minimum(flips.astype(int), 3), plain=0))
    return levels


def _title(numbers: Mapping[str, np.ndarray], start: int, end: int) -> str:
    place, version = numbers["position"][start], numbers["weight_version"][start]
    shown = [(name, numbers[column][start:end]) for column, name in _TITLED.items() if column in numbers]
    if end == start + 1:
        told = ", ".join(f"{name} {part[0]:.4g}" for name, part in shown)
        return f"token {place}, id {numbers['token_id'][start]}, version {version}; {told}"
    told = ", ".join(f"{name} {part.min():.3g} to {part.max():.3g}" for name, part in shown)
    return f"tokens {place} to {place + end - start - 1}, version {version}; {told}"
