"""The hash XXH32 of decimal numbers, as multi-freq-ldpy and pure-ldp hash values for local hashing.

Yann Collet, xxHash, specification version 0.1.1. Texts of up to 15 bytes are enough for numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = (
    np.uint32(prime) for prime in (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
)
_LOW = np.uint64(0xFFFFFFFF)


def xxh32(seeds: NDArray[np.uint64], size: int) -> NDArray[np.uint32]:
    """Return the hashes of the texts '0' .. 'size - 1' under each seed, shape ``(seeds, size)``.

    Of a seed, the lower 32 bits count.

    >>> xxh32(np.array([7], dtype=np.uint64), 124)[0, 123]
    np.uint32(3315430999)
    """
    begun = (seeds & _LOW).astype(np.uint32)[:, None]
    out = np.empty((len(seeds), size), dtype=np.uint32)
    for digits in range(1, len(str(size - 1)) + 1):
        first, end = 10 ** (digits - 1) if digits > 1 else 0, min(size, 10**digits)
        out[:, first:end] = _hashed(begun, np.arange(first, end), digits)
    return out


def _hashed(seeds: NDArray[np.uint32], numbers: NDArray[np.int64], digits: int) -> NDArray[np.uint32]:
    """Return the hashes of numbers of so many digits: four digits at a time, then those that are left."""
    text = (numbers[:, None] // 10 ** np.arange(digits - 1, -1, -1) % 10 + ord("0")).astype(np.uint8)
    word = seeds + _PRIME_5 + np.uint32(digits)
    for at in range(0, digits // 4 * 4, 4):
        lane = np.ascontiguousarray(text[:, at : at + 4]).view("<u4")[:, 0].astype(np.uint32)
        word = _rotated(word + lane * _PRIME_3, 17) * _PRIME_4
    for at in range(digits // 4 * 4, digits):
        word = _rotated(word + text[:, at].astype(np.uint32) * _PRIME_5, 11) * _PRIME_1
    word = (word ^ (word >> np.uint32(15))) * _PRIME_2
    word = (word ^ (word >> np.uint32(13))) * _PRIME_3
    return np.asarray(word ^ (word >> np.uint32(16)))


def _rotated(word: NDArray[np.uint32], by: int) -> NDArray[np.uint32]:
    return np.asarray((word << np.uint32(by)) | (word >> np.uint32(32 - by)))
