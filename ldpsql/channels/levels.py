"""Levels of a tree: a public level, drawn independently of the value, and a response to the node of that level or its hash.

Cormode, Kulkarni, Srivastava, "Answering range queries under local differential privacy", VLDB 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import native
from ldpsql.channels.base import TOTAL, Channel, Codes, Drawn, Ints, Weights, Witness
from ldpsql.channels.hashed import Elements, Field, OrthogonalHash, coordinatewise
from ldpsql.channels.keep_or_spread import KeepOrSpread
from ldpsql.channels.randomness import Words, random_words
from ldpsql.errors import InvalidParameter

# Responses to the nodes of several levels at once, to their hashes if each level has an orthogonal array over the same field.
#
# A function and a point are vectors over a field of p^k elements, whose inner product is the hash. Each of its k digits in
# base p is the inner product, modulo p, of the digits of the function with other digits of the point. Levels with fewer nodes
# have fewer coordinates: their functions are the first ones of a level with more nodes, whose further coordinates are zero.

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


# Draws of a level and of the response to the block of that level, for many values at once.
#
# Levels differ in few numbers: how many functions they have, how long their blocks are. These are looked up for each value, so
# that values of all levels are drawn together, in the same steps.

Halves: TypeAlias = NDArray[np.uint32]  # of a word: there are fewer than 2^31 reports
_MOST_SYMBOLS = 1 << 16  # that C writes

_HALF, _LOWER = np.uint64(32), np.uint64((1 << 32) - 1)


def levels_of(words: Weights, levels: int) -> Ints:
    """Return the level that the lower half of each random word decides."""
    scaled = words & _LOWER
    scaled *= np.uint64(levels)
    scaled >>= _HALF
    return scaled.view(np.int64)


class Lengths:
    """Values on a line, in blocks of some length on each level."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths, self._halved = lengths, all(length.bit_count() == 1 for length in lengths)
        self._lengths = np.array([length.bit_length() - 1 if self._halved else length for length in lengths], dtype=np.int32)

    def blocks(self, values: Codes, levels: Ints) -> Codes:
        """Return the block of each value at its own level."""
        own = self._lengths.take(levels)
        return np.right_shift(values, own, out=own) if self._halved else np.floor_divide(values, own, out=own)


class Blocks:
    """Values of any layout, whose block on each level is looked up."""

    def __init__(self, blocks: list[Codes]) -> None:
        self._inputs, self._blocks = len(blocks[0]), np.concatenate(blocks)

    def blocks(self, values: Codes, levels: Ints) -> Codes:
        """Return the block of each value at its own level."""
        return self._blocks.take(levels * self._inputs + values)


class Nodes(NamedTuple):
    """Reports: for each one its level, its function, and the response to the hash of the block."""

    levels: NDArray[np.integer]
    seeds: Halves
    symbols: NDArray[np.unsignedinteger]


