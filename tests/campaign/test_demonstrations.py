import random
from itertools import islice

import numpy as np
import pytest

from t1core.agent.prompt import WORDINGS
from t1core.agent.tokenizer import train_tokenizer
from t1core.campaign.demonstrations import demonstration_batches, demonstration_texts, unfinished
from t1core.tasks.practice.exercise import OracleTurn

WORDING = WORDINGS["compact"]
LOOK, ACT = OracleTurn(("cat a",), ("x\n",)), OracleTurn(("echo x > b", "echo y > c"), ("", ""))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    texts = demonstration_texts(seed=0, count=400, wording=WORDING)
    return train_tokenizer(texts, tmp_path_factory.mktemp("tokenizer"), vocab_size=640)


def batches(tokenizer, **options):
    options = {"seed": 1, "tokens": 3000, "tokenizer": tokenizer, "wording": WORDING} | options
    return list(islice(demonstration_batches(**options), 4))


def test_an_unfinished_demonstration_leaves_out_last_commands_and_keeps_what_they_printed():
    seen = {
        tuple(command for turn in unfinished((LOOK, ACT), random.Random(seed)) for command in turn.commands)
        for seed in range(30)
    }
    assert seen == {("cat a",), ("cat a", "echo x > b")}
    only = OracleTurn(("mkdir a",), ("",))
    assert unfinished((only,), random.Random(0)) == (only,)


def test_the_same_seed_gives_the_same_batches(tokenizer):
    one, two = batches(tokenizer), batches(tokenizer)
    assert all(np.array_equal(a.tokens, b.tokens) for a, b in zip(one, two, strict=True))
    assert not np.array_equal(one[0].tokens, batches(tokenizer, seed=2)[0].tokens)


def test_only_answers_carry_a_loss_and_each_ends_its_message(tokenizer):
    (batch, *_) = batches(tokenizer)
    mask = batch.loss_mask.astype(bool)
    ends = np.flatnonzero(mask & ~np.append(mask[1:], False))
    assert (batch.tokens[ends] == tokenizer.im_end).all()
    first = batch.tokens[: batch.cu_seqlens[1]][mask[: batch.cu_seqlens[1]]]
    assert tokenizer.decode(first).startswith('{"analysis":"start","plan":"')


def test_the_curriculum_starts_with_lists_and_short_rows_and_ends_with_whole_dialogues(tokenizer):
    lists = batches(tokenizer, copying_steps=4)[0]
    short = batches(tokenizer, first_turn_steps=4)[0]
    whole = batches(tokenizer)[0]
    mean = [batch.num_tokens / len(batch) for batch in (lists, short, whole)]
    assert mean[0] < mean[1] < mean[2]
    assert whole.num_tokens / len(whole) > 150  # whole dialogues alone, no list among them


def test_unfinished_demonstrations_are_shorter(tokenizer):
    whole = batches(tokenizer)[0]
    cut = batches(tokenizer, unfinished_share=1.0)[0]
    assert cut.num_tokens / len(cut) < whole.num_tokens / len(whole)
