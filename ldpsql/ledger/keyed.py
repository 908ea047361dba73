"""Random words that are keyed functions of person, column, channel and value: one hash a row, for many rows at a time.

    purpose = BLAKE2b(column, digits of the mechanism and of its channel, exact ratio of the channel; key)
    row     = BLAKE2b(purpose, person, value): 64 bytes, of which the first 48 give random words and the others a fingerprint
    stream  = SHAKE-128(purpose, person, value): as many random words as a set of values needs

Values are numbered in the order of the fingerprint, so that mechanisms that draw alike give the same reports.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b, shake_128
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.channels import Channel, Codes, Drawn, RepeatedHash
from ldpsql.channels.splitmix import hashed
from ldpsql.errors import InternalError
from ldpsql.ledger.digests import DIGEST
from ldpsql.mechanisms.base import CertifiedMechanism, CertifiedValues
from ldpsql.registry.agreement import digit_pairs
from ldpsql.registry.fingerprint import fingerprint, order_of

_WORDS = 8  # in one BLAKE2b digest
_USED = 6  # of them for draws; the rest stays apart
_SEED = 32  # bytes
_BLOCK = 1 << 12  # rows at a time, which channels draw in step
_CELLS = 1 << 20  # rows times values at a time, which channels draw abreast

RowWords: TypeAlias = NDArray[np.uint64]  # shape (rows, 8)
_Draw: TypeAlias = Callable[[Channel, Codes, NDArray[np.uint64]], Drawn]


@dataclass(frozen=True)
class Keyed:
    """The permanent reports of one column: its name, the mechanism that draws it, and the key."""

    secret: bytes = field(repr=False)
    mechanism: CertifiedValues
    name: str

    def words(self, codes: Codes, people: pa.Array) -> RowWords:
        """Return the words of each row, which are equal if a permanent report of the same person depends on equal values.

        Args:
            codes: the position of each value in the domain, at least one.
            people: the person of each row, as bytes.

        """
        channel = self.mechanism.channel
        numbers = self._symbols(channel, codes, people)[1] if isinstance(channel, RepeatedHash) else self._numbers(codes)
        return _row_words(self._purpose(), numbers, people)

    def draw(self, codes: Codes, people: pa.Array, words: RowWords | None = None) -> Drawn:
        """Return the permanent report of each row in the channel's own terms.

        Args:
            codes: the position of each value in the domain, at least one.
            people: the person of each row, as bytes.
            words: the words of these rows, if they are computed already.

        """
        channel = self.mechanism.channel
        if isinstance(channel, RepeatedHash):
            return self._repeated(channel, codes, people, words)
        if channel.abreast:
            return _abreast(channel, codes, people, self._purpose("stream"))
        order, numbers = order_of(self.mechanism), self._numbers(codes)
        own = _row_words(self._purpose(), numbers, people) if words is None else words
        reports = _drawn(channel, numbers, own, _in_step if channel.in_step else _one_by_one)
        return reports if order is None else order.astype(np.int32)[reports]

    def _repeated(self, channel: RepeatedHash, codes: Codes, people: pa.Array, words: RowWords | None) -> Drawn:
        """Return a report under the seed and the response that each person keeps; only the last response is new."""
        seeds, symbols = self._symbols(channel, codes, people)
        own = _row_words(self._purpose(), symbols, people) if words is None else words
        return channel.repeated(seeds, _drawn(channel.response, symbols, own, _in_step))

    def _symbols(self, channel: RepeatedHash, codes: Codes, people: pa.Array) -> tuple[NDArray[np.uint64], Codes]:
        """Return the seed of each person, and the symbol of the value under it."""
        seeds = np.ascontiguousarray(_row_words(self._purpose("seed"), np.zeros_like(codes), people)[:, 0])
        return seeds, hashed(seeds, codes, channel.response.size)

    def _numbers(self, codes: Codes) -> Codes:
        """Return the number of each value: its place in the order of the fingerprint."""
        order = order_of(self.mechanism)
        if order is None:
            return codes
        places = np.empty(len(order), dtype=np.int32)
        places[order] = np.arange(len(order), dtype=np.int32)
        return places[codes]

    def _purpose(self, *what: str) -> bytes:
        """Return the key of the reports of the column and the channel, or of something else of them."""
        drawn = [self.name, *channel_of(self.mechanism), *what]
        return blake2b(json.dumps(drawn).encode(), key=self.secret, digest_size=_SEED).digest()


def channel_of(mechanism: CertifiedMechanism) -> list[str]:
    """Return what identifies the channel of permanent reports: the digits of the fingerprint, and the exact ratio.

    A new version of a plugin may draw otherwise from the same parameters: then its channel has other digits or another ratio.
    """
    ((own, channel),) = digit_pairs([fingerprint(mechanism.mechanism)])
    return [own, channel, str(mechanism.certificate.ratio)]


def fingerprints_of(words: RowWords) -> NDArray[np.bytes_]:
    """Return 16 bytes a row: the words that no draw uses."""
    return np.ascontiguousarray(words[:, _USED:].astype("<u8", copy=False)).view(DIGEST).ravel()


def _row_words(purpose: bytes, numbers: Codes, people: pa.Array) -> RowWords:
    """Return the words of each row."""
    steps = range(0, len(numbers), _BLOCK)
    messages = (_messages(purpose, numbers[at : at + _BLOCK], people[at : at + _BLOCK]) for at in steps)
    return _matrix(b"".join([b"".join(map(blake2b.digest, map(blake2b, some))) for some in messages]), len(numbers))


def _messages(purpose: bytes, numbers: Codes, people: pa.Array) -> list[bytes]:
    """Return the purpose, the person and the number of each row; only persons differ in length, so no two rows share a message.

    The purpose is secret. As the key of BLAKE2b, instead of the beginning of the message, it would take a block of its own.
    """
    kind, octets = pa.large_binary(), pa.py_buffer(numbers.astype("<u8"))
    values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(numbers), [None, octets]).cast(kind)
    parts = pa.scalar(purpose, kind), people.cast(kind), values, pa.scalar(b"", kind)
    return pc.binary_join_element_wise(*parts).to_pylist()


def _matrix(digests: bytes, rows: int) -> NDArray[np.uint64]:
    """Return the words of digests of one length, a row each."""
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64, copy=False).reshape(rows, -1)


def _abreast(channel: Channel, codes: Codes, people: pa.Array, purpose: bytes) -> Drawn:
    """Return the report of each row, drawn from a stream of words of its own."""
    needed, step = _needed(channel), max(1, min(_BLOCK, _CELLS // channel.inputs))

    def drawn(at: int) -> Drawn:
        rows, messages = codes[at : at + step], _messages(purpose, codes[at : at + step], people[at : at + step])
        words = _matrix(b"".join([shake_128(row).digest(8 * needed) for row in messages]), len(messages))
        try:
            return channel.draw(rows, _Streams(words))
        except _Uneven:  # keys of a subset are equal, which happens once in 2**40 reports
            sources = [_Streams(_matrix(shake_128(row).digest(64 * needed), 1)) for row in messages]
            return np.concatenate([channel.draw(rows[one : one + 1], source) for one, source in enumerate(sources)])

    return np.concatenate([drawn(at) for at in range(0, len(codes), step)])


def _needed(channel: Channel) -> int:
    """Return how many words a report takes: those that one value takes whose words are all different."""
    counts: list[int] = []

    def counted(count: int) -> NDArray[np.uint64]:
        first = sum(counts)
        counts.append(count)
        return np.arange(first, first + count, dtype=np.uint64)

    channel.draw(np.zeros(1, dtype=np.int32), counted)
    return sum(counts)


def _drawn(channel: Channel, numbers: Codes, words: NDArray[np.uint64], draw: _Draw) -> Drawn:
    """Return the report of each row, some thousand rows at a time."""
    steps = range(0, len(numbers), _BLOCK)
    return np.concatenate([draw(channel, numbers[at : at + _BLOCK], words[at : at + _BLOCK]) for at in steps])


def _in_step(channel: Channel, numbers: Codes, words: NDArray[np.uint64]) -> Drawn:
    return channel.draw(numbers, _Steps(words))


def _one_by_one(channel: Channel, numbers: Codes, words: NDArray[np.uint64]) -> Drawn:
    seeds = words[:, : _SEED // 8].astype("<u8")
    sources = (Stream(seed.tobytes()) for seed in seeds)
    return np.concatenate([channel.draw(numbers[at : at + 1], source) for at, source in enumerate(sources)])


class _Steps:
    """Words of many rows: at each call the next word of every row."""

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self._words, self._next = words, 0

    def __call__(self, count: int) -> NDArray[np.uint64]:
        if count != len(self._words) or self._next == _USED:
            raise InternalError("a channel did not draw its rows in step", "please report the mechanism")
        self._next += 1
        return np.ascontiguousarray(self._words[:, self._next - 1])


class _Uneven(Exception):  # caught in this file
    """A channel asked for words of some rows only, or for more than a report takes."""


class _Streams:
    """Words of many rows: at each call equally many words of every row."""

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self._words, self._next = words, 0

    def __call__(self, count: int) -> NDArray[np.uint64]:
        each, rest = divmod(count, len(self._words))
        first, self._next = self._next, self._next + each
        if rest or self._next > self._words.shape[1]:
            raise _Uneven
        return self._words[:, first : self._next].ravel()


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