class LevelDraws:
    """Draws of reports, and their numbers, level by level.

    Args:
        responses: the response of each level.
        starts: the number of the first report of each level.
        layout: how values lie in blocks.

    """

    def __init__(self, responses: tuple[Response, ...], starts: Ints, layout: Lengths | Blocks) -> None:
        answers, seeds = [answer_of(one) for one in responses], [functions_of(one) for one in responses]
        self._layout, self._hashed = layout, HashedLevels(responses)
        self._starts, self._sizes = starts[:-1].astype(np.uint32), np.array([one.size for one in answers], dtype=np.uint32)
        self._functions, self._steps, self._spreads = (
            np.array(numbers, dtype=np.uint64)
            for numbers in (seeds, [min(TOTAL // count, TOTAL - 1) for count in seeds], [one.spread for one in answers])
        )
        self._surely = np.uint32((1 << 32) - 1 - (2 * max(seeds) + 2))

    @cached_property
    def tree(self) -> NDArray[np.uint64] | None:
        """What C draws with: a ``tree`` of kernels.h, if hashes are computed by bits and blocks are lengths; else None."""
        hashed = self._hashed.by_bits
        if hashed is None or not isinstance(self._layout, Lengths) or self._sizes.max() > _MOST_SYMBOLS:
            return None
        direct, starts, hashes = hashed
        masks, offsets = hashes.by_bits
        columns = (self._functions, self._steps, self._spreads, self._sizes, self._layout.lengths, starts, direct)
        levels = np.column_stack([np.asarray(column, np.uint64) for column in columns])
        head = np.array([len(levels), self._surely, masks.shape[1], hashes.field.size - 1], np.uint64)
        return np.concatenate([head, offsets, levels.ravel(), masks.ravel()])

    def draw(self, values: Codes, words: Words) -> Nodes:
        """Draw a report for each value: the level and the function from a word, the response from another."""
        word = words(len(values))
        levels = levels_of(word, len(self._functions))
        seeds, sizes = self._seeds(word >> _HALF, levels, words), self._sizes.take(levels)
        symbols = self._hashed.hash(levels, seeds, self._layout.blocks(values, levels))
        return Nodes(levels, seeds, self._answers(symbols, levels, sizes, words))

    def numbers(self, nodes: Nodes) -> Codes:
        """Return the numbers of reports."""
        out = self._sizes.take(nodes.levels)
        out *= nodes.seeds
        out += nodes.symbols
        out += self._starts.take(nodes.levels)
        return out.view(np.int32)

    def _seeds(self, halves: Weights, levels: Ints, words: Words) -> Halves:
        """Return the function that the half of a word decides, as `OrthogonalHash` weighs them; rarely with further bits.

        A word is a function times its weight and a rest. A half decides unless the rest reaches over an edge, which is at most
        as many parts of a word away from where equal parts have it; the most of all levels will do for each of them.
        """
        counts = self._functions.take(levels)
        scaled = halves * counts
        rest = scaled.astype(np.uint32)  # the lower half
        scaled >>= _HALF
        if rest.max(initial=0) > self._surely:
            unsure = np.flatnonzero(rest > self._surely)
            whole = halves[unsure] << _HALF | words(len(unsure)) >> _HALF
            scaled[unsure] = np.minimum(whole // self._steps[levels[unsure]], counts[unsure] - np.uint64(1))
        return scaled.astype(np.uint32)

    def _answers(self, symbols: Halves, levels: Ints, sizes: Halves, words: Words) -> Halves:
        """Draw how far to move on from each symbol, as `KeepOrSpread` does: levels keep theirs more or less often."""
        steps = words(len(levels)) // self._spreads.take(levels)
        moved = np.minimum(steps, sizes - np.uint32(1)).astype(np.uint32)
        moved += np.uint32(1)
        moved += symbols
        return np.minimum(moved, moved - sizes, out=moved)  # a difference below 0 wraps to a large number


class HashedLevels:
    """The hashes of the blocks of all levels; a block of a level without a hash is its own symbol."""

    def __init__(self, responses: tuple[Response, ...]) -> None:
        hashed = {one.response.size: None for one in responses if isinstance(one, OrthogonalHash)}
        self._direct = np.array([isinstance(one, KeepOrSpread) for one in responses], dtype=np.uint32)
        self._has_direct = bool(self._direct.any())
        self._groups = [HashGroup(responses, symbols, alone=len(hashed) == 1) for symbols in hashed]

    @property
    def by_bits(self) -> tuple[Halves, NDArray[np.int32], LevelHashes] | None:
        """Which levels have no hash, the first node of each, and the hashes, if these are of one field of 2^k elements."""
        (group,) = self._groups if len(self._groups) == 1 else (None,)
        return None if group is None or group.hashes.field.p != 2 else (self._direct, group.starts, group.hashes)

    def hash(self, levels: Ints, seeds: Halves, blocks: Codes) -> Halves:
        """Return the symbol of each block of a level under its function."""
        out = self._own(levels, blocks)
        if len(self._groups) == 1:
            out += self._groups[0].hash(levels, seeds, blocks)
            return out
        for group in self._groups:
            rows = np.flatnonzero(group.has.take(levels))
            out[rows] = group.hash(levels.take(rows), seeds.take(rows), blocks.take(rows))
        return out

    def _own(self, levels: Ints, blocks: Codes) -> Halves:
        """Return the blocks of levels without a hash, else 0."""
        if not self._has_direct:
            return np.zeros(len(levels), dtype=np.uint32)
        own = self._direct.take(levels)
        own *= blocks.view(np.uint32)
        return own


class HashGroup:
    """The levels that are hashed to so many symbols; ``alone`` if blocks of other levels are hashed as well, to zero."""

    def __init__(self, responses: tuple[Response, ...], symbols: int, *, alone: bool) -> None:
        hashes = [one for one in responses if isinstance(one, OrthogonalHash) and one.response.size == symbols]
        self.has = np.array([one in hashes for one in responses])
        others = [one.inputs for one, inside in zip(responses, self.has, strict=True) if not inside]
        self.hashes = LevelHashes(tuple(hashes), max(others, default=0) if alone else 0)
        *starts, spare = self.hashes.starts
        self.starts = np.full(len(responses), spare, dtype=np.int32)  # of the nodes of each level
        self.starts[self.has] = starts

    def hash(self, levels: Ints, seeds: Halves, blocks: Codes) -> NDArray[np.unsignedinteger]:
        """Return the hash of each block."""
        nodes = self.starts.take(levels)
        nodes += blocks
        return self.hashes.hash(seeds, nodes)


PARTS = 1 << 32  # a level is decided by half of a random word
MOST_LEAVES = 1 << 20
_MOST_REPORTS = (1 << 31) - 1
_BLOCK = 1 << 15  # draws at a time, so that what is computed on the way stays in the cache

Shape: TypeAlias = tuple[int, ...]


def level_shares(levels: int) -> list[Fraction]:
    """Return the exact probability of every level."""
    starts = [-(-PARTS * level // levels) for level in range(levels + 1)]
    return [Fraction(end - start, PARTS) for start, end in pairwise(starts)]


@dataclass(frozen=True)
class Levels(Channel):
    """A report is a level and the response to the block of values at that level, among blocks that grow from level to level.

    The level is drawn independently of the value, all of epsilon goes to the response. Values lie on a line or, row by row, on
    a grid. Reports are numbered level by level, each by the report of its response.

    Args:
        shape: the number of values on the line, or of rows and columns.
        blocks: for each level the length of a block, or its numbers of rows and columns; blocks of one value come first.
        responses: for each level a channel with one value for each block.

    Raises:
        InvalidParameter: if the parts do not belong together, or there are too many values or reports.

    """

    shape: Shape
    blocks: tuple[Shape, ...]
    responses: tuple[Response, ...]
    event = "the report supports the value and not the other"

    def __post_init__(self) -> None:
        numbers = [n for sizes in (self.shape, *self.blocks) for n in sizes]
        if not numbers or not all(type(n) is int and n > 0 for n in numbers) or prod(self.shape) > MOST_LEAVES:
            raise InvalidParameter(f"levels need whole numbers, and at most {MOST_LEAVES:,} values")
        if not self._nested() or not 0 < len(self.blocks) == len(self.responses) < 256:
            raise InvalidParameter("the blocks of a level must consist of those of the level before, from one value on")
        fits = [self._fits(response, count) for response, count in zip(self.responses, self.counts, strict=True)]
        if not all(fits) or self.outputs > _MOST_REPORTS:
            raise InvalidParameter("every level needs a response to its blocks, and few enough reports")

    def _nested(self) -> bool:
        """Return whether the blocks begin with single values, and each consists of smaller ones."""
        if not self.blocks or self.blocks[0] != (1,) * len(self.shape) or any(len(b) != len(self.shape) for b in self.blocks):
            return False
        return all(
            above != own and not any(a % b for a, b in zip(above, own, strict=True)) for own, above in pairwise(self.blocks)
        )

    @staticmethod
    def _fits(response: Response, count: int) -> bool:
        return type(response) in (KeepOrSpread, OrthogonalHash) and response.inputs == count

    @property
    def counts(self) -> list[int]:
        """The number of blocks of each level."""
        return [prod(-(-size // length) for size, length in zip(self.shape, block, strict=True)) for block in self.blocks]

    def shares(self) -> list[Fraction]:
        """Return the exact probability of every level."""
        return level_shares(len(self.blocks))

    @property
    def inputs(self) -> int:
        return prod(self.shape)

    @property
    def outputs(self) -> int:
        """Number of reports."""
        return sum(response.outputs for response in self.responses)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The number of the first report of each level, and behind them the number of all reports."""
        return np.cumsum([0, *(response.outputs for response in self.responses)])

    def nodes(self, values: NDArray[np.int64] | Codes, level: int) -> Codes:
        """Return the block of each value at a level."""
        block = self.blocks[level]
        if len(block) == 1:
            return np.asarray(values if block[0] == 1 else values // np.int32(block[0]), dtype=np.int32)
        along = np.unravel_index(values, self.shape)
        lengths = [-(-size // length) for size, length in zip(self.shape, block, strict=True)]
        places = tuple(axis // length for axis, length in zip(along, block, strict=True))
        return np.ravel_multi_index(places, tuple(lengths)).astype(np.int32)

    def probability(self, value: int, report: int) -> Fraction:
        """Return P(report | value), exactly."""
        level = int(np.searchsorted(self.starts, report, side="right")) - 1
        response, own = self.responses[level], report - int(self.starts[level])
        node = int(self.nodes(np.array([value], dtype=np.int32), level)[0])
        return self.shares()[level] * response.probability(node, own)

    def widest(self) -> Witness:
        """Return the largest ratio: the level does not depend on the value, so that of the responses."""
        ratios = [(response.widest(), -level) for level, response in enumerate(self.responses)]
        widest, level = max(ratios, key=lambda pair: (pair[0].ratio, pair[1]))
        first = np.unique(self.nodes(np.arange(self.inputs, dtype=np.int32), -level), return_index=True)[1]
        start = int(self.starts[-level])
        return Witness(widest.ratio, int(first[widest.value]), int(first[widest.other]), start + widest.report)

    def telling(self, drawn: Drawn, report: int, own: Codes, others: Codes) -> NDArray[np.bool_]:  # noqa: ARG002
        return np.logical_and.reduce(
            [*(self.supporting(drawn, value) for value in own), *(~self.supporting(drawn, value) for value in others)]
        )

    def supporting(self, drawn: Drawn, value: int) -> NDArray[np.bool_]:
        """Return which reports support the block of a value at their level."""
        out = np.zeros(len(drawn), dtype=np.bool_)
        for level, rows in self.by_level(drawn):
            node = self.nodes(np.array([value], dtype=np.int32), level)
            out[rows] = self.responses[level].supporting(drawn[rows] - self.starts[level], int(node[0]))
        return out

    def by_level(self, drawn: Drawn) -> list[tuple[int, NDArray[np.int64]]]:
        """Return the levels that occur, each with the rows of its reports."""
        level = np.searchsorted(self.starts, drawn, side="right") - 1
        return [(int(one), np.flatnonzero(level == one)) for one in np.unique(level)]

    def draw(self, values: Codes, words: Words = random_words) -> Codes:
        """Draw the level and the seed from a word, then respond to the hash of the block of that level."""
        return self._drawing.numbers(self.draw_nodes(values, words))

    def draw_nodes(self, values: Codes, words: Words = random_words) -> Nodes:
        """Draw the same reports, not numbered."""
        if words is random_words and (tree := self.tree) is not None:
            drawn = native.levels(values, self.inputs, tree)
            if drawn is not None:
                return Nodes(*drawn)
        if len(values) <= _BLOCK:
            return self._drawing.draw(values, words)
        starts = range(0, len(values), _BLOCK)
        blocks = (self._drawing.draw(values[start : start + _BLOCK], words) for start in starts)
        return Nodes(*map(np.concatenate, zip(*blocks, strict=True)))

    @property
    def tree(self) -> NDArray[np.uint64] | None:
        """What C draws with; None if Python draws."""
        return self._drawing.tree

    @cached_property
    def _drawing(self) -> LevelDraws:
        """What draws are made with, computed once."""
        if len(self.shape) == 1:
            return LevelDraws(self.responses, self.starts, Lengths([block[0] for block in self.blocks]))
        values = np.arange(self.inputs, dtype=np.int32)
        return LevelDraws(self.responses, self.starts, Blocks([self.nodes(values, level) for level in range(len(self.blocks))]))
