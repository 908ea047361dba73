"""Every report of a small mechanism with its exact probability: what other checks are compared with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import singledispatch
from itertools import product
from math import prod

import numpy as np
import pyarrow as pa

from ldpsql.bulk.counts import Counts
from ldpsql.channels import (
    TOTAL,
    AnyChannel,
    BinBits,
    Drawn,
    Floats,
    Hadamard,
    IndependentBits,
    KeepOrWindow,
    Levels,
    OneOfRows,
    OrthogonalHash,
    PrivateHash,
    Rows,
    SetChannel,
    SignedBits,
    Subsets,
    TableChannel,
    Words64,
)
from ldpsql.errors import InvalidParameter
from ldpsql.mechanisms.base import Mechanism, certify

MOST_CELLS = 1 << 16  # values times reports

Table = list[list[Fraction]]  # a row for each value, with the probability of each report


@dataclass(frozen=True)
class Enumeration:
    """Every report of a mechanism, as a column, and its exact probability given each value, ``chances[value][report]``.

    The values of a mechanism over sets of pairs are the symbols that its response takes.
    """

    reports: pa.Array
    chances: Table

    @property
    def probabilities(self) -> Floats:
        """The probabilities in double precision, shape (values, reports)."""
        return np.array([[float(chance) for chance in row] for row in self.chances])

    def expected(self, shares: Sequence[float] | Floats, n: float) -> Counts:
        """Return the expected counts of n reports of people whose values have these shares, rounded to whole numbers."""
        return self.counted(n * (np.asarray(shares) @ self.probabilities))

    def counted(self, numbers: Floats) -> Counts:
        """Return counts with these numbers of the reports, rounded to whole numbers."""
        return Counts.of(self.reports, pa.array(np.rint(numbers).astype(np.uint64)))

    def kinds(self) -> Table:
        """Return the probabilities of the kinds of reports: those with proportional probabilities reveal the same."""
        merged: dict[tuple[Fraction, ...], Sequence[Fraction]] = {}
        for column in zip(*self.chances, strict=True):
            if total := sum(column):
                direction = tuple(chance / total for chance in column)
                before = merged.get(direction, [Fraction(0)] * len(column))
                merged[direction] = [a + b for a, b in zip(before, column, strict=True)]
        return [list(row) for row in zip(*merged.values(), strict=True)]


def enumerated(mechanism: Mechanism) -> Enumeration:
    """Return every report of a mechanism, from the definition of the structure of its channel.

    Hash functions that are equal on all values count as one: a seed stands for all seeds with its function.

    Raises:
        InvalidParameter: if the reports cannot be listed, or values times reports are more than ``MOST_CELLS``.

    """
    certified = certify(mechanism)
    drawn, chances = _listed(certified.response)
    return Enumeration(certified.shown(drawn), chances)


def enumerable(mechanism: Mechanism) -> Enumeration | None:
    """Return `enumerated`, or None if the reports cannot be listed."""
    try:
        return enumerated(mechanism)
    except InvalidParameter:
        return None


@singledispatch
def _listed(channel: AnyChannel) -> tuple[Drawn, Table]:
    """Return every report in the channel's own terms, and the probabilities."""
    raise InvalidParameter(f"the reports of {type(channel).__name__} are not listed", "use a mechanism over few values")


def _check(values: int, reports: int) -> None:
    if values * reports > MOST_CELLS:
        raise InvalidParameter("there are too many reports to list", "use a mechanism over fewer values")


@_listed.register
def _(channel: TableChannel) -> tuple[Drawn, Table]:
    _check(channel.inputs, channel.outputs)
    rows = channel.weights().tolist()
    return np.arange(channel.outputs, dtype=np.int32), [[Fraction(weight, TOTAL) for weight in row] for row in rows]


@_listed.register
def _(channel: OrthogonalHash | Levels | KeepOrWindow) -> tuple[Drawn, Table]:
    _check(channel.inputs, channel.outputs)
    reports = range(channel.outputs)
    return np.arange(channel.outputs, dtype=np.int32), [
        [channel.probability(value, report) for report in reports] for value in range(channel.inputs)
    ]


@_listed.register
def _(channel: IndependentBits) -> tuple[Drawn, Table]:
    """Each bit is set independently: that of the value with probability hit, any other one with probability miss."""
    words, held = _sets(channel)

    def chance(bits: Iterable[bool], value: int) -> Fraction:
        each = ((channel.hit if at == value else channel.miss, bit) for at, bit in enumerate(bits))
        return prod((p if bit else 1 - p for p, bit in each), start=Fraction(1))

    return words, [[chance(bits, value) for bits in held] for value in range(channel.inputs)]


@_listed.register
def _(channel: Subsets | Hadamard) -> tuple[Drawn, Table]:
    """All sets with the value are equally likely, and so are all sets without it."""
    words, held = _sets(channel)
    table = []
    for value in range(channel.inputs):
        inside = sum(bits[value] for bits in held)
        own, others = channel.hit / inside, (1 - channel.hit) / (len(held) - inside)
        table.append([own if bits[value] else others for bits in held])
    return words, table


