"""Any finite channel, as a table of whole numbers, drawn by integer alias tables."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from math import lcm

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.alias import AliasTables
from ldpsql.channels.base import TOTAL, Codes, TableChannel, Weights, Witness, largest_ratio
from ldpsql.channels.exact import exp_below
from ldpsql.channels.randomness import Words, random_words
from ldpsql.errors import InvalidParameter


class DenseChannel(TableChannel):
    """A channel given by its weights, an array of uint64 of shape ``(inputs, outputs)`` whose rows sum to 2**64.

    Raises:
        InvalidParameter: if the weights have another type or shape, or a row has another sum.

    """

    in_step = True

    def __init__(self, weights: Weights) -> None:
        plain = type(weights) is np.ndarray  # a subclass could show other numbers later
        if not plain or weights.dtype != np.uint64 or weights.ndim != 2 or min(weights.shape) < 2:
            raise InvalidParameter("weights must be unsigned 64-bit whole numbers, at least two values by two reports")
        if not _rows_sum_to_total(weights):
            raise InvalidParameter("every row of weights must sum to 2**64")
        self._weights = weights.copy()
        self._weights.flags.writeable = False

    @cached_property
    def tables(self) -> AliasTables:
        """The tables that reports are drawn from."""
        return AliasTables.of(self._weights)

    @property
    def inputs(self) -> int:
        """Number of values."""
        return self._weights.shape[0]

    @property
    def outputs(self) -> int:
        """Number of reports."""
        return self._weights.shape[1]

    def rows(self, values: Codes) -> Weights:
        """Return the rows of weights of these values."""
        return self._weights[values]

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
        """Return whether the tables, recounted, reproduce the weights."""
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
