from itertools import islice

import numpy as np
import pytest

from t1core.agent.dialogue import FIRST_SCREEN
from t1core.agent.prompt import WORDINGS
from t1core.agent.tokenizer import train_tokenizer
from t1core.campaign.demonstrations import demonstration_batches, demonstration_texts

WORDING = WORDINGS["compact"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    texts = demonstration_texts(seed=0, count=400, wording=WORDING)
    return train_tokenizer(texts, tmp_path_factory.mktemp("tokenizer"), vocab_size=640)


def batches(tokenizer, **options):
    options = {"seed": 1, "tokens": 3000, "tokenizer": tokenizer, "wording": WORDING} | options
    return list(islice(demonstration_batches(**options), 4))


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


def test_an_idle_demonstration_claims_completion_twice_and_types_nothing(tokenizer):
    (batch, *_) = batches(tokenizer, idle_share=0.8)
    mask = batch.loss_mask.astype(bool)
    num_idle = 0
    for start, end in zip(batch.cu_seqlens[:-1], batch.cu_seqlens[1:], strict=True):
        said = tokenizer.decode(batch.tokens[start:end][mask[start:end]])
        if "keystrokes" in said:
            continue
        num_idle += 1
        assert said.count('"commands":[],"task_complete":true') == 2
        assert WORDING.confirm_completion(FIRST_SCREEN) in tokenizer.decode(batch.tokens[start:end])
    assert num_idle


def test_the_idle_share_is_the_share_of_idle_demonstrations(tokenizer):
    made = batches(tokenizer, idle_share=0.4, tokens=20_000)
    rows = [
        tokenizer.decode(batch.tokens[start:end])
        for batch in made
        for start, end in zip(batch.cu_seqlens[:-1], batch.cu_seqlens[1:], strict=True)
    ]
    assert 0.3 < sum("keystrokes" not in row for row in rows) / len(rows) < 0.5
