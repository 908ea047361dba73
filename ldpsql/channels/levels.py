"""Levels of a tree: a public level, drawn independently of the value, and a response to the node of that level.

Cormode, Kulkarni, Srivastava, "Answering range queries under local differential privacy", VLDB 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.base import Channel, Codes, Drawn, Witness
from ldpsql.channels.hashed import OrthogonalHash
from ldpsql.channels.keep_or_spread import KeepOrSpread
from ldpsql.channels.level_draws import Blocks, Lengths, LevelDraws, Nodes
from ldpsql.channels.level_hashes import Response
from ldpsql.channels.randomness import Words, random_words
from ldpsql.errors import InvalidParameter

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
        """Number of values."""
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
        """Return which reports support all of the own values and none of the others."""
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
        if len(values) <= _BLOCK:
            return self._drawing.draw(values, words)
        starts = range(0, len(values), _BLOCK)
        blocks = (self._drawing.draw(values[start : start + _BLOCK], words) for start in starts)
        return Nodes(*map(np.concatenate, zip(*blocks, strict=True)))

    @cached_property
    def _drawing(self) -> LevelDraws:
        """What draws are made with, computed once."""
        if len(self.shape) == 1:
            return LevelDraws(self.responses, self.starts, Lengths([block[0] for block in self.blocks]))
        values = np.arange(self.inputs, dtype=np.int32)
        return LevelDraws(self.responses, self.starts, Blocks([self.nodes(values, level) for level in range(len(self.blocks))]))
