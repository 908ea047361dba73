"""Arrays of digests: found, sorted and counted as by NumPy, also where digests begin alike or end in zeros."""

from __future__ import annotations

from hashlib import blake2b
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from ldpsql.ledger.people import DIGEST, all_among, among, ascending, distinct, keyed_digests, places

HALVES = [b"\0" * 8, b"\0" * 7 + b"\1", b"\xff" * 8, b"a" * 7 + b"\0"]


def digests(*parts: bytes) -> NDArray[np.bytes_]:
    return np.frombuffer(b"".join(parts), dtype=DIGEST)


ALIKE = digests(*(first + second for first, second in product(HALVES, HALVES)))
APART = digests(*(first + b"12345678" for first in HALVES))


@pytest.mark.parametrize("kept", [ALIKE, APART, APART[:1], APART[:0]], ids=["alike", "apart", "one", "none"])
def test_digests_are_found_sorted_and_counted_as_numpy_does_it(kept: NDArray[np.bytes_]) -> None:
    ordered, asked = np.sort(kept), np.sort(np.concatenate([ALIKE, APART]))
    assert places(ordered, asked).tolist() == np.searchsorted(ordered, asked).tolist()
    assert among(ordered, asked).tolist() == np.isin(asked, ordered).tolist()
    assert all_among(ordered, kept[::-1].copy())
    assert not all_among(ordered, ALIKE if len(kept) < len(ALIKE) else APART)
    for everything in (kept[::-1], np.concatenate([kept[::-1]] * 3)):
        expected, counts = np.unique(everything, return_counts=True)
        different, positions, times = distinct(everything)
        assert everything[ascending(everything)].tolist() == np.sort(everything).tolist()
        assert different.tolist() == expected.tolist() == everything[positions].tolist()
        assert times.tolist() == counts.tolist()


def test_a_keyed_digest_is_that_of_the_message_alone() -> None:
    messages, key = [b"", b"b" * 300, *(bytes([at % 256] * 3) for at in range(5000))], bytes(range(32))
    expected = [blake2b(message, key=key, digest_size=16).digest() for message in messages]
    assert keyed_digests(pa.array(messages), key).tobytes() == b"".join(expected)
