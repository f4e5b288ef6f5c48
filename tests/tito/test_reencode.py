"""Rows as a trainer without token fidelity would have them: worked by hand on a toy vocabulary."""

from dataclasses import replace

import numpy as np

from t1core.records import PrefixRelation, RowStatus, TrainingRow, TurnSpan
from t1core.tito import audit, reencoded_row

# 1 a, 2 b, 3 ab, 4 c, 9 a special; the encoder takes the longest, so the policy's [1, 2] comes back as [3]
TEXTS = {1: "a", 2: "b", 3: "ab", 4: "c"}


def decode(ids):
    return "".join(TEXTS[int(i)] for i in ids)


def encode(text):
    ids = []
    while text:
        found = max((i for i in TEXTS if text.startswith(TEXTS[i])), key=lambda i: len(TEXTS[i]))
        ids.append(found)
        text = text[len(TEXTS[found]) :]
    return np.array(ids, dtype=np.int32)


def row_of(tokens, spans):
    n = len(tokens)
    mask = np.zeros(n, np.uint8)
    for start, end in spans:
        mask[start:end] = 1
    place = np.arange(n)
    return TrainingRow(
        rollout_id="r",
        chunk=0,
        tokens=np.array(tokens, np.int32),
        response_length=n - spans[0][0],
        loss_mask=mask,
        rollout_log_probs=np.where(mask, -0.1 * place, 0).astype(np.float32),
        rollout_routed_experts=np.tile(place[:-1, None, None], (1, 2, 1)).astype(np.uint8),
        weight_versions=np.where(mask, 7, -1).astype(np.int32),
        reward=0.5,
        status=RowStatus.COMPLETED,
        spans=tuple(
            TurnSpan(f"c{i}", start, end, PrefixRelation.STRICT) for i, (start, end) in enumerate(spans)
        ),
    )


def again(row):
    return reencoded_row(row, encode=encode, decode=decode, specials=(9,))


def test_an_answer_that_its_text_encodes_to_stays_as_it_is():
    row = row_of([4, 4, 3, 9, 4, 1, 4, 9], [(2, 4), (5, 8)])
    made = again(row)
    for name in ("tokens", "loss_mask", "rollout_log_probs", "rollout_routed_experts", "weight_versions"):
        assert np.array_equal(getattr(made, name), getattr(row, name)), name
    assert made.spans == row.spans and made.response_length == row.response_length


def test_a_shorter_encoding_moves_what_follows_and_takes_its_streams_place_by_place():
    # context 4 4 | answer a b <9> | context 4 | answer a <9>
    made = again(row_of([4, 4, 1, 2, 9, 4, 1, 9], [(2, 5), (6, 8)]))
    assert made.tokens.tolist() == [4, 4, 3, 9, 4, 1, 9]
    assert made.loss_mask.tolist() == [0, 0, 1, 1, 0, 1, 1]
    # the first answer's two ids take places 2 and 3; the third place falls away
    assert np.allclose(made.rollout_log_probs, [0, 0, -0.2, -0.3, 0, -0.6, -0.7])
    assert made.rollout_routed_experts[:, 0, 0].tolist() == [0, 1, 2, 3, 5, 6]
    assert [(span.start, span.end) for span in made.spans] == [(2, 4), (5, 7)]
    assert made.response_length == 5


def test_a_longer_encoding_repeats_the_last_place():
    def spelt(text):
        return np.array([{"a": 1, "b": 2, "c": 4}[letter] for letter in text], np.int32)

    row = row_of([4, 3, 9, 4], [(1, 3)])
    made = reencoded_row(row, encode=spelt, decode=decode, specials=(9,))
    assert made.tokens.tolist() == [4, 1, 2, 9, 4]
    assert np.allclose(made.rollout_log_probs, [0, -0.1, -0.2, -0.2, 0])
    assert made.rollout_routed_experts[:, 0, 0].tolist() == [0, 1, 2, 2]
    assert made.weight_versions.tolist() == [-1, 7, 7, 7, -1]


def test_the_auditor_sees_it():
    from t1core.records import ModelCall

    prompt, sampled = np.array([4, 4], np.int32), np.array([1, 2, 9], np.int32)
    row = row_of([4, 4, 1, 2, 9], [(2, 5)])
    call = ModelCall(
        "c0", "r", None, prompt, sampled, row.rollout_log_probs[2:], "stop", 7,
        np.full(3, 7, np.int32), row.rollout_routed_experts, 0,
    )  # fmt: skip
    assert audit([call], [row]).drift_frac == 0
    found = audit([call], [again(row)])
    assert found.drift_frac == 1 and found.delivered_token_frac == 0
    assert audit([call], [again(replace(row, tokens=np.array([4, 4, 3, 4, 9], np.int32)))]).problems