@_listed.register
def _(channel: SignedBits) -> tuple[Drawn, Table]:
    """Each key shows +, - or nothing independently: that of the symbol by weights of its own, all others by the same."""
    words, held = _sets(channel)

    def chance(bits: list[bool], symbol: int) -> Fraction:
        out = Fraction(1)
        for key in range(channel.keys):
            plus, minus = channel.miss, channel.miss
            if key == symbol // 2:
                plus, minus = (channel.hit, channel.crossed)[:: 1 if symbol % 2 == 0 else -1]
            out *= plus if bits[2 * key] else minus if bits[2 * key + 1] else 1 - plus - minus
        return out

    return words, [[chance(bits, symbol) for bits in held] for symbol in range(channel.inputs)]


@_listed.register
def _(channel: BinBits) -> tuple[Drawn, Table]:
    """Each key shows a number or nothing independently; one of those near the symbol's bin may replace that of its key."""
    words, held = _sets(channel)
    numbers = channel.numbers(np.array(held)).tolist()
    each = [Fraction(channel.spread, TOTAL)] * channel.places
    each.append(1 - sum(each, Fraction(0)))  # nothing
    near, mixed = Fraction(channel.near, TOTAL), Fraction(channel.mixed, TOTAL)

    def chance(shown: list[int], symbol: int) -> Fraction:
        key, first = divmod(symbol, channel.bins)
        own = mixed * each[shown[key]] + near * (first <= shown[key] < first + channel.width)
        return own * prod((each[number] for at, number in enumerate(shown) if at != key), start=Fraction(1))

    return words, [[chance(shown, symbol) for shown in numbers] for symbol in range(channel.inputs)]


def _sets(channel: SetChannel) -> tuple[Words64, list[list[bool]]]:
    """Return the words of all sets that can be reported, and which values each holds."""
    _check(channel.inputs, 1 << min(channel.inputs, 64))
    words = np.arange(1 << channel.inputs, dtype=np.uint64)[:, None]
    words = words[channel.possible(words)]
    return words, channel.supports(words).tolist()


@_listed.register
def _(channel: PrivateHash) -> tuple[Drawn, Table]:
    """All functions are equally likely, and the symbol of the value is reported with probability hit."""
    symbols, values = channel.response.size, channel.inputs
    functions = symbols**values
    _check(values, functions * symbols)
    seeds = np.arange(64 * functions, dtype=np.uint64)
    hashes = np.stack([_supported(channel, seeds, y) for y in range(symbols)]).argmax(axis=0)
    distinct, first = np.unique(hashes, axis=0, return_index=True)
    if len(distinct) < functions:
        raise InvalidParameter("there are too many functions to find a seed of each", "use a mechanism over fewer values")
    own, other = channel.hit / functions, (1 - channel.hit) / (symbols - 1) / functions
    drawn = np.stack([np.repeat(seeds[first], symbols), np.tile(np.arange(symbols, dtype=np.uint64), functions)], axis=1)
    return drawn, [
        [own if symbol == y else other for symbol in column for y in range(symbols)] for column in distinct.T.tolist()
    ]


def _supported(channel: PrivateHash, seeds: Words64, symbol: int) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Return which values hash to a symbol under each seed."""
    return channel.supports(np.stack([seeds, np.full_like(seeds, symbol)], axis=1))


@_listed.register
def _(channel: Rows) -> tuple[Drawn, Table]:
    """The reports of the columns are independent; or one column is reported, each with the same probability."""
    parts = [_listed(part) for part in channel.parts]
    columns = [(drawn if drawn.ndim > 1 else drawn[:, None]).astype(np.uint64) for drawn, _ in parts]
    rows = [*product(*(range(part.inputs) for part in channel.parts))]
    if isinstance(channel, OneOfRows):
        return _one_reported(columns), [
            [chance / len(parts) for (_, table), value in zip(parts, row, strict=True) for chance in table[value]]
            for row in rows
        ]
    _check(len(rows), prod(map(len, columns)))
    places = [*product(*(range(len(column)) for column in columns))]
    drawn = np.array([np.concatenate([c[at] for c, at in zip(columns, place, strict=True)]) for place in places])
    each = [
        [[table[value][at] for (_, table), value, at in zip(parts, row, place, strict=True)] for place in places]
        for row in rows
    ]
    return drawn, [[prod(chances, start=Fraction(1)) for chances in row] for row in each]


def _one_reported(columns: list[Words64]) -> Words64:
    """Return the reports of single columns: the number of the column, and the words of all, of which the others are 0."""
    width, blocks, start = sum(column.shape[1] for column in columns), [], 1
    for number, column in enumerate(columns):
        block = np.zeros((len(column), 1 + width), dtype=np.uint64)
        block[:, 0], block[:, start : start + column.shape[1]] = number, column
        start += column.shape[1]
        blocks.append(block)
    return np.concatenate(blocks)
