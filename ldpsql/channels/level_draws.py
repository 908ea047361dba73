"""Draws of a level and of the response to the block of that level, for many values at once.

Levels differ in few numbers: how many functions they have, how long their blocks are. These are looked up for each value, so
that values of all levels are drawn together, in the same steps.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.base import TOTAL, Codes, Ints, Weights
from ldpsql.channels.hashed import OrthogonalHash
from ldpsql.channels.keep_or_spread import KeepOrSpread
from ldpsql.channels.level_hashes import LevelHashes, Response, answer_of, functions_of
from ldpsql.channels.randomness import Words

Halves: TypeAlias = NDArray[np.uint32]  # of a word: there are fewer than 2^31 reports

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
        self._halved = all(length.bit_count() == 1 for length in lengths)
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

    levels: Ints
    seeds: Halves
    symbols: Halves


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
        self._hashes = LevelHashes(tuple(hashes), max(others, default=0) if alone else 0)
        *starts, spare = self._hashes.starts
        self._starts = np.full(len(responses), spare, dtype=np.int32)
        self._starts[self.has] = starts

    def hash(self, levels: Ints, seeds: Halves, blocks: Codes) -> NDArray[np.unsignedinteger]:
        """Return the hash of each block."""
        nodes = self._starts.take(levels)
        nodes += blocks
        return self._hashes.hash(seeds, nodes)
