"""Keyed digests of messages, and arrays of digests of 16 bytes, which a ledger keeps in ascending order."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

SIZE = 16  # bytes
DIGEST = np.dtype(f"S{SIZE}")
_BLOCK = 1 << 12  # messages at a time, which stay in the cache


def keyed_digests(messages: pa.Array, key: bytes) -> NDArray[np.bytes_]:
    """Return the BLAKE2b digest of each message, which is bytes, under a key."""
    steps, begun = range(0, len(messages), _BLOCK), blake2b(key=key, digest_size=SIZE)

    def digests(at: int) -> bytes:
        some = []
        for message in messages[at : at + _BLOCK].to_pylist():
            one = begun.copy()  # takes half the time of reading the key again
            one.update(message)
            some.append(one.digest())
        return b"".join(some)

    return np.frombuffer(b"".join(map(digests, steps)), dtype=DIGEST)


def ascending(digests: NDArray[np.bytes_]) -> NDArray[np.intp]:
    """Return the positions of digests in ascending order; those of equal digests in any order."""
    low = np.uint64((1 << len(digests).bit_length()) - 1)  # numbers are sorted in half the time of their positions
    numbered = np.sort(_leading(digests) & ~low | np.arange(len(digests), dtype=np.uint64))
    order = (numbered & low).astype(np.intp)
    alike = numbered[1:] ^ numbered[:-1] <= low
    tied = np.flatnonzero(np.append(alike, False) | np.append(False, alike))
    order[tied] = order[tied][np.argsort(digests[order[tied]])]  # those that begin alike stay next to each other
    return order


def distinct(digests: NDArray[np.bytes_]) -> tuple[NDArray[np.bytes_], NDArray[np.intp], NDArray[np.intp]]:
    """Return the different digests in ascending order, the position of one of each, and how many there are of each."""
    order = ascending(digests)
    ordered = digests[order]
    starts = np.flatnonzero(np.concatenate([np.ones(len(ordered[:1]), dtype=np.bool_), ordered[1:] != ordered[:-1]]))
    return ordered[starts], order[starts], np.diff(starts, append=len(ordered))


def among(kept: NDArray[np.bytes_], asked: NDArray[np.bytes_]) -> NDArray[np.bool_]:
    """Return which digests are among those that are kept; both are in ascending order."""
    return ~placed(kept, asked)[1]


def all_among(kept: NDArray[np.bytes_], asked: NDArray[np.bytes_]) -> bool:
    """Return whether all digests, in any order, are among those that are kept, which are in ascending order."""
    return bool(among(kept, asked[ascending(asked)]).all())


def placed(kept: NDArray[np.bytes_], asked: NDArray[np.bytes_]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return what `places` does, and which digests are not among those that are kept."""
    if not len(kept):
        return np.zeros(len(asked), dtype=np.intp), np.ones(len(asked), dtype=np.bool_)
    at = places(kept, asked)
    return at, kept[np.minimum(at, len(kept) - 1)] != asked


def places(kept: NDArray[np.bytes_], asked: NDArray[np.bytes_]) -> NDArray[np.intp]:
    """Return where digests belong among those that are kept, which are different; both are in ascending order."""
    leading = _leading(kept)
    if not len(kept) or (leading[1:] == leading[:-1]).any():
        return np.searchsorted(kept, asked)
    first = np.searchsorted(leading, _leading(asked))  # of those that begin alike, there is one at most
    before = kept[np.minimum(first, len(kept) - 1)] < asked
    return first + (before & (first < len(kept)))


def _leading(digests: NDArray[np.bytes_]) -> NDArray[np.uint64]:
    """Return the first half of each digest as a number."""
    return np.ascontiguousarray(digests).view(">u8")[::2].astype(np.uint64)
