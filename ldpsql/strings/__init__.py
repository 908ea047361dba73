"""The most frequent strings behind reports of their prefixes, with intervals that hold together for whichever are returned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ldpsql.channels import Letters, Prefixes, Words64
from ldpsql.domains.unlisted import Strings
from ldpsql.errors import InvalidParameter, OutOfTime
from ldpsql.inference.counts import GroupedCounts
from ldpsql.inference.limits import check, soonest, until
from ldpsql.inference.operators import Floats, Ints
from ldpsql.inference.score_intervals import exact_ends
from ldpsql.mechanisms.base import CertifiedStrings, Mechanism, certify
from ldpsql.mechanisms.spec import Spec, WholeField

# How many reports of a level support each continuation of a prefix, in blocks of reports.

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


# The search for frequent strings: step by step, the continuations of the prefixes that were kept.
#
# A string is *complete* at the first level whose prefix is the whole string. The reports of this level and of all later ones
# have its hash, whatever the other strings are, so the number of those that support it is binomial. Which strings are
# counted at a level depends only on the reports of the levels before: so intervals for all of them hold whichever are chosen in
# the end.


_BY_CHANCE = 8.0  # prefixes that nobody has and that are expected to be kept at each level


@dataclass(frozen=True, eq=False)
class Counted:
    """The best of the strings that are complete at a level.

    Args:
        level: the level, counted from 1.
        letters: the letters of these strings, shape (strings, length).
        supporters: how many reports support each of them.
        reports: the number of reports of this level and later ones.
        tried: how many strings were counted, these among them.

    """

    level: int
    letters: Letters
    supporters: Floats
    reports: int
    tried: int


@dataclass(frozen=True, eq=False)
class Continuations:
    """All letters with which a level continues a prefix, by number; which of them end a string, and which go on."""

    letters: Letters
    complete: NDArray[np.int64]
    open: NDArray[np.int64]

    @staticmethod
    @lru_cache(maxsize=16)
    def of(channel: Prefixes, level: int) -> Continuations:
        """Return the step to a level, counted from 0."""
        size, base = channel.ends[level] - (channel.ends[level - 1] if level else 0), channel.letters + 1
        numbers = np.arange(base**size)
        letters = (numbers[:, None] // base ** np.arange(size - 1, -1, -1) % base).astype(np.uint8)
        ended = letters == 0
        possible = ~(ended[:, :-1] & ~ended[:, 1:]).any(axis=1)
        last = level == channel.levels - 1
        whole = ended.any(axis=1) | last
        return Continuations(letters, np.flatnonzero(possible & whole), np.flatnonzero(possible & ~whole))


def search(channel: Prefixes, strings: Strings, levels: list[LevelReports], kept: int, top: int) -> Iterator[Counted]:
    """Yield the strings with most supporters that are complete at each level.

    Args:
        channel: the channel of the reports.
        strings: the strings that can occur.
        levels: the reports of each level.
        kept: the largest number of prefixes that are continued.
        top: how many strings are yielded at each level, at most.

    """
    prefixes = np.zeros((1, channel.length), dtype=np.uint8)
    for level in range(channel.levels):
        own, later = levels[level], levels[level + 1 :]
        step = Continuations.of(channel, level)
        whole, going = _Best(top), _Best(kept)
        ahead = supporters(channel, prefixes, level, later) if later else None
        for row, counts in enumerate(supporters(channel, prefixes, level, [own])):
            pooled = counts[step.complete] + (next(ahead)[step.complete] if ahead else 0)
            whole.add(row, step.complete, pooled)
            going.add(row, step.open, counts[step.open])
        reports = own.total + sum(other.total for other in later)
        tried = len(prefixes) * len(step.complete)
        yield Counted(level + 1, *_extended(channel, prefixes, step, level, whole), reports, tried)
        going.above(_threshold(channel, own.total, len(prefixes) * len(step.open)))
        letters, _ = _extended(channel, prefixes, step, level, going)
        prefixes = letters[[strings.begins(prefix) for prefix in letters]]
        if not len(prefixes):
            return


def _threshold(channel: Prefixes, reports: int, tried: int) -> float:
    """Return the number of supporters above which few of the prefixes that nobody has are expected."""
    from scipy.stats import binom  # noqa: PLC0415  # slow to import

    return float(binom.isf(_BY_CHANCE / max(tried, 2 * _BY_CHANCE), reports, float(channel.miss)))


def _extended(channel: Prefixes, prefixes: Letters, step: Continuations, level: int, best: _Best) -> tuple[Letters, Floats]:
    """Return the letters of the best continuations, and their supporters."""
    letters = prefixes[best.rows].copy()
    start = channel.ends[level - 1] if level else 0
    letters[:, start : channel.ends[level]] = step.letters[best.numbers]
    return letters, best.supporters


class _Best:
    """The continuations with most supporters, of all prefixes together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.rows, self.numbers, self.supporters = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)

    def add(self, row: int, numbers: NDArray[np.int64], supporters: Floats) -> None:
        """Add continuations of the prefix in a row."""
        if len(self.supporters) == self._most:
            enough = supporters > self.supporters[-1]
            numbers, supporters = numbers[enough], supporters[enough]
        self.rows = np.concatenate([self.rows, np.full(len(numbers), row)])
        self.numbers = np.concatenate([self.numbers, numbers])
        self.supporters = np.concatenate([self.supporters, supporters])
        order = np.argsort(-self.supporters, kind="stable")[: self._most]
        self.rows, self.numbers, self.supporters = self.rows[order], self.numbers[order], self.supporters[order]

    def above(self, limit: float) -> None:
        """Leave out continuations with at most so many supporters."""
        count = int((self.supporters > limit).sum())
        self.rows, self.numbers, self.supporters = self.rows[:count], self.numbers[:count], self.supporters[:count]


