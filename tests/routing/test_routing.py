"""Routing records and stitching, with the rows written out."""

import numpy as np
import pytest

from t1core.routing import MissingRoutes, RoutePiece, canonical, compact, route_dtype, stitch, validate


def rows(*pairs):
    """One layer, top-2."""
    return np.array(pairs, dtype=np.uint8)[:, None, :]


def test_canonical_sorts_within_a_token_and_layer_only():
    routes = np.array([[[3, 1], [0, 2]], [[5, 4], [7, 6]]])
    np.testing.assert_array_equal(canonical(routes), [[[1, 3], [0, 2]], [[4, 5], [6, 7]]])


def test_the_smallest_exact_dtype_is_chosen_and_t1_costs_384_bytes_a_token():
    assert [route_dtype(n) for n in (8, 256, 257, 65_536, 65_537)] == [
        np.uint8,
        np.uint8,
        np.uint16,
        np.uint16,
        np.int32,
    ]
    routes = np.tile(np.arange(248, 256, dtype=np.int32), (3, 48, 1))
    packed = compact(routes, num_experts=256)
    assert packed.nbytes == 3 * 384
    np.testing.assert_array_equal(packed, routes)


def test_ids_that_would_wrap_round_are_refused():
    with pytest.raises(ValueError, match=r"0\.\.255"):
        compact(np.array([[[1, 256]]]), num_experts=256)
    with pytest.raises(ValueError, match=r"-1\.\."):
        compact(np.array([[[-1, 3]]]), num_experts=256)


def test_validate_refuses_wrong_counts_zeros_duplicates_and_unknown_experts():
    good = rows((0, 1), (2, 3))
    validate(good, num_tokens=3, num_experts=4)
    for bad, tokens, experts, match in (
        (good, 4, 4, r"expected \[3"),
        (good, 2, 4, r"expected \[1"),
        (good, 3, 3, r"0\.\.2"),
        (np.zeros_like(good), 3, 4, "zero"),
        (rows((0, 1), (3, 2)), 3, 4, "row 1"),
        (rows((0, 1), (2, 2)), 3, 4, "row 1"),
    ):
        with pytest.raises(ValueError, match=match):
            validate(bad, num_tokens=tokens, num_experts=experts)


def test_deltas_are_laid_end_to_end_and_the_first_recording_of_a_row_stands():
    first = RoutePiece("call 1", rows((0, 1), (0, 2), (0, 3)), start=0)
    second = RoutePiece("call 2", rows((6, 7), (1, 2), (1, 3)), start=2)  # its first row is call 1's last
    stitched = stitch([first, second], loss_mask=np.array([0, 0, 0, 1, 0, 1], dtype=np.uint8))
    np.testing.assert_array_equal(stitched, rows((0, 1), (0, 2), (0, 3), (1, 2), (1, 3)))


def test_a_gap_copies_the_row_before_it_only_where_no_trained_token_is_predicted():
    pieces = [
        RoutePiece("call 1", rows((0, 1), (0, 2)), start=0),
        RoutePiece("call 2", rows((1, 3)), start=4),
    ]
    stitched = stitch(pieces, loss_mask=np.array([0, 1, 1, 0, 0, 1], dtype=np.uint8))
    np.testing.assert_array_equal(stitched, rows((0, 1), (0, 2), (0, 2), (0, 2), (1, 3)))
    with pytest.raises(MissingRoutes, match=r"call 2: routing row 3 .* trained token"):
        stitch(pieces, loss_mask=np.array([0, 1, 1, 0, 1, 1], dtype=np.uint8))


def test_a_gap_at_the_end_follows_the_same_rule_and_one_at_the_start_cannot_be_filled():
    piece = RoutePiece("call 1", rows((0, 1)), start=0)
    np.testing.assert_array_equal(stitch([piece], loss_mask=np.zeros(3)), rows((0, 1), (0, 1)))
    with pytest.raises(MissingRoutes, match="row 1"):
        stitch([piece], loss_mask=np.array([0, 0, 1]))
    with pytest.raises(MissingRoutes, match=r"row 0 .* no row before"):
        stitch([RoutePiece("call 1", rows((0, 1)), start=1)], loss_mask=np.zeros(3))


def test_a_call_without_routes_or_with_too_many_or_of_another_model_is_named():
    first = RoutePiece("call 1", rows((0, 1)), start=0)
    for second, match in (
        (RoutePiece("call 2", None, start=1), "call 2: no routes were captured"),
        (RoutePiece("call 2", rows((0, 1), (0, 1)), start=1), "call 2: rows up to 3 in a stream with 2"),
        (RoutePiece("call 2", np.zeros((1, 2, 2), np.uint8), start=1), "call 2: rows of"),
        (RoutePiece("call 2", rows((0, 1)).astype(np.int32), start=1), "call 2: rows of"),
    ):
        with pytest.raises(MissingRoutes, match=match):
            stitch([first, second], loss_mask=np.zeros(3))
