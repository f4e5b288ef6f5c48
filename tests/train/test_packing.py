"""Packing: every stream goes through one index, and unpacking gives back what went in."""

import numpy as np
import pytest

from t1core.records import Batch
from t1core.train.packing import assign_rows, pack_rows

EXPERTS, LAYERS, TOPK = 8, 3, 2


def _batch(lengths, seed=0):
    generator = np.random.default_rng(seed)
    total = sum(lengths)
    routes = np.sort(
        np.argsort(generator.random((total - len(lengths), LAYERS, EXPERTS)), axis=-1)[..., :TOPK], axis=-1
    )
    return Batch(
        step=0,
        rollout_ids=tuple(f"r{i}" for i in range(len(lengths))),
        tokens=np.arange(100, 100 + total, dtype=np.int32),
        cu_seqlens=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        loss_mask=generator.integers(0, 2, total).astype(np.uint8),
        rollout_log_probs=-generator.random(total).astype(np.float32),
        weight_versions=np.zeros(total, dtype=np.int32),
        routed_experts=routes.astype(np.uint8),
        rewards=np.zeros(len(lengths), dtype=np.float32),
        num_tests=np.ones(len(lengths), dtype=np.int32),
    )


def test_two_rows_written_out():
    batch = _batch([3, 2])
    micro = pack_rows(batch, rows=[0, 1], row_multiple=4)
    assert micro.token_source.tolist() == [0, 1, 2, -1, 3, 4, -1, -1]
    assert micro.target_source.tolist() == [1, 2, -1, -1, 4, -1, -1, -1]
    assert micro.route_source.tolist() == [0, 1, -1, -1, 2, -1, -1, -1]
    assert micro.position_ids.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert micro.cu_seqlens.tolist() == [0, 4, 8]
    assert micro.gather_tokens(batch.tokens).tolist() == [100, 101, 102, 0, 103, 104, 0, 0]
    assert micro.gather_targets(batch.tokens).tolist() == [101, 102, 0, 0, 104, 0, 0, 0]


def test_the_mask_at_a_position_is_that_of_the_token_it_predicts_and_a_first_token_is_never_predicted():
    batch = _batch([4, 3])
    mask = np.array([1, 0, 1, 1, 1, 1, 0], dtype=np.uint8)
    micro = pack_rows(batch, rows=[0, 1])
    assert micro.gather_targets(mask).tolist() == [0, 1, 1, 0, 1, 0, 0]


@pytest.mark.parametrize(("cp_size", "row_multiple"), [(1, 1), (1, 8), (2, 4), (4, 8), (2, 8)])
def test_every_token_target_and_route_is_held_exactly_once_over_the_ranks(cp_size, row_multiple):
    lengths = [5, 1, 16, 9, 2, 31]
    batch = _batch(lengths)
    seen = {name: [] for name in ("token_source", "target_source", "route_source")}
    for rows in assign_rows(batch.lengths(), max_tokens=32, num_ranks=1)[0]:
        for rank in range(cp_size):
            micro = pack_rows(batch, rows=rows, row_multiple=row_multiple, cp_size=cp_size, cp_rank=rank)
            assert len(micro) * cp_size == micro.cu_seqlens[-1]
            for name, values in seen.items():
                values.extend(getattr(micro, name)[getattr(micro, name) >= 0].tolist())
    assert sorted(seen["token_source"]) == list(range(64))
    firsts = set(batch.cu_seqlens[:-1].tolist())
    assert sorted(seen["target_source"]) == [t for t in range(64) if t not in firsts]
    assert sorted(seen["route_source"]) == list(range(64 - len(lengths)))


@pytest.mark.parametrize("cp_size", [1, 2])
def test_routes_follow_their_tokens_through_padding_order_and_zigzag(cp_size):
    batch = _batch([5, 7, 12, 3])
    for rank in range(cp_size):
        micro = pack_rows(batch, rows=[2, 0, 3], row_multiple=4, cp_size=cp_size, cp_rank=rank)
        routes = micro.gather_routes(batch.routed_experts, num_experts=EXPERTS)
        for place in range(len(micro)):
            token = micro.token_source[place]
            if micro.target_source[place] < 0:
                continue
            row = int(np.searchsorted(batch.cu_seqlens, token, side="right")) - 1
            expected = batch.routes(row)[token - batch.cu_seqlens[row]]
            assert np.array_equal(routes[place], expected)


def test_positions_without_a_recorded_route_get_distinct_experts_spread_over_all():
    batch = _batch([2])
    micro = pack_rows(batch, rows=[0], row_multiple=16)
    routes = micro.gather_routes(batch.routed_experts, num_experts=EXPERTS)
    padding = routes[2:]
    assert (np.diff(padding, axis=-1) > 0).all(), "ids ascend, so they are distinct"
    assert np.ptp(np.bincount(padding[:, 0].ravel(), minlength=EXPERTS)) <= 1


def test_context_parallel_ranks_hold_the_zigzag_chunks_of_each_row():
    batch = _batch([8, 4])
    held = [
        pack_rows(batch, rows=[0, 1], row_multiple=4, cp_size=2, cp_rank=rank).token_source for rank in (0, 1)
    ]
    assert held[0].tolist() == [0, 1, 6, 7, 8, 11]
    assert held[1].tolist() == [2, 3, 4, 5, 9, 10]


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
@pytest.mark.parametrize("max_tokens", [64, 500, 4096])
def test_assignment_covers_each_row_once_within_the_limit_with_as_many_micro_batches_on_each_rank(
    num_ranks, max_tokens
):
    lengths = np.random.default_rng(3).integers(10, 400, 57)
    ranks = assign_rows(lengths, max_tokens=max_tokens, num_ranks=num_ranks)
    assert len({len(micro_batches) for micro_batches in ranks}) == 1
    everything = [row for micro_batches in ranks for rows in micro_batches for row in rows]
    assert sorted(everything) == list(range(57))
    for micro_batches in ranks:
        for rows in micro_batches:
            assert len(rows) <= 1 or lengths[list(rows)].sum() <= max_tokens


def test_ranks_carry_nearly_the_same_number_of_tokens():
    lengths = np.random.default_rng(4).integers(100, 400, 64)
    loads = [
        sum(int(lengths[list(rows)].sum()) for rows in micro_batches)
        for micro_batches in assign_rows(lengths, max_tokens=2000, num_ranks=4)
    ]
    assert max(loads) - min(loads) < 400


def test_more_ranks_than_rows_gives_fillers_that_train_on_nothing():
    batch = _batch([6])
    ranks = assign_rows(batch.lengths(), max_tokens=100, num_ranks=2)
    assert ranks == [[(0,)], [()]]
    filler = pack_rows(batch, rows=(), row_multiple=8, cp_size=2, cp_rank=1)
    assert len(filler) == 4
    assert (filler.target_source == -1).all()
    assert (filler.gather_targets(np.ones(6, dtype=np.uint8)) == 0).all()
    assert filler.gather_routes(batch.routed_experts, num_experts=EXPERTS).shape == (4, LAYERS, TOPK)
