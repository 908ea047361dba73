"""Public hashes: of words, and of values under a seed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.base import Codes, Weights

_CACHED = 1 << 13  # words at a time
_STEPS = tuple(np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_SHIFTS, _HALF = tuple(np.uint64(number) for number in (30, 27, 31)), np.uint64(32)


def splitmix(words: Weights) -> Weights:
    """Return a 64-bit hash of each word: the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014)."""
    z = words + _STEPS[0]
    z = (z ^ (z >> _SHIFTS[0])) * _STEPS[1]
    z = (z ^ (z >> _SHIFTS[1])) * _STEPS[2]
    return z ^ (z >> _SHIFTS[2])


def hashed(seeds: Weights, values: Codes, symbols: int) -> Codes:
    """Return the hash of a value under a seed, 0 .. symbols-1; arguments broadcast. It must never change: reports depend on it.

    >>> hashed(np.arange(4, dtype=np.uint64), np.arange(4, dtype=np.int32), 1000).tolist()
    [652, 914, 587, 736]
    """
    word = splitmix(splitmix(seeds) ^ values.astype(np.uint64))
    return ((word >> np.uint64(32)) * np.uint64(symbols) >> np.uint64(32)).astype(np.int32)


def hashing_to(seeds: Weights, y: Weights, size: int, symbols: int) -> NDArray[np.bool_]:
    """Return which of the values 0 .. size-1 hash to y under each seed, shape (seeds, size): ``hashed(...) == y``, but quicker.

    Some rows at a time are computed in place, in the cache. A word hashes to y if its upper half lies in one range.

    >>> hashing_to(np.arange(2, dtype=np.uint64), np.array([0, 1], dtype=np.uint64), 4, 2).astype(int).tolist()
    [[0, 1, 0, 0], [0, 1, 1, 1]]
    """
    first, end = (_least(y.astype(np.uint64) + np.uint64(more), symbols)[:, None] for more in (0, 1))
    begun, width = splitmix(seeds.astype(np.uint64))[:, None], end - first
    out, rows = np.empty((len(seeds), size), dtype=np.bool_), max(1, _CACHED // size)
    values, words, shifts = np.arange(size, dtype=np.uint64), *np.empty((2, rows, size), dtype=np.uint64)
    for start in range(0, len(seeds), rows):
        part = slice(start, start + rows)
        word = words[: len(begun[part])]
        np.bitwise_xor(values, begun[part], out=word)
        _mix(word, shifts[: len(word)])
        word >>= _HALF
        word -= first[part]  # below the range it becomes very large
        np.less(word, width[part], out=out[part])
    return out


def _least(y: Weights, symbols: int) -> Weights:
    """Return the least upper half of a word that hashes to y: y * 2^32 / symbols, rounded up."""
    return ((y << _HALF) + np.uint64(symbols - 1)) // np.uint64(symbols)


def _mix(word: Weights, shifted: Weights) -> None:
    """Hash each word in place, as `splitmix` does; ``shifted`` is overwritten."""
    word += _STEPS[0]
    for shift, factor in zip(_SHIFTS, _STEPS[1:], strict=False):
        word ^= np.right_shift(word, shift, out=shifted)
        word *= factor
    word ^= np.right_shift(word, _SHIFTS[-1], out=shifted)