_KEPT = 64
_SPARE = 64  # strings of a level that may turn out not to be text


class HeavyHitters(Spec):
    """What to search for, and how long."""

    kind = "search"
    name = "heavy_hitters"
    top: Annotated[WholeField, Field(ge=1, le=10_000)] = Field(20, description="most strings to return")
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = Field(
        0.95, description="probability that all intervals of a group hold together, whichever strings are returned"
    )
    certain: bool = Field(
        default=True, description="only strings whose interval does not hold 0; false: up to `top` strings in any case"
    )
    kept: Annotated[WholeField, Field(ge=1, le=100_000)] | None = Field(
        None, description="most prefixes that are continued at each level; NULL: three times `top`, at least 64"
    )
    deadline: Annotated[float, Field(gt=0)] | None = Field(
        None, description="time limit in seconds for all groups; NULL: an error after 60 and one for each group"
    )


@dataclass(frozen=True)
class HeavyHitter:
    """A string, its share with an interval, and how it was found.

    ``level`` is the first level whose prefix is the whole string; ``reports`` is the number of reports of this level and later
    ones, which are those that estimate the share.
    """

    value: str
    estimate: float
    std_error: float
    low: float
    high: float
    level: int
    reports: int


def strings_of(mechanism: Mechanism) -> CertifiedStrings:
    """Return the certified mechanism, which must be one over strings that are not listed.

    Raises:
        InvalidParameter: if it is another one.

    """
    certified = certify(mechanism)
    if not isinstance(certified, CertifiedStrings):
        raise InvalidParameter(f"{mechanism.name} does not perturb strings that are not listed", certified.remedy)
    return certified


def heavy_hitters(
    mechanism: Mechanism, counts: GroupedCounts, options: HeavyHitters
) -> Iterator[tuple[int, list[HeavyHitter]]]:
    """Yield each group, as ``counts.groups`` numbers it, with its most frequent strings, the most frequent first.

    Raises:
        InvalidParameter: if the mechanism is not over strings that are not listed.
        ImpossibleReport: if a report cannot occur.
        OutOfTime: if the deadline passes.

    """
    certified = strings_of(mechanism)
    words = certified.reports.read(counts.reports)
    with until(soonest(options.deadline)):
        for group, rows in zip(counts.groups.tolist(), counts.rows_of_groups(), strict=True):
            levels = by_level(words[rows], counts.numbers[rows], certified.channel.levels)
            kept = options.kept or max(_KEPT, 3 * options.top)
            try:
                check()
                tables = list(search(certified.channel, certified.values, levels, kept, options.top + _SPARE))
            except OutOfTime:
                raise OutOfTime("the deadline passed during the search", "raise deadline, or lower kept") from None
            yield group, _chosen(certified, tables, options)


def _chosen(certified: CertifiedStrings, tables: list[Counted], options: HeavyHitters) -> list[HeavyHitter]:
    """Return the most frequent of the strings that were counted at all levels."""
    hitters = [hitter for table in tables if table.reports for hitter in _hitters(certified, table, options)]
    hitters.sort(key=lambda hitter: (-hitter.estimate, hitter.value))
    return hitters[: options.top]


def _hitters(certified: CertifiedStrings, table: Counted, options: HeavyHitters) -> Iterator[HeavyHitter]:
    """Yield the strings of one level, unless they are not text, or not certain if they must be.

    Each level has the same part of the probability that an interval fails, and so has each string that was tried at a level.
    """
    hit, miss, reports = float(certified.channel.hit), float(certified.channel.miss), table.reports
    inverted = (table.supporters / reports - miss) / (hit - miss)
    failure = (1 - options.confidence) / certified.channel.levels / table.tried
    low, high = np.clip(exact_ends(inverted, reports, (miss, hit), 1 - failure), 0.0, 1.0)
    shares = np.clip(inverted, 0.0, 1.0)
    chances = miss + shares * (hit - miss)
    errors = np.sqrt(chances * (1 - chances) / reports) / (hit - miss)
    for row, letters in enumerate(table.letters):
        value = certified.values.text(letters)
        if value is not None and (low[row] > 0 or not options.certain):
            share, error, below, above = (float(column[row]) for column in (shares, errors, low, high))
            yield HeavyHitter(value, share, error, below, above, table.level, reports)
