"""How many reports of a level support each continuation of a prefix, in blocks of reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import Letters, Prefixes, Words64
from ldpsql.inference.deadline import check
from ldpsql.inference.operators import Floats
from ldpsql.strings.transform import Transform

_BLOCK = 1 << 17  # reports at a time
_CELLS = 1 << 23  # counts of prefixes, lines and symbols at a time
_EXACT = 1 << 22  # single precision counts up to here, and does arithmetic with whole numbers below


@dataclass(frozen=True, eq=False)
class LevelReports:
    """The distinct reports of one level, and how often each occurs."""

    seeds: Words64
    symbols: NDArray[np.int32]
    numbers: Floats

    @property
    def total(self) -> int:
        """Number of reports."""
        return int(self.numbers.sum())

    def blocks(self) -> Iterator[LevelReports]:
        """Yield the reports in blocks."""
        for start in range(0, len(self.seeds), _BLOCK):
            part = slice(start, start + _BLOCK)
            yield LevelReports(self.seeds[part], self.symbols[part], self.numbers[part])


def by_level(words: Words64, numbers: Floats, levels: int) -> list[LevelReports]:
    """Return reports, as words of level, seed and symbol, by their level."""
    rows = [np.flatnonzero(words[:, 0] == level) for level in range(levels)]
    return [LevelReports(words[at, 1], words[at, 2].astype(np.int32), numbers[at]) for at in rows]


def supporters(channel: Prefixes, prefixes: Letters, step: int, levels: Sequence[LevelReports]) -> Iterator[Floats]:
    """Yield for each prefix how many reports of these levels support each of its continuations by the letters of a step.

    Continuations are numbered as `Prefixes.numbers` does.

    Args:
        channel: the channel of the reports.
        prefixes: the letters of strings; those before the step count.
        step: the number of the step.
        levels: the reports of levels that have the step.

    """
    transform = Transform.of(channel.response.size, channel.dimension, (channel.letters + 1) ** channel.step)
    size = max(1, _CELLS // transform.cells)
    for start in range(0, len(prefixes), size):
        for counts in _counts(channel, transform, prefixes[start : start + size], step, levels):
            check()
            yield transform.supporters(counts)


def _counts(channel: Prefixes, transform: Transform, prefixes: Letters, step: int, levels: Sequence[LevelReports]) -> Floats:
    """Return for each prefix the counts of reports by line and symbol, less what the prefix adds to the hash."""
    p, size = channel.response.size, len(prefixes)
    single = sum(level.total for level in levels) < _EXACT and (step * channel.dimension + 1) * p**2 < _EXACT
    kind = np.float32 if single else np.float64
    before = [channel.vectors(prefixes, earlier) for earlier in range(step)]
    factors = np.concatenate([np.ones((size, 1)), *(p - vectors for vectors in before)], axis=1, dtype=kind, casting="unsafe")
    out = np.zeros((size, transform.cells), dtype=kind)
    for block in (block for level in levels for block in level.blocks()):
        rows, first = _scaled(channel, transform, block, step)
        rows, first = rows.T.astype(kind, order="C"), first.astype(kind)
        rows[0] += kind(0.5)  # so that no rounding takes a multiple of p for less
        weights = None if (block.numbers == 1).all() else block.numbers
        for row, factor in enumerate(factors):
            check()
            sums = factor @ rows
            multiples = sums * kind(1 / p)
            np.floor(multiples, out=multiples)
            multiples *= kind(p)
            sums -= multiples
            sums += first
            out[row] += np.bincount(sums.astype(np.int64), weights, transform.cells)
    return out


def _scaled(
    channel: Prefixes, transform: Transform, block: LevelReports, step: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return symbols and the vectors of earlier steps, scaled as those of this step are; and the first cells of their lines."""
    places = channel.response.size ** np.arange(channel.dimension - 1, -1, -1, dtype=np.int32)
    functions = channel.functions(block.seeds)
    vectors = channel.coefficients(functions, step) @ places
    scale = transform.scale[vectors, None]
    parts = [block.symbols[:, None], *(channel.coefficients(functions, earlier) for earlier in range(step))]
    scaled = np.concatenate([part * scale % channel.response.size for part in parts], axis=1)
    return scaled, transform.lines[vectors] * channel.response.size
