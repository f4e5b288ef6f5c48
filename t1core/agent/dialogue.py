"""Supervised dialogues from demonstrations: the token stream a perfect trial would have, with the completions marked.

The terminal's side is computed, not run: the prompt line, the typed line, what it prints. A test holds these dialogues
against real boxes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from t1core.agent.prompt import Wording
from t1core.agent.response import Command, render_response
from t1core.agent.tokenizer import ChatTokenizer
from t1core.sandbox.sandbox import TERMINAL_WIDTH

PROMPT_LINE = "root@box:/app#"
FIRST_SCREEN = f"Current Terminal Screen:\n\n{PROMPT_LINE}"
DURATION_S = 0.5


@dataclass(frozen=True)
class Dialogue:
    """tokens int32 [N]; loss_mask uint8 [N], 1 at the tokens a policy would have sampled."""

    tokens: np.ndarray
    loss_mask: np.ndarray


def responses(lines: Sequence[str]) -> list[str]:
    """What the model would answer, turn by turn: a shell line each, the claim with the last, its confirmation. Without
    lines it claims completion having done nothing."""
    if not lines:
        idle = render_response((), analysis="start", plan="confirm", task_complete=True)
        return [idle, render_response((), analysis="done", plan="confirm", task_complete=True)]
    last = len(lines) - 1
    answers = [
        render_response(
            (Command(line + "\n", DURATION_S),),
            analysis="start" if i == 0 else "seen",
            plan="act" if i == last else "look",
            task_complete=i == last,
        )
        for i, line in enumerate(lines)
    ]
    return [*answers, render_response((), analysis="done", plan="confirm", task_complete=True)]


def observations(turns: Sequence[tuple[str, str]], wording: Wording) -> list[str]:
    """What the terminal answers to each turn's line, given the text it prints; the last one asks for confirmation.
    A turn without a line, the only one there, is shown the screen as it stands."""
    if not turns:
        return [wording.confirm_completion(FIRST_SCREEN)]
    texts = [
        "New Terminal Output:\n\n" + _as_rows(f"{PROMPT_LINE} {line}\n{output}{PROMPT_LINE}")
        for line, output in turns
    ]
    return [*texts[:-1], wording.confirm_completion(texts[-1])]


def _as_rows(text: str) -> str:
    """Text as a terminal shows it: cut at its width, blanks at the end of a row gone."""
    rows = []
    for line in text.split("\n"):
        starts = range(0, max(1, len(line)), TERMINAL_WIDTH)
        rows += [line[start : start + TERMINAL_WIDTH].rstrip() for start in starts]
    return "\n".join(rows)


def write_dialogue(
    instruction: str, turns: Sequence[tuple[str, str]], *, tokenizer: ChatTokenizer, wording: Wording
) -> Dialogue:
    """Token stream of a demonstration given as (shell line, printed text) a turn."""
    pieces = [tokenizer.first_prompt(wording.first_prompt(instruction, FIRST_SCREEN))]
    sampled = [False]
    answers = responses([line for line, _ in turns])
    heard = observations(turns, wording)
    for i, answer in enumerate(answers):
        pieces.append(np.append(tokenizer.encode(answer), np.int32(tokenizer.im_end)))
        sampled.append(True)
        if i < len(heard):
            pieces.append(tokenizer.reply(heard[i], closed=True))
            sampled.append(False)
    tokens = np.concatenate(pieces).astype(np.int32)
    mask = np.concatenate(
        [np.full(len(piece), flag, np.uint8) for piece, flag in zip(pieces, sampled, strict=True)]
    )
    return Dialogue(tokens, mask)


def dialogue_text(instruction: str, turns: Sequence[tuple[str, str]], wording: Wording) -> str:
    """The same dialogue as text, to train a tokenizer on."""
    parts = ["user\n", wording.first_prompt(instruction, FIRST_SCREEN), "\n"]
    answers = responses([line for line, _ in turns])
    for answer, observation in zip(answers, [*observations(turns, wording), ""], strict=True):
        parts += ["assistant\n", answer, "\nuser\n", observation, "\n"]
    return "".join(parts)
