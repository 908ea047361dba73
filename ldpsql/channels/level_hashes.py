"""Responses to the nodes of several levels at once, to their hashes if each level has an orthogonal array over the same field.

A function and a point are vectors over a field of p^k elements, whose inner product is the hash. Each of its k digits in base
p is the inner product, modulo p, of the digits of the function with other digits of the point. Levels with fewer nodes have
fewer coordinates: their functions are the first ones of a level with more nodes, whose further coordinates are zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.base import Codes, Weights
from ldpsql.channels.galois import Elements, Field, coordinatewise
from ldpsql.channels.hashed import OrthogonalHash
from ldpsql.channels.keep_or_spread import KeepOrSpread
from ldpsql.channels.randomness import Words

_BITS = 64  # of a word
_MANTISSA, _BIAS, _EXPONENTS = 52, 1023, 2047  # of a double

Numbers: TypeAlias = NDArray[np.int64]
Response: TypeAlias = KeepOrSpread | OrthogonalHash


@dataclass(frozen=True)
class Lanes:
    """Digits in base ``p`` in the lanes of words, some digits to a word.

    A word of digits times a word of other digits, in the opposite order, has their inner product in its last lane.
    """

    p: int
    digits: int

    @cached_property
    def width(self) -> int:
        """Bits of a lane, which holds the inner product of as many digits as a word has."""
        return next(bits for bits in range(1, _BITS + 1) if (_BITS // bits) * (self.p - 1) ** 2 < 1 << bits)

    @property
    def each(self) -> int:
        """Digits of a word."""
        return _BITS // self.width

    def packed(self, numbers: Numbers, *, turned: bool = False) -> list[Weights]:
        """Return words with the digits of each number, the lowest first, or the opposite with ``turned``."""
        out = []
        for start in range(0, self.digits, self.each):
            word = np.zeros(len(numbers), dtype=np.uint64)
            for place in range(start, min(start + self.each, self.digits)):
                lane = self.each - 1 - (place - start) if turned else place - start
                digit = (numbers // self.p**place % self.p).astype(np.uint64)
                word |= digit << np.uint64(self.width * lane)
            out.append(word)
        return out

    def inner(self, left: Weights, right: Weights) -> Weights:
        """Return the inner product of the digits of two words, not reduced."""
        left *= right
        left >>= np.uint64(self.width * (self.each - 1))
        left &= np.uint64((1 << self.width) - 1)
        return left


@dataclass(frozen=True)
class LevelHashes:
    """The hashes of the nodes of some levels, all to the same number of symbols; nodes are numbered level by level."""

    hashes: tuple[OrthogonalHash, ...]

    @cached_property
    def field(self) -> Field:
        """The field of the symbols."""
        return Field.of(self.hashes[0].response.size)

    @cached_property
    def _widest(self) -> OrthogonalHash:
        """The hash with the most functions."""
        return max(self.hashes, key=lambda one: one.dimension)

    def hash(self, seeds: Numbers, nodes: Numbers) -> Codes:
        """Return the hash of each node under its seed."""
        return self._by_bits(seeds, nodes) if self.field.p == 2 else self._by_lanes(seeds, nodes)

    def _by_bits(self, seeds: Numbers, nodes: Numbers) -> Codes:
        """Return hashes in a field of 2^k elements: each bit is the parity of some bits of the function."""
        functions, masks = self._function_numbers(seeds), self._masks.take(nodes, axis=0)
        masks[:, 0] &= functions
        out = np.bitwise_count(masks[:, 0]) & np.uint8(1)
        for digit in range(1, self.field.k):
            masks[:, digit] &= functions
            out |= (np.bitwise_count(masks[:, digit]) & np.uint8(1)) << np.uint8(digit)
        return out.astype(np.int32)

    def _function_numbers(self, seeds: Numbers) -> NDArray[np.uint32]:
        """Return the coordinates of functions as bits: their numbers are consecutive if the same coordinate is the first one.

        Those whose first coordinate has q^k behind it have the seeds from (q^k - 1)/(q - 1) on, so that seed (q - 1) + 1 has
        as many bits as q^k, or some more. A double has the number of bits as its exponent; these numbers are exact.
        """
        bits = (seeds * (self.field.size - 1) + 1).astype(np.float64).view(np.int64) >> _MANTISSA
        return (seeds + self._offsets.take(bits)).astype(np.uint32)

    @cached_property
    def _offsets(self) -> Numbers:
        """What is added to a seed for the number of its function, by the exponent of a double."""
        q, out = self.field.size, np.zeros(_EXPONENTS, dtype=np.int64)
        for place in range(self._widest.dimension):
            first = _BIAS + place * self.field.k
            out[first : first + self.field.k] = q**place - (q**place - 1) // (q - 1)
        return out

    @cached_property
    def _masks(self) -> NDArray[np.uint32]:
        """For each node which bits of a function make each bit of the hash: (nodes, a power of two of bits)."""
        numbers = self._point_numbers
        out = np.zeros((len(numbers), 1 << (self.field.k - 1).bit_length()), dtype=np.uint32)
        for digit in range(self.field.k):
            out[:, digit] = self._for_digit(numbers, digit)
        return out

    def _by_lanes(self, seeds: Numbers, nodes: Numbers) -> Codes:
        """Return hashes in a field of p^k elements for an odd p: each digit is an inner product of digits."""
        functions, (lanes, points) = [part.take(seeds) for part in self._packed_functions], self._packed_points
        out = np.zeros(len(seeds), dtype=np.int32)
        for parts in reversed(points):
            inner = sum(lanes.inner(part.take(nodes), function) for part, function in zip(parts, functions, strict=True))
            out *= np.int32(self.field.p)
            out += (inner % np.uint64(self.field.p)).astype(np.int32)
        return out

    @property
    def _lanes(self) -> Lanes:
        return Lanes(self.field.p, self._widest.dimension * self.field.k)

    @cached_property
    def _packed_functions(self) -> list[Weights]:
        return self._lanes.packed(self._widest.function_numbers)

    @cached_property
    def _packed_points(self) -> tuple[Lanes, list[list[Weights]]]:
        """The points of all nodes, for each digit of the hash."""
        numbers, lanes = self._point_numbers, self._lanes
        digits = range(self.field.k)
        return lanes, [lanes.packed(self._for_digit(numbers, digit), turned=True) for digit in digits]

    @property
    def _point_numbers(self) -> Numbers:
        widest = {
            one.dimension: one for one in sorted(self.hashes, key=lambda one: one.size)
        }  # the others have its first points
        points = {dimension: one.point_numbers for dimension, one in widest.items()}
        return np.concatenate([points[one.dimension][: one.size] for one in self.hashes])

    def _for_digit(self, numbers: Numbers, digit: int) -> Numbers:
        """Return the numbers whose inner products with functions, in base p, are one digit of the hashes."""
        return coordinatewise(numbers, self._image(digit), self._widest.dimension)

    def _image(self, digit: int) -> Elements:
        """Return the same for one coordinate, for each element of the field."""
        p, elements = self.field.p, np.arange(self.field.size, dtype=np.int32)
        products = (self.field.multiply(np.full_like(elements, p**place), elements) for place in range(self.field.k))
        return np.sum([product // p**digit % p * p**place for place, product in enumerate(products)], axis=0, dtype=np.int32)


def answer_of(response: Response) -> KeepOrSpread:
    """Return the response to a block or its hash."""
    return response.response if isinstance(response, OrthogonalHash) else response


class LevelGroup:
    """Some levels with the same response, to their nodes or to hashes of them."""

    def __init__(self, responses: tuple[Response, ...], has: NDArray[np.bool_]) -> None:
        own = [response for response, inside in zip(responses, has, strict=True) if inside]
        self.has, self.response = has, answer_of(own[0])
        self.sizes = np.where(has, [response.inputs for response in responses], 0)
        hashes = tuple(response for response in own if isinstance(response, OrthogonalHash))
        self.hashes = LevelHashes(hashes) if hashes else None

    def draw(self, seeds: NDArray[np.int64], nodes: NDArray[np.int64], words: Words) -> Codes:
        """Draw the response to each node, or to its hash."""
        return self.response.draw(nodes.astype(np.int32) if self.hashes is None else self.hashes.hash(seeds, nodes), words)
