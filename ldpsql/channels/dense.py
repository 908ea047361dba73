"""Any finite channel, as a table of whole numbers: drawn by integer alias tables, or by others, for estimates only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import native
from ldpsql.channels.base import TOTAL, Codes, TableChannel, Weights, Witness, largest_ratio
from ldpsql.channels.exact import exp_below
from ldpsql.channels.randomness import Words, random_words
from ldpsql.errors import InvalidParameter, NotPrivate

# Integer alias tables: exact draws from many rows of whole-number weights, one 64-bit word per draw.
#
# Source: Walker, "An efficient method for generating discrete random variables with general distributions", ACM TOMS 1977.

_ROWS = 256  # rows at a time, when they are recounted
_BLOCK = 1 << 14  # draws at a time, so that what is computed on the way stays in the cache


@dataclass(frozen=True)
class AliasTables:
    """For each row 2**bits columns of capacity 2**(64-bits), each filled by its own report and at most one other.

    The top ``bits`` of a word pick the column. If the rest of the word is below ``threshold``, it gives the column's own
    report, else the column's ``alias``. Both are stored in one word, threshold * 2**bits + alias, so that a draw reads memory
    once; a column that its own report fills is its own alias.
    """

    packed: Weights  # (rows, columns)
    bits: int

    @property
    def threshold(self) -> Weights:
        """Weight that each column keeps for its own report, shape (rows, columns)."""
        return self.packed >> np.uint64(self.bits)

    @property
    def alias(self) -> Codes:
        """The other report of each column, shape (rows, columns)."""
        return (self.packed & np.uint64((1 << self.bits) - 1)).astype(np.int32)

    @classmethod
    def of(cls, weights: Weights) -> AliasTables:
        """Return the tables of all rows; each row of ``weights`` sums to 2**64."""
        bits = max(1, (weights.shape[1] - 1).bit_length())
        packed = np.zeros((len(weights), 1 << bits), dtype=np.uint64)
        packed[:, : weights.shape[1]] = weights
        for row in packed:
            row[:] = _packed(row, bits)
        return cls(packed, bits)

    def draw(self, rows: Codes, words: Words) -> Codes:
        """Draw one report from each of the given rows."""
        drawn = native.alias(rows, self.packed, self.bits) if words is random_words else None
        if drawn is not None:
            return drawn
        out = np.empty(len(rows), dtype=np.int32)
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            out[start : start + _BLOCK] = self._draw(block, words(len(block)))
        return out

    def _draw(self, rows: Codes, word: Weights) -> Codes:
        low = np.uint64((1 << self.bits) - 1)
        column = (word >> np.uint64(64 - self.bits)).view(np.int64)
        at = column
        if len(self.packed) > 1:
            at = rows.astype(np.int64)
            at <<= self.bits
            at += column
        entry = self.packed.ravel().take(at)
        other = (entry & low).view(np.int64)
        # Shifting the column out leaves the rest at the height of the threshold, above the bits of the alias.
        return np.where((word << np.uint64(self.bits)) < (entry & ~low), column, other)

    def make(self, weights: Weights) -> bool:
        """Return whether the tables draw with exactly these weights, recounted from the tables alone."""
        outputs, blocks = weights.shape[1], range(0, len(weights), _ROWS)
        if type(self.packed) is not np.ndarray or self.packed.shape != (len(weights), 1 << self.bits):
            return False
        recounted = (self._recounted(slice(start, start + _ROWS)) for start in blocks)
        return all(
            np.array_equal(part[:, :outputs], weights[start : start + _ROWS]) and not part[:, outputs:].any()
            for start, part in zip(blocks, recounted, strict=True)
        )

    def _recounted(self, rows: slice) -> Weights:
        """Return the weights with which some rows of the tables draw each report."""
        part = AliasTables(self.packed[rows], self.bits)
        total, capacity = part.threshold, np.uint64(1 << (64 - self.bits))
        np.add.at(total, (np.arange(len(total))[:, None], part.alias), capacity - total)
        return total


def _packed(weights: Weights, bits: int) -> Weights:
    """Return the columns of one row: reports below capacity lack weight, which the others give in order.

    What the smaller reports lack and what the others can spare are added up in order. A report gives from where the spare
    weight of those before it ends. It takes from the one after it what it gave beyond its own.
    """
    capacity = np.uint64(1 << (64 - bits))
    small, large = np.flatnonzero(weights < capacity), np.flatnonzero(weights >= capacity)
    lacks, spare = capacity - weights[small], np.cumsum(weights[large] - capacity, dtype=np.uint64)
    lacking = np.cumsum(lacks, dtype=np.uint64)
    threshold, alias = weights.copy(), np.arange(len(weights))
    alias[small] = large[np.searchsorted(spare, lacking - lacks)]
    first = np.searchsorted(lacking, spare, side="right")  # the first report that the spare weight up to here does not fill
    short = np.flatnonzero(first < len(small))
    threshold[large] = 0  # it fills its column, and is its own alias
    threshold[large[short]] = capacity - (lacking[first[short]] - spare[short])
    alias[large[short]] = large[short + 1]
    return np.asarray(threshold << np.uint64(bits) | alias.astype(np.uint64), dtype=np.uint64)


class WeightsChannel(TableChannel):
    """A channel given by its weights, an array of uint64 of shape ``(inputs, outputs)`` whose rows sum to 2**64.

    Raises:
        InvalidParameter: if the weights have another type or shape, or a row has another sum.

    """

    def __init__(self, weights: Weights) -> None:
        plain = type(weights) is np.ndarray  # a subclass could show other numbers later
        if not plain or weights.dtype != np.uint64 or weights.ndim != 2 or min(weights.shape) < 2:
            raise InvalidParameter("weights must be unsigned 64-bit whole numbers, at least two values by two reports")
        if not _rows_sum_to_total(weights):
            raise InvalidParameter("every row of weights must sum to 2**64")
        self._weights = weights.copy()
        self._weights.flags.writeable = False

    @property
    def inputs(self) -> int:
        return self._weights.shape[0]

    @property
    def outputs(self) -> int:
        return self._weights.shape[1]

    def rows(self, values: Codes) -> Weights:
        return self._weights[values]


class DenseChannel(WeightsChannel):
    """Any finite channel, drawn by integer alias tables; see `WeightsChannel`."""

    in_step = True

    @cached_property
    def tables(self) -> AliasTables:
        """The tables that reports are drawn from."""
        return AliasTables.of(self._weights)

    def widest(self) -> Witness | None:
        """Return the largest ratio of two weights in a column, compared as whole numbers."""
        high, low = self._weights.max(axis=0), self._weights.min(axis=0)
        largest = largest_ratio(high, low)
        if largest is None:
            return None
        ratio, report = largest
        column = self._weights[:, report]
        return Witness(ratio, int(column.argmax()), int(column.argmin()), report)

    def draws_its_weights(self) -> bool:
        return self.tables.make(self._weights)

    def draw(self, values: Codes, words: Words = random_words) -> Codes:
        """Draw one report for each value, from one word each."""
        return self.tables.draw(values, words)


def _rows_sum_to_total(weights: Weights) -> bool:
    """Return whether each row sums to exactly 2**64: the 32-bit halves are added separately, so nothing overflows."""
    high = (weights >> np.uint64(32)).sum(axis=1, dtype=np.uint64)
    low = (weights & np.uint64(0xFFFFFFFF)).sum(axis=1, dtype=np.uint64)
    return all((int(h) << 32) + int(part) == TOTAL for h, part in zip(high, low, strict=True))


def floor_mixing(rows: Sequence[Sequence[Fraction]], epsilon: Fraction) -> DenseChannel:
    """Return an exact channel rounded to whole numbers so that ratios within e^epsilon stay within e^epsilon.

    Every probability P becomes (TOTAL - g m) P + g, rounded to a neighbouring whole number, with m reports and a floor
    g >= coth(epsilon/2): the floor outweighs the effect of rounding on a ratio.

    Args:
        rows: probabilities P(report|value); each row sums to exactly 1.
        epsilon: the smallest exponent within which two rows must stay.

    Raises:
        InvalidParameter: if the floor leaves no room for the probabilities.

    """
    floor = _floor(epsilon, len(rows[0]), TOTAL)
    return DenseChannel(np.stack([_round_row(row, floor) for row in rows]))


def _floor(epsilon: Fraction, reports: int, room: int) -> int:
    """Return coth(epsilon/2) = (e^epsilon + 1)/(e^epsilon - 1), rounded up; times the reports it must be less than the room."""
    grown = exp_below(epsilon)
    floor = int(-(-(grown + 1) // (grown - 1)))
    if floor * reports >= room:
        raise InvalidParameter("this channel is too close to constant to be kept in whole numbers")
    return floor


def _round_row(row: Sequence[Fraction], floor: int) -> NDArray[np.uint64]:
    """Return one row in whole numbers that sum to TOTAL, each within one of its exact value (largest remainders)."""
    parts, whole_row = over_one_denominator(row)
    room = TOTAL - floor * len(row)
    divided = {part: divmod(room * part, whole_row) for part in set(parts)}
    whole, remainders = zip(*(divided[part] for part in parts), strict=True)
    weights = [w + floor for w in whole]
    by_remainder = sorted(range(len(row)), key=remainders.__getitem__, reverse=True)
    for y in by_remainder[: TOTAL - sum(weights)]:
        weights[y] += 1
    return np.array(weights, dtype=np.uint64)


def over_one_denominator(fractions: Sequence[Fraction]) -> tuple[list[int], int]:
    """Return the numerators of fractions over their least common denominator, and that."""
    parts = [fraction.as_integer_ratio() for fraction in fractions]
    common = lcm(*{below for _, below in parts})
    return [above * (common // below) for above, below in parts], common


# A channel in doubles is built for an exponent that is smaller by this much. It is far above the rounding of doubles (about
# 1e-14 in a logarithm of probabilities above 2**-64) and far below any measurable difference.
MARGIN = Fraction(1, 2**36)


def reduced(exponent: Fraction) -> float:
    """Return the exponent for which to build a channel in doubles, smaller by `MARGIN`.

    Raises:
        InvalidParameter: if hardly anything would be left.

    """
    if exponent < 2 * MARGIN:
        raise InvalidParameter("epsilon is too small for this mechanism", "use at least 1e-10")
    return float(exponent - MARGIN)


def from_doubles(table: NDArray[np.float64], exponent: Fraction) -> DenseChannel:
    """Return a channel in doubles rounded to whole numbers by floor mixing; see `floor_mixing`.

    Build the table for `reduced` exponents, to make up for the rounding of doubles; the certificate decides.

    Args:
        table: probabilities or weights. Rows are scaled to sum to 1; a column of zeros stays zero.
        exponent: the smallest exponent within which two rows must stay.

    Raises:
        InvalidParameter: if fewer than two reports are possible, or the floor leaves no room for the probabilities.

    """
    used = np.flatnonzero(table.any(axis=0))
    if len(used) < 2:
        raise InvalidParameter(
            "every value would give the same report", "blahut_arimoto keeps rare reports with mixing above 0"
        )
    floor = _floor(exponent, len(used), TOTAL // 2)
    shares = table[:, used] / table[:, used].sum(axis=1, keepdims=True)
    room = TOTAL - floor * len(used)
    # The whole part of a double below 2**64 is exact; the factor 1 - 2**-40 leaves room for the rounding of products and sums.
    inside = (shares * (float(room) * (1 - 2.0**-40))).astype(np.uint64)
    left = [room - sum(row) for row in inside.tolist()]
    weights = np.zeros(table.shape, dtype=np.uint64)
    for x, rest in enumerate(left):
        weights[x, used] = inside[x] + _shared_out(shares[x], rest) + np.uint64(floor)
    return DenseChannel(weights)


def _shared_out(shares: NDArray[np.float64], rest: int) -> Weights:
    """Return a small whole number split in proportion to the shares; the remainder goes to the largest ones."""
    out = (shares * (rest * (1 - 2.0**-40))).astype(np.uint64)
    more = rest - int(out.sum())
    largest = np.argsort(-shares, kind="stable")
    out[largest] += np.uint64(more // len(shares))
    out[largest[: more % len(shares)]] += np.uint64(1)
    return out


# Tables of weights that a few whole numbers determine: a window that moves evenly, and two reports whose weights move evenly.
#
# They take sums, differences and quotients of whole numbers only, so that another program derives the same table:
# `ldpsql.clients.module`.


@dataclass(frozen=True)
class Window:
    """Rows of ``bins`` weights, one for each of as many values: ``low`` everywhere, and ``inside`` more within the window.

    A bin that the window covers has ``step`` more than ``low``. With that as the unit of length, the window is ``inside`` long
    and begins at ``start`` in the first row; it ends as far from the end in the last one, and moves evenly in between.
    """

    bins: int
    low: int
    inside: int
    step: int
    start: int

    @classmethod
    def of(cls, bins: int, grown: float, width: float, first: float, share: int = TOTAL) -> Window:
        """Return the window of rows that sum to ``share``.

        Args:
            bins: the number of values, and of reports, at least 2.
            grown: how many times ``low`` the weight of a covered bin exceeds ``low``, at most.
            width: the number of bins that the window covers.
            first: where it begins in the first row, in bins.
            share: the sum of each row.

        """
        low = int(share / (bins + grown * width)) + 1
        inside = share - low * bins
        step = int(inside / width)
        return cls(bins, low, inside, step, int(first * step))

    @property
    def way(self) -> int:
        """How far the window of the last row lies from that of the first one."""
        return self.bins * self.step - self.inside - 2 * self.start

    def weights(self) -> Weights:
        """Return the table."""
        out = np.full((self.bins, self.bins), self.low, dtype=np.uint64)
        for value, row in enumerate(out):
            self._raise(row, self.start + self.way * value // (self.bins - 1))
        return out

    def _raise(self, row: Weights, begin: int) -> None:
        """Add the window that begins there to a row."""
        end = begin + self.inside
        first, last = begin // self.step, (end - 1) // self.step
        if first == last:
            row[first] += np.uint64(self.inside)
            return
        row[first] += np.uint64((first + 1) * self.step - begin)
        row[last] += np.uint64(end - last * self.step)
        if last - first > 1:  # a step of a window that never covers a bin may be too large for a word
            row[first + 1 : last] += np.uint64(self.step)


def two_reports(bins: int, first: int, share: int = TOTAL) -> Weights:
    """Return two weights for each of some values: the left one falls evenly from ``first``, the right one rises to it.

    Each row sums to ``share``.
    """
    fall = 2 * first - share
    left = np.array([first - fall * value // (bins - 1) for value in range(bins)], dtype=np.uint64)
    return np.stack([left, np.array([share - weight for weight in left.tolist()], dtype=np.uint64)], axis=1)


class UndrawnChannel(WeightsChannel):
    """A channel without privacy, for estimates only; see `WeightsChannel`.

    It is not one of the structures that are certified, and has nothing to draw with.
    """

    @classmethod
    def of(cls, rows: Sequence[Sequence[Fraction]]) -> UndrawnChannel:
        """Return a table of probabilities in whole numbers; zeros stay zeros, and 1 loses 2**-64 to the report after it."""
        return cls(np.array([_whole(row) for row in rows], dtype=np.uint64))

    def widest(self) -> None:
        """Return None: its ratios bound nothing."""

    def draws_its_weights(self) -> bool:
        """Return False: nothing is drawn."""
        return False

    def draw(self, values: Codes, words: Words = random_words) -> NoReturn:  # noqa: ARG002
        """Refuse to draw.

        Raises:
            NotPrivate: always.

        """
        raise estimates_only()


def estimates_only() -> NotPrivate:
    """Return the refusal to do anything but estimate with a mechanism that has no claim of privacy."""
    return NotPrivate(
        "this mechanism has no claim of privacy: it is for estimates only, and nothing is drawn with it",
        "to perturb, take a mechanism with an epsilon, such as ldp.matrix or ldp.krr",
    )


def _whole(row: Sequence[Fraction]) -> list[int]:
    parts, whole = over_one_denominator(row)
    weights = [part * TOTAL // whole for part in parts]
    largest = max(range(len(row)), key=parts.__getitem__)
    weights[largest] += TOTAL - sum(weights)
    if weights[largest] == TOTAL:  # which 64 bits cannot hold
        weights[largest] -= 1
        weights[(largest + 1) % len(row)] += 1
    return weights
