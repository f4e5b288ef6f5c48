"""Summaries that are asked for where they no longer fit.

Terminus-2, which T1's agent came from, asks for a summary when fewer than 8,000 tokens of the window are free, and
before it asks takes message pairs away until 4,000 are. T1's asks had `max_new_tokens` of 8,192. A call fits when
prompt + max_new_tokens <= window, so one that leaves 4,000 to 8,000 tokens free never does.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class SummaryRule:
    """Tokens: of the window, free below which a summary is asked for, free before it is asked, and of the answer."""

    window: int = 86_016
    trigger_free: int = 8_000
    unwound_free: int = 4_000
    answer: int = 8_192

    @property
    def trigger(self) -> int:
        """Prompts above this are summarised."""
        return self.window - self.trigger_free

    @property
    def longest_that_fits(self) -> int:
        """The longest prompt that leaves room for the answer."""
        return self.window - self.answer


def dialogues(num: int, *, seed: int, median: int = 1_400, spread: float = 0.8) -> list[np.ndarray]:
    """Message pairs in tokens (log-normal), enough for each dialogue to outgrow any window."""
    rng = np.random.default_rng(seed)
    return [np.exp(rng.normal(np.log(median), spread, size=400)).astype(int) + 1 for _ in range(num)]


def asked_summaries(pairs: list[np.ndarray], *, rule: SummaryRule) -> pd.DataFrame:
    """The first summary of each dialogue: the prompt when it is asked for, after unwinding, and whether it fits."""
    rows = []
    for dialogue in pairs:
        lengths = dialogue.cumsum()
        last = int(np.argmax(lengths > rule.trigger))
        grown = int(lengths[last])
        while lengths[last] > rule.window - rule.unwound_free:
            last -= 1
        asked = int(lengths[last])
        rows.append(
            dict(prompt=grown, asked=asked, needs=asked + rule.answer, fits=asked <= rule.longest_that_fits)
        )
    return pd.DataFrame(rows)


def asked_before_sending(pairs: list[np.ndarray], *, trigger: int, rule: SummaryRule) -> pd.DataFrame:
    """The same dialogues where a prompt above `trigger` is not sent and what came before it is summarised."""
    rows = []
    for dialogue in pairs:
        lengths = dialogue.cumsum()
        asked = int(lengths[int(np.argmax(lengths > trigger)) - 1])
        rows.append(dict(asked=asked, needs=asked + rule.answer, fits=asked <= rule.longest_that_fits))
    return pd.DataFrame(rows)
