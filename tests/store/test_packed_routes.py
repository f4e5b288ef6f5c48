"""Routes packed for the disk: nothing is lost, the size is 53 bits a set, and what is no set is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest

from t1core.config import load_config
from t1core.records import Batch
from t1core.store.packed_routes import BITS_PER_SET, pack, packed_bytes, unpack
from t1core.store.token_file import read_batch, read_token_frame, write_tokens


def random_sets(count, *, experts=256, seed=0):
    scores = np.random.default_rng(seed).random((count, experts))
    return np.sort(np.argpartition(scores, 8, axis=1)[:, :8], axis=1).astype(np.uint8)


@pytest.mark.parametrize("num_tokens", [1, 2, 3, 7, 171])
def test_every_set_comes_back(num_tokens):
    routes = random_sets(num_tokens * 48).reshape(num_tokens, 48, 8)
    packed = pack(routes)
    assert packed.nbytes == packed_bytes(num_tokens * 48) == num_tokens * 318
    assert np.array_equal(unpack(packed, shape=routes.shape), routes)


def test_odd_counts_blocks_and_the_outermost_sets_come_back():
    ends = np.array([[0, 1, 2, 3, 4, 5, 6, 7], [248, 249, 250, 251, 252, 253, 254, 255]], np.uint8)
    steps = np.array([[31, 32, 63, 64, 95, 96, 127, 128], [0, 32, 64, 96, 128, 160, 192, 224]], np.uint8)
    for sets in (ends, steps, random_sets(1), random_sets(9), random_sets(8193, experts=40), random_sets(0)):
        assert np.array_equal(unpack(pack(sets), shape=sets.shape), sets)


def test_the_first_set_and_its_neighbour_written_out():
    # Ids 0..7: lower parts 0..7 lie two to a byte, j and j + 4; no fifth bit; upper parts all 0, which rank first.
    first = pack(np.array([[0, 1, 2, 3, 4, 5, 6, 7]], np.uint8))
    assert first[:4].tolist() == [0x40, 0x51, 0x62, 0x73]
    # Packed sets come in groups of 8; the seven others are fillers, equal to this one.
    assert first[32:40].tolist() == [0] * 8 and not first[40:].any() and len(first) == 53
    # 7 + 16 has the fifth bit; 7 + 32 has upper part 1 in the last place: the second multiset there is.
    assert pack(np.array([[0, 1, 2, 3, 4, 5, 6, 23]], np.uint8))[32] == 0b1000_0000
    assert pack(np.array([[0, 1, 2, 3, 4, 5, 6, 39]], np.uint8))[40] == math.comb(8, 8)


def test_the_size_is_within_a_tenth_of_what_a_set_can_take_at_least():
    assert math.log2(math.comb(256, 8)) == pytest.approx(48.54, abs=0.01)
    assert BITS_PER_SET / math.log2(math.comb(256, 8)) < 1.1


@pytest.mark.parametrize(
    ("routes", "why"),
    [
        (np.array([[7, 6, 5, 4, 3, 2, 1, 0]], np.uint8), "strictly ascending"),
        (np.array([[0, 1, 2, 3, 4, 5, 6, 6]], np.uint8), "strictly ascending"),
        (np.array([[0, 1]], np.uint8), "with 2 experts a set"),
        (np.arange(8, dtype=np.int32)[None], "int32 with 8 experts"),
    ],
)
def test_what_is_no_set_of_8_is_refused(routes, why):
    with pytest.raises(ValueError, match=why):
        pack(routes)


def _batch(num_tokens=6):
    return Batch(
        step=3, rollout_ids=("a", "b"), tokens=np.arange(num_tokens, dtype=np.int32),
        cu_seqlens=np.array([0, 2, num_tokens]), loss_mask=np.ones(num_tokens, np.uint8),
        rollout_log_probs=np.zeros(num_tokens, np.float32), weight_versions=np.zeros(num_tokens, np.int32),
        routed_experts=random_sets(4 * (num_tokens - 2)).reshape(num_tokens - 2, 4, 8),
        rewards=np.zeros(2, np.float32), num_tests=np.ones(2, np.int32),
    )  # fmt: skip


def test_a_step_stored_packed_reads_like_one_stored_plain(tmp_path):
    batch = _batch()
    for name, packed in (("plain", False), ("packed", True)):
        write_tokens(tmp_path / name, batch, per_token={}, pack_routes=packed)
        again, per_token = read_batch(tmp_path / name)
        assert per_token == {}
        assert np.array_equal(again.routed_experts, batch.routed_experts)
        assert read_token_frame(tmp_path / name)["token_id"].tolist() == list(range(6))
    without = replace(batch, routed_experts=None)
    write_tokens(tmp_path / "none", without, per_token={}, pack_routes=True)
    assert read_batch(tmp_path / "none")[0].routed_experts is None


def test_packing_other_than_8_experts_a_token_is_refused_in_the_configuration():
    with pytest.raises(
        ValueError, match=r"pack_routes=true packs 8 experts a token, model.num_experts_per_tok=2"
    ):
        load_config("quickstart", ["pack_routes=true"])
    tree = load_config(
        "quickstart", ["pack_routes=true", "model.num_experts=16", "model.num_experts_per_tok=8"]
    )
    assert tree.pack_routes
