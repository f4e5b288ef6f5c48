"""Supervised rows from the practice corpus: what a perfect trial would have said, as training rows."""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from t1core.agent.dialogue import dialogue_text, write_dialogue
from t1core.agent.prompt import Wording
from t1core.agent.tokenizer import ChatTokenizer
from t1core.records import Batch, RowStatus, TrainingRow
from t1core.tasks.corpus import Example, demonstration_stream


def demonstration_texts(*, seed: int, count: int, wording: Wording) -> Iterator[str]:
    """Dialogues as text, to train a tokenizer on."""
    for example in islice(demonstration_stream(seed), count):
        yield dialogue_text(example.instruction, _lines(example), wording)


def demonstration_batches(
    *, seed: int, tokens: int, tokenizer: ChatTokenizer, wording: Wording
) -> Iterator[Batch]:
    """Endless batches of whole dialogues, each batch at least `tokens` long in total."""
    rows: list[TrainingRow] = []
    size = step = 0
    for index, example in enumerate(demonstration_stream(seed)):
        dialogue = write_dialogue(example.instruction, _lines(example), tokenizer=tokenizer, wording=wording)
        length = len(dialogue.tokens)
        rows.append(
            TrainingRow(
                rollout_id=f"demonstration-{index}",
                chunk=0,
                tokens=dialogue.tokens,
                response_length=length - int(np.argmax(dialogue.loss_mask)),
                loss_mask=dialogue.loss_mask,
                rollout_log_probs=np.zeros(length, np.float32),
                rollout_routed_experts=None,
                weight_versions=np.where(dialogue.loss_mask, 0, -1).astype(np.int32),
                reward=0.0,
                status=RowStatus.COMPLETED,
                spans=(),
            )
        )
        size += length
        if size >= tokens:
            yield Batch.from_rows(rows, step=step, num_tests=[1] * len(rows))
            rows, size, step = [], 0, step + 1


def _lines(example: Example) -> list[tuple[str, str]]:
    return [("; ".join(turn.commands), turn.output) for turn in example.demonstration.turns]
