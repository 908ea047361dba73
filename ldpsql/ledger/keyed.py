"""Random words that are keyed functions of person, column, channel and value: one hash a row, for many rows at a time.

    purpose = BLAKE2b(column, digits of the mechanism's fingerprint; key)
    row     = BLAKE2b(person, value; purpose): 64 bytes, of which the first 48 give random words

Values are numbered in the order of the fingerprint, so that mechanisms that draw alike give the same reports.
"""

from __future__ import annotations

import json
from hashlib import blake2b

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Codes, Drawn
from ldpsql.errors import InternalError
from ldpsql.mechanisms.base import CertifiedValues
from ldpsql.registry.fingerprint import digits, fingerprint, order_of

_WORDS = 8  # in one BLAKE2b digest
_USED = 6  # of them for draws; the rest stays apart
_SEED = 32  # bytes
_BLOCK = 1 << 12  # rows at a time, which channels draw in step


def draw(secret: bytes, mechanism: CertifiedValues, codes: Codes, people: pa.Array, name: str) -> Drawn:
    """Return the permanent report of each row in the channel's own terms.

    Args:
        secret: the key.
        mechanism: the mechanism that draws.
        codes: the position of each value in the domain.
        people: the person of each row, as bytes.
        name: the name of the column.

    """
    order = order_of(mechanism)
    numbers = codes if order is None else _places(order)[codes]
    words = _row_words(purpose_of(secret, mechanism, name), numbers, people)
    draw_rows = _in_step if mechanism.channel.in_step else _one_by_one
    steps = range(0, len(codes), _BLOCK)
    drawn = [draw_rows(mechanism, numbers[at : at + _BLOCK], words[at : at + _BLOCK]) for at in steps]
    reports = np.concatenate(drawn)
    return reports if order is None else order.astype(np.int32)[reports]


def _places(order: NDArray[np.int64]) -> Codes:
    """Return the number of each value: its place in the order of the fingerprint."""
    places = np.empty(len(order), dtype=np.int32)
    places[order] = np.arange(len(order), dtype=np.int32)
    return places


def purpose_of(secret: bytes, mechanism: CertifiedValues, name: str) -> bytes:
    """Return the key of the reports of one column and channel."""
    (own,) = digits([fingerprint(mechanism.mechanism)])
    return blake2b(json.dumps([name, own]).encode(), key=secret, digest_size=_SEED).digest()


def _row_words(purpose: bytes, numbers: Codes, people: pa.Array) -> NDArray[np.uint64]:
    """Return the words of each row, shape (rows, 8). A number has eight bytes at the end, so no two rows share a message."""
    values = numbers.astype("<u8").view("V8").tolist()
    rows = [
        blake2b(person + value, key=purpose, digest_size=8 * _WORDS).digest()
        for person, value in zip(people.to_pylist(), values, strict=True)
    ]
    return np.frombuffer(b"".join(rows), dtype="<u8").astype(np.uint64).reshape(-1, _WORDS)


def _in_step(mechanism: CertifiedValues, numbers: Codes, words: NDArray[np.uint64]) -> Drawn:
    return mechanism.channel.draw(numbers, _Steps(words))


def _one_by_one(mechanism: CertifiedValues, numbers: Codes, words: NDArray[np.uint64]) -> Drawn:
    seeds = words[:, : _SEED // 8].astype("<u8")
    sources = (Stream(seed.tobytes()) for seed in seeds)
    return np.concatenate([mechanism.channel.draw(numbers[at : at + 1], source) for at, source in enumerate(sources)])


class _Steps:
    """Words of many rows: at each call the next word of every row."""

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self._words, self._next = words, 0

    def __call__(self, count: int) -> NDArray[np.uint64]:
        if count != len(self._words) or self._next == _USED:
            raise InternalError("a channel did not draw its rows in step", "please report the mechanism")
        self._next += 1
        return np.ascontiguousarray(self._words[:, self._next - 1])


class Stream:
    """Words from a seed: BLAKE2b of 0, 1, 2, ... under it."""

    def __init__(self, seed: bytes) -> None:
        self._seed, self._blocks, self._ahead = seed, 0, b""

    def __call__(self, count: int) -> NDArray[np.uint64]:
        """Return the next words."""
        while len(self._ahead) < 8 * count:
            self._ahead += blake2b(self._blocks.to_bytes(8, "little"), key=self._seed, digest_size=8 * _WORDS).digest()
            self._blocks += 1
        taken, self._ahead = self._ahead[: 8 * count], self._ahead[8 * count :]
        return np.frombuffer(taken, dtype="<u8").astype(np.uint64)
