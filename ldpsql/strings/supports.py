"""How many reports of a level support each continuation of a prefix, in blocks of reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import Letters, Prefixes, Words64
from ldpsql.inference.deadline import check
from ldpsql.inference.operators import Floats, Ints

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


# How many reports support each continuation of a prefix: counts by function and symbol, and one Fourier transform.
#
# A report with the vector a for the letters of a step supports the continuation e if <a, e> = y. With chi(t) = exp(2 pi i t/p),
#
#   [<a, e> = y] = 1/p sum_k chi(k (<a, e> - y)) = 1/p + 1/p sum_{k != 0} chi(-k y) chi(<k a, e>),
#
# so the numbers of supporters of all e are one transform over the vectors k a. Scaling a and y by the same element changes
# nothing, so reports are counted for vectors whose first coordinate other than 0 is 1; each other vector is a multiple of one.


@dataclass(frozen=True, eq=False)
class Transform:
    """The vectors of ``m`` coordinates over the field of ``p`` elements; numbers stand for vectors, digit by digit.

    Args:
        p: a prime.
        m: number of coordinates.
        lines: for each vector the number of the line through it and 0; for 0 itself the number of lines.
        scale: for each vector the element that scales it to the vector that stands for its line; 1 for 0.
        first: how many first vectors are asked for.
        place: where the coefficient of each vector stands among the transforms along the symbols of all lines.
        mirrored: which of these coefficients are the conjugate of what stands there.

    """

    p: int
    m: int
    first: int
    lines: Ints
    scale: NDArray[np.int32]
    place: Ints
    mirrored: NDArray[np.bool_]

    @staticmethod
    @lru_cache(maxsize=4)
    def of(p: int, m: int, first: int) -> Transform:
        """Return the transform of a size, for the first vectors, at most ``p ** m``."""
        numbers = np.arange(p**m)
        places = p ** np.arange(m - 1, -1, -1)
        vectors = numbers[:, None] // places % p
        leading = vectors[numbers, (vectors != 0).argmax(axis=1)]
        inverse = np.array([1, *(pow(element, -1, p) for element in range(1, p))])
        scale = inverse[leading].astype(np.int32)
        lines = np.unique((vectors * scale[:, None] % p) @ places, return_inverse=True)[1].ravel() - 1
        lines[0] = lines.max() + 1
        kept = vectors[:, -1] <= p // 2  # the transform of real numbers: the other half is conjugate
        multiple = leading[kept]
        place = np.minimum(lines[kept], lines[0] - 1) * (p // 2 + 1) + np.minimum(multiple, p - multiple)
        return Transform(p, m, first, lines, scale, place, multiple > p // 2)

    @property
    def cells(self) -> int:
        """Number of pairs of a line, or 0, and a symbol."""
        return (int(self.lines[0]) + 1) * self.p

    def supporters(self, counts: Floats) -> Floats:
        """Return how many reports support each of the first vectors.

        Args:
            counts: how many reports have each line and symbol, both scaled, shape (cells,).

        """
        own, nowhere = counts[: -self.p], counts[-self.p]
        if self.m == 1:  # a report supports one value
            return np.asarray(own[: self.first] + np.float64(nowhere))
        along = (own.reshape(-1, self.p).astype(np.float64) @ self._forward).view(np.complex128).ravel()[self.place]
        np.conjugate(along, out=along, where=self.mirrored)
        along[0] = 0
        return self._around(along)[: self.first] + (own.sum(dtype=np.float64) / self.p + nowhere)

    def _around(self, spectrum: NDArray[np.complex128]) -> Floats:
        """Return the sums over all vectors other than 0, coordinate by coordinate: of the first for the values asked for."""
        values = -(-self.first // self.p ** (self.m - 1))
        rows = self._waves[:values] @ spectrum.reshape(self.p, -1)
        for _ in range(self.m - 2):
            rows = self._waves @ rows.reshape(values, self.p, -1)
            values *= self.p
        return np.asarray(rows.reshape(values, -1).view(np.float64) @ self._backward).ravel()

    @cached_property
    def _waves(self) -> NDArray[np.complex128]:
        """The characters: products with such tables take a fifth of the time of fast transforms, whose length is a prime."""
        numbers = np.arange(self.p)
        return np.exp(2j * np.pi / self.p * (numbers[:, None] * numbers % self.p))

    @cached_property
    def _forward(self) -> Floats:
        """The transform of real numbers along the symbols: real and imaginary parts next to each other."""
        return np.ascontiguousarray(self._waves[:, : self.p // 2 + 1].conj()).view(np.float64)

    @cached_property
    def _backward(self) -> Floats:
        """The transform back to real numbers, divided by ``p``: half of the coefficients stand for two each."""
        half = np.arange(self.p // 2 + 1)
        twice = np.where(half * 2 % self.p == 0, 1.0, 2.0) / self.p
        parts = self._waves[: len(half)] * twice[:, None]
        return np.stack([parts.real, -parts.imag], axis=1).reshape(-1, self.p)
