"""One trial as a page: static HTML in one file, no script, nothing loaded, everything the trial wrote
escaped.

Turns are folded by `<details>`; the token view is coloured by what a radio button picks, through CSS alone. A
content policy in the page forbids scripts and loading besides, should anything ever slip through.
"""

from dataclasses import dataclass
from importlib import resources
from typing import Any

import pandas as pd

from t1core.store import StoredTrial
from t1core.view.ansi import ansi_html
from t1core.view.escape import visible
from t1core.view.token_strip import largest_gaps, strip_legend, token_strips, turn_table, value_jumps

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


@dataclass(frozen=True)
class TrialPage:
    """A page; notebooks show it in a frame of its own that runs no script."""

    html: str
    height_px: int = 640

    def _repr_html_(self) -> str:
        # In such a frame a bare fragment would be looked up in the page around it. Nothing a trial wrote can hold an
        # unescaped quote, so every such link is ours.
        source = (
            self.html.replace('href="#', 'href="about:srcdoc#').replace("&", "&amp;").replace('"', "&quot;")
        )
        style = (
            f"width:100%;height:{self.height_px}px;border:1px solid #ccc;box-sizing:border-box;display:block"
        )
        return f'<iframe sandbox="" srcdoc="{source}" style="{style}"></iframe>'


def trial_page(stored: StoredTrial) -> TrialPage:
    """The page of one trial, as run.trajectory(id) gives it.

    A trained trial also shows each turn's tokens, as text where the run kept its vocabulary.
    """
    trial, turns, tests = stored.trial, stored.turns, stored.tests
    tokens, vocabulary = stored.tokens, stored.vocabulary
    if tokens is not None:
        tokens = tokens.assign(turn=_turn_of_token(tokens, turns))
    strips = token_strips(tokens, vocabulary=vocabulary) if tokens is not None else {}
    blocks = [_turn(turn, strips.get(turn.index, "")) for turn in turns.itertuples(index=False)]
    css = resources.files("t1core.view").joinpath("trajectory.css").read_text()
    body = [
        f"<h1>{visible(trial['trial_id'])}</h1>",
        _facts(trial),
        _failure(trial),
        _tests(tests),
        _fold("grader output", _pre(trial["grader_output"])) if _given(trial["grader_output"]) else "",
        *(_token_overview(tokens, vocabulary) if tokens is not None else []),
        f"<h2>{len(turns)} turns</h2>",
        *blocks,
    ]
    return TrialPage(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{visible(trial['trial_id'])}</title><style>{css}</style></head>"
        f"<body>{''.join(body)}</body></html>"
    )


def _turn_of_token(tokens: pd.DataFrame, turns: pd.DataFrame) -> pd.Series:
    """Index of the turn whose call sampled each token, -1 elsewhere; where the run kept no spans, the sampled stretches
    counted through the trial."""
    calls = tokens["model_call_id"].astype(object)
    if calls.notna().any():
        index = dict(zip(turns["model_call_id"], turns["index"], strict=True))
        return calls.map(index).fillna(-1).astype(int)
    stretches = (tokens.groupby("row")["turn"].max() + 1).cumsum().shift(fill_value=0)
    return tokens["turn"].where(~tokens["sampled"], tokens["turn"] + tokens["row"].map(stretches)).astype(int)


def _token_overview(tokens: pd.DataFrame, vocabulary: list[str] | None) -> list[str]:
    return [
        strip_legend(tokens),
        turn_table(tokens),
        value_jumps(tokens, vocabulary=vocabulary),
        largest_gaps(tokens, vocabulary=vocabulary),
    ]


def _facts(trial: pd.Series) -> str:
    passed = f"{int(trial['passed'])} of {int(trial['total'])}" if _given(trial["passed"]) else "not graded"
    facts = {
        "task": trial["task_id"],
        "family": trial["family"],
        "split": trial["split"],
        "step": trial["step"],
        "outcome": trial["outcome"],
        "stop reason": trial["stop_reason"],
        "reward": f"{trial['reward']:.3f} ({trial['reward_source']})" if _given(trial["reward"]) else "none",
        "tests passed": passed,
        "sampled tokens": trial["sampled_tokens"],
        "flags": ", ".join(trial["flags"]) or "none",
    }
    facts |= {
        name.removeprefix("time_").removesuffix("_s") + " time": f"{trial[name]:.2f} s"
        for name in trial.index
        if name.startswith("time_") and _given(trial[name])
    }
    rows = "".join(f"<dt>{visible(name)}</dt><dd>{visible(value)}</dd>" for name, value in facts.items())
    return f"<dl>{rows}</dl>"


def _failure(trial: pd.Series) -> str:
    if not _given(trial["failure_kind"]):
        return ""
    where = f"{visible(trial['failure_boundary'])}: {visible(trial['failure_kind'])}"
    return f'<p class="bad"><b>broken by {where}</b></p>{_pre(trial["failure_message"])}'


def _tests(tests: pd.DataFrame) -> str:
    if tests.empty:
        return ""
    items = []
    for test in tests.itertuples():
        good = test.status == "passed"
        line = f'<span class="{"good" if good else "bad"}">{visible(test.status)}</span> {visible(test.name)}'
        items.append(f"<li>{_fold(line, _pre(test.message)) if test.message else line}</li>")
    passed = int((tests["status"] == "passed").sum())
    return _fold(f"tests: {passed} of {len(tests)} passed", f"<ul>{''.join(items)}</ul>", is_open=True)


def _turn(turn: Any, strip: str) -> str:
    keys = "".join(command["keystrokes"] for command in turn.commands)
    marks = []
    if turn.is_parse_error:
        marks.append('<span class="bad">did not parse</span>')
    if turn.is_completion_claim:
        marks.append('<span class="good">claims completion</span>')
    if turn.is_summary:
        lost = turn.is_summary_lost
        marks.append(
            f'<span class="{"bad" if lost else "good"}">history summarised{", and lost" if lost else ""}</span>'
        )
    if len(turn.repairs):
        marks.append(f"<small>mended: {visible('; '.join(turn.repairs))}</small>")
    if turn.is_wait_expired:
        marks.append("<small>its wait ran out</small>")
    first = keys.strip().splitlines()[0][:100] if keys.strip() else "no command"
    summary = (
        f"turn {turn.index} <code>{visible(first)}</code> {' '.join(marks)} <small>"
        f"{turn.generated_s - turn.started_s:.2f} s to answer, {turn.ended_s - turn.generated_s:.2f} s in the terminal"
        "</small>"
    )
    parts = [
        "<h3>typed</h3>" + _pre(keys) if keys else "",
        "<h3>terminal, as the model was shown it</h3>" + _pre(turn.observation) if turn.observation else "",
        _fold("screen", f'<pre class="screen">{ansi_html(turn.colours or turn.screen)}</pre>')
        if turn.colours or turn.screen
        else "",
        _fold("answer in full", _pre(turn.response)),
        _fold("tokens", strip) if strip else "",
    ]
    return _fold(summary, "".join(parts), css="turn", anchor=f"turn-{turn.index}")


def _fold(summary: str, content: str, *, is_open: bool = False, css: str = "", anchor: str = "") -> str:
    """A fold; `summary` and `content` are HTML already."""
    return (
        f'<details class="{css}" id="{anchor}"{" open" if is_open else ""}>'.replace(' class=""', "").replace(
            ' id=""', ""
        )
        + f"<summary>{summary}</summary>{content}</details>"
    )


def _pre(text: str) -> str:
    return f"<pre>{visible(text)}</pre>"


def _given(value: object) -> bool:
    return not (value is None or value == "" or pd.isna(value))
