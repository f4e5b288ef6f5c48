"""Routes packed for the disk: 53 bits for an unordered choice of 8 from 256, where a plain record takes 64.

Sets are all that routes are, and log2 C(256, 8) = 48.54 bits is the least a set can take; this is 1.092 times that.
Each id is cut into its upper 3 and lower 5 bits. The 8 upper parts ascend, so they are one of C(15, 8) = 6,435
multisets and take a 13-bit rank: the combinatorial number system over u_j + j, which ascends strictly. The lower parts
stay as they are. Everything is cut into planes of whole bytes, so that both directions are a few passes over arrays:

    lower 4 bits: 4 bytes a set | fifth bit: 1 byte | rank: 1 byte, then 4 bits in halves, then 1 bit in eighths

Ranking the whole 48.54 bits would need 64 dependent table steps a set to undo. Not for the hot path: a plain record is
read through a memory map, a packed one has to be unpacked.
"""

import math
from itertools import combinations_with_replacement

import numpy as np

TOPK, BITS_PER_SET = 8, 53
_BLOCK = 1 << 13  # sets at a time: what a pass leaves is still in the cache for the next
_U = np.uint64
_NIBBLES, _ONES, _SEVENS = _U(0x0F0F0F0F0F0F0F0F), _U(0x0101010101010101), _U(0x0707070707070707)
_GATHER = _U(0x0102040810204080)  # multiplied with it, the top byte collects the lowest bit of each byte


def packed_bytes(num_sets: int) -> int:
    """Size of `num_sets` packed sets: whole groups of 8."""
    return 53 * (-(-num_sets // 8))


def pack(routes: np.ndarray) -> np.ndarray:
    """routes uint8 [..., 8], ids strictly ascending in each set -> uint8 [packed_bytes(sets)].

    ValueError for other shapes, types or orders: what is not a set can't be had back.
    """
    if routes.dtype != np.uint8 or routes.shape[-1] != TOPK:
        raise ValueError(
            f"routes are {routes.dtype} with {routes.shape[-1]} experts a set; packing is for uint8 and 8 of them: "
            "store these plain"
        )
    sets = np.ascontiguousarray(routes).reshape(-1, TOPK)
    num_sets = len(sets)
    padded = -(-num_sets // 8) * 8
    packed = np.empty(packed_bytes(num_sets), dtype=np.uint8)
    low4, low1, rank8, rank4, rank1 = _planes(packed, padded)
    ranks = np.empty(padded, dtype=np.uint16)
    words = (
        np.concatenate([sets, np.tile(np.arange(TOPK, dtype=np.uint8), (padded - num_sets, 1))])
        .view("<u8")
        .ravel()
    )
    for start in range(0, padded, _BLOCK):
        block = slice(start, start + _BLOCK)
        word = words[block]
        if not _ascend(word):
            raise ValueError(
                "a set of routes is not strictly ascending: sort it with routing.canonical before packing"
            )
        nibbles = word & _NIBBLES
        low4[block] = nibbles | nibbles >> _U(28)
        low1[block] = ((word >> _U(4) & _ONES) * _GATHER) >> _U(56)
        ranks[block] = _rank(word >> _U(5) & _SEVENS)
    rank8[:] = ranks  # the low byte
    high = (ranks >> 8).astype(np.uint8)
    rank4[:] = high[: padded // 2] & 15 | (high[padded // 2 :] & 15) << 4
    rank1[:] = np.packbits(high >> 4, bitorder="little")
    return packed


def unpack(packed: np.ndarray, *, shape: tuple[int, ...]) -> np.ndarray:
    """The routes of `shape` [..., 8] that `pack` was given, uint8."""
    assert shape[-1] == TOPK, f"packed routes hold sets of 8, not of {shape[-1]}"
    num_sets = math.prod(shape[:-1])
    assert packed.nbytes == packed_bytes(num_sets), f"{packed.nbytes} bytes for {num_sets} sets"
    padded = -(-num_sets // 8) * 8
    low4, low1, rank8, rank4, rank1 = _planes(packed, padded)
    high = np.empty(padded, dtype=np.uint8)
    np.bitwise_and(rank4, 15, out=high[: padded // 2])
    np.right_shift(rank4, 4, out=high[padded // 2 :])
    high |= np.unpackbits(rank1, bitorder="little") << 4
    words = np.empty(padded, dtype="<u8")
    for start in range(0, padded, _BLOCK):
        block = slice(start, start + _BLOCK)
        rank = high[block].astype(np.uint16) << 8 | rank8[block]
        out = words[block]
        np.take(_UPPER, rank, out=out, mode="clip")
        nibbles = low4[block].astype(np.uint64)
        nibbles |= nibbles << _U(28)
        nibbles &= _NIBBLES
        out |= nibbles
        out |= np.take(_FIFTH, low1[block], mode="clip")
    return words.view(np.uint8)[: num_sets * TOPK].reshape(shape)


def _planes(packed: np.ndarray, padded: int) -> tuple[np.ndarray, ...]:
    """Views of the five planes."""
    ends = np.cumsum([4 * padded, padded, padded, padded // 2, padded // 8])
    low4, low1, rank8, rank4, rank1 = np.split(packed, ends[:-1])
    return low4.view("<u4"), low1, rank8, rank4, rank1


def _ascend(words: np.ndarray) -> bool:
    """Whether the ids of every set ascend strictly; words uint64 [n]."""
    ids = words.view(np.uint8)
    rises = ids[1:] > ids[:-1]
    rises[TOPK - 1 :: TOPK] = True  # from one set's last id to the next one's first
    return bool(rises.all())


def _rank(upper: np.ndarray) -> np.ndarray:
    """Ranks of the upper parts, 3 bits in each byte of a word, by two look-ups of four parts each."""
    upper = (upper | upper >> _U(5)) & _U(0x003F003F003F003F)
    upper = (upper | upper >> _U(10)) & _U(0x00000FFF00000FFF)
    return _FIRST_FOUR[upper & _U(0xFFF)] + _LAST_FOUR[upper >> _U(32)]


def _partial_ranks(first: int) -> np.ndarray:
    """uint16 [4096]: what parts first..first + 3 add to the rank, by their 12 bits."""
    keys = np.arange(4096)
    places = np.array([[math.comb(part + j, j + 1) for part in range(8)] for j in range(TOPK)])
    return sum(places[first + j][keys >> 3 * j & 7] for j in range(4)).astype(np.uint16)


def _upper_words() -> np.ndarray:
    """uint64 [6435]: the upper parts of each rank, in place in their bytes."""
    parts = np.array(list(combinations_with_replacement(range(8), TOPK)), dtype=np.uint8)
    words = parts.view("<u8").ravel()
    table = np.empty(len(words), dtype=np.uint64)
    table[_rank(words)] = words << _U(5)
    return table


_FIRST_FOUR, _LAST_FOUR = _partial_ranks(0), _partial_ranks(4)
_UPPER = _upper_words()
# Byte j of entry b: bit j of b, as the fifth bit of an id.
_FIFTH = (
    (np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little") << 4)
    .view("<u8")
    .ravel()
)
