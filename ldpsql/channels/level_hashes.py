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

from ldpsql.channels.base import Ints, Weights
from ldpsql.channels.galois import Elements, Field, coordinatewise
from ldpsql.channels.hashed import OrthogonalHash
from ldpsql.channels.keep_or_spread import KeepOrSpread

_EXACT = 1 << 24  # whole numbers up to here are exact in a float of 32 bits
_BITS, _TWICE = 64, np.uint64((1 << 32) + 1)  # of a word; a half times this is the word with two of it

Whole: TypeAlias = NDArray[np.integer]
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

    def packed(self, numbers: Ints, *, turned: bool = False) -> list[Weights]:
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
    """The hashes of the nodes of some levels, all to the same number of symbols.

    Nodes are numbered from the `starts` of their level on.

    Args:
        hashes: the hash of each level.
        spare: the number of further nodes, whose hash is always zero.

    """

    hashes: tuple[OrthogonalHash, ...]
    spare: int = 0

    @cached_property
    def field(self) -> Field:
        """The field of the symbols."""
        return Field.of(self._widest.response.size)

    @cached_property
    def _widest(self) -> OrthogonalHash:
        """The hash with the most functions."""
        return max(self.hashes, key=lambda one: one.dimension)

    def hash(self, seeds: Whole, nodes: Whole) -> NDArray[np.unsignedinteger]:
        """Return the hash of each node under its seed."""
        return self._by_bits(seeds, nodes) if self.field.p == 2 else self._by_lanes(seeds, nodes)

    @property
    def _kind(self) -> np.dtype[np.unsignedinteger]:
        return np.min_scalar_type(self.field.size - 1)

    def _by_bits(self, seeds: Whole, nodes: Whole) -> NDArray[np.unsignedinteger]:
        """Return hashes in a field of 2^k elements: each bit is the parity of some bits of the function, two bits to a word."""
        functions, masks = self._function_numbers(seeds) * _TWICE, self._masks.take(nodes, axis=0)
        out = _parities(masks[:, 0] & functions)
        for word in range(1, masks.shape[1]):
            out |= _parities(masks[:, word] & functions) << np.uint16(2 * word)
        return out

    @property
    def by_bits(self) -> tuple[Weights, Weights]:
        """The masks of nodes, and what is added to a seed by the bits of seed (q - 1) + 1: what C computes hashes with."""
        if self.field.size == 2:
            return self._masks, np.ones(_BITS, dtype=np.uint64)
        return self._masks, self._offsets[self._float.maxexp - 1 :][:_BITS].astype(np.uint64)

    def _function_numbers(self, seeds: Whole) -> Weights:
        """Return the coordinates of functions as bits: their numbers are consecutive if the same coordinate is the first one.

        Those whose first coordinate has q^k behind it have the seeds from (q^k - 1)/(q - 1) on, so that seed (q - 1) + 1 has
        as many bits as q^k, or some more. A float has the number of bits as its exponent; these numbers are exact. That is
        quicker than to look up the numbers, of which there may be a million.
        """
        if self.field.size == 2:  # all numbers from 1 on
            return seeds.astype(np.uint64) + np.uint64(1)
        scaled = seeds.astype(self._float.dtype)
        scaled *= self.field.size - 1
        scaled += 1
        exponents = scaled.view(f"u{scaled.itemsize}") >> self._float.nmant
        numbers = self._offsets.take(exponents)
        numbers += seeds.astype(np.uint32, copy=False)
        return numbers.astype(np.uint64)

    @cached_property
    def _float(self) -> np.finfo[np.floating]:
        """The smallest floats in which numbers of functions are exact."""
        return np.finfo(np.float32 if self.field.size**self._widest.dimension <= _EXACT else np.float64)

    @cached_property
    def _offsets(self) -> NDArray[np.uint32]:
        """What is added to a seed for the number of its function, by the exponent of a float."""
        q, bias = self.field.size, self._float.maxexp - 1
        out = np.zeros(2 * bias + 1, dtype=np.uint32)
        for place in range(self._widest.dimension):
            first = bias + place * self.field.k
            out[first : first + self.field.k] = q**place - (q**place - 1) // (q - 1)
        return out

    @cached_property
    def _masks(self) -> Weights:
        """For each node which bits of a function make each bit of the hash: half a word each."""
        numbers = self._point_numbers
        halves = np.zeros((len(numbers), self.field.k + self.field.k % 2), dtype=np.uint32)
        for digit in range(self.field.k):
            halves[:, digit] = self._for_digit(numbers, digit)
        return halves.view(np.uint64)

    def _by_lanes(self, seeds: Whole, nodes: Whole) -> NDArray[np.unsignedinteger]:
        """Return hashes in a field of p^k elements for an odd p: each digit is an inner product of digits."""
        functions, (lanes, points) = [part.take(seeds) for part in self._packed_functions], self._packed_points
        out = np.zeros(len(seeds), dtype=self._kind)
        for parts in reversed(points):
            inner = sum(lanes.inner(part.take(nodes), function) for part, function in zip(parts, functions, strict=True))
            out *= self._kind.type(self.field.p)
            out += (inner % np.uint64(self.field.p)).astype(self._kind)
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

    @cached_property
    def _longest(self) -> dict[int, OrthogonalHash]:
        """The level with the most nodes of each dimension: the others have the first of its points."""
        return {one.dimension: one for one in sorted(self.hashes, key=lambda one: one.size)}

    @property
    def starts(self) -> list[int]:
        """The number of the first node of each level, and behind them that of the spare ones."""
        ends = np.cumsum([0, *(one.size for one in self._longest.values())]).tolist()
        first = dict(zip(self._longest, ends, strict=False))
        return [*(first[one.dimension] for one in self.hashes), ends[-1]]

    @property
    def _point_numbers(self) -> Ints:
        points = [one.point_numbers for one in self._longest.values()]
        return np.concatenate([*points, np.zeros(self.spare, dtype=np.int64)])

    def _for_digit(self, numbers: Ints, digit: int) -> Ints:
        """Return the numbers whose inner products with functions, in base p, are one digit of the hashes."""
        return coordinatewise(numbers, self._image(digit), self._widest.dimension)

    def _image(self, digit: int) -> Elements:
        """Return the image of each element of the field under the map that `_for_digit` applies to every coordinate."""
        p, elements = self.field.p, np.arange(self.field.size, dtype=np.int32)
        products = (self.field.multiply(np.full_like(elements, p**place), elements) for place in range(self.field.k))
        return np.sum([product // p**digit % p * p**place for place, product in enumerate(products)], axis=0, dtype=np.int32)


def _parities(words: Weights) -> NDArray[np.uint16]:
    """Return the parity of the lower half of each word and, in the next bit, of the upper half."""
    ones: NDArray[np.uint16] = np.bitwise_count(words.view(np.uint32)).view("<u2")
    ones &= np.uint16(0x0101)
    ones *= np.uint16(0x0102)  # the upper byte is the lower one, and twice the upper one
    ones >>= np.uint16(8)
    return ones


def functions_of(response: Response) -> int:
    """Return the number of functions: one if nodes are not hashed."""
    return response.seeds if isinstance(response, OrthogonalHash) else 1


def answer_of(response: Response) -> KeepOrSpread:
    """Return the response to a block or its hash."""
    return response.response if isinstance(response, OrthogonalHash) else response
