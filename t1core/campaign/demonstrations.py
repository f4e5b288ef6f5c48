"""Supervised rows from the practice corpus: what a perfect trial would have said, as training rows."""

import random
from collections.abc import Iterator, Sequence
from itertools import count, islice

import numpy as np

from t1core.agent.dialogue import dialogue_text, write_dialogue
from t1core.agent.prompt import Wording
from t1core.agent.tokenizer import ChatTokenizer
from t1core.records import Batch, RowStatus, TrainingRow
from t1core.tasks.corpus import demonstration_stream
from t1core.tasks.practice.exercise import OracleTurn
from t1core.tasks.words import WORDS

COPYING_SHARE, FIRST_TURN_SHARE = 0.7, 0.8
ENDINGS = ("", ".txt", ".md", ".csv", ".log")


def demonstration_texts(*, seed: int, count: int, wording: Wording) -> Iterator[str]:
    """Dialogues as text, to train a tokenizer on."""
    for example in islice(demonstration_stream(seed), count):
        yield dialogue_text(example.instruction, _lines(example.demonstration.turns), wording)


def demonstration_batches(
    *,
    seed: int,
    tokens: int,
    tokenizer: ChatTokenizer,
    wording: Wording,
    copying_steps: int = 0,
    first_turn_steps: int = 0,
    idle_from: int = 0,
    idle_share: float = 0.0,
) -> Iterator[Batch]:
    """Endless batches from easy to whole, each of at least `tokens` tokens beside its idle examples.

    The first `copying_steps` batches are mostly word lists to repeat; up to `first_turn_steps` most dialogues end with
    their first answer; from then on all are whole. From step `idle_from` on `idle_share` of the examples claim
    completion having done nothing.
    """
    assert idle_share < 1.0, "idle examples alone never fill a batch"
    draw = random.Random(seed)
    examples = demonstration_stream(seed)
    for step in count():
        rows: list[TrainingRow] = []
        left = tokens
        while left > 0:
            if step < copying_steps and draw.random() < COPYING_SHARE:
                rows.append(_row(*_word_list(draw, tokenizer)))
                left -= len(rows[-1].tokens)
                continue
            example = next(examples)
            is_idle = step >= idle_from and draw.random() < idle_share
            turns = () if is_idle else example.demonstration.turns
            dialogue = write_dialogue(
                example.instruction, _lines(turns), tokenizer=tokenizer, wording=wording
            )
            end = len(dialogue.tokens)
            if step < first_turn_steps and draw.random() < FIRST_TURN_SHARE:
                start = int(np.argmax(dialogue.loss_mask))
                end = start + int(np.argmin(dialogue.loss_mask[start:]))
            rows.append(_row(dialogue.tokens[:end], dialogue.loss_mask[:end]))
            left -= 0 if is_idle else end
        yield Batch.from_rows(rows, step=step, num_tests=[1] * len(rows))


def _word_list(draw: random.Random, tokenizer: ChatTokenizer) -> tuple[np.ndarray, np.ndarray]:
    """A line of names three times over; the repetitions are to be predicted."""
    names = [draw.choice(WORDS) + draw.choice(ENDINGS) for _ in range(draw.randint(3, 6))]
    line = tokenizer.encode(" ".join(names) + "\n")
    mask = np.ones(3 * len(line), np.uint8)
    mask[: len(line)] = 0
    return np.tile(line, 3), mask


def _row(tokens: np.ndarray, loss_mask: np.ndarray) -> TrainingRow:
    length = len(tokens)
    return TrainingRow(
        rollout_id="demonstration",
        chunk=0,
        tokens=tokens,
        response_length=length - int(np.argmax(loss_mask)),
        loss_mask=loss_mask,
        rollout_log_probs=np.zeros(length, np.float32),
        rollout_routed_experts=None,
        weight_versions=np.where(loss_mask, 0, -1).astype(np.int32),
        reward=0.0,
        status=RowStatus.COMPLETED,
        spans=(),
    )


def _lines(turns: Sequence[OracleTurn]) -> list[tuple[str, str]]:
    return [("; ".join(turn.commands), turn.output) for turn in turns]
