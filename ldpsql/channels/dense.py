"""Any finite channel, as a table of whole numbers, drawn by integer alias tables."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

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
        InvalidParameter: for another type or shape, or a row with another sum.

    """

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
        found = largest_ratio(high, low)
        if found is None:
            return None
        column = self._weights[:, found[1]]
        return Witness(found[0], int(column.argmax()), int(column.argmin()), found[1])

    def draws_its_weights(self) -> bool:
        """Tell whether the tables, recounted, give back the weights."""
        return self.tables.make(self._weights)

    def draw(self, values: Codes, words: Words = random_words) -> Codes:
        """Draw one report for each value, one word each."""
        return self.tables.draw(values, words)


def _rows_sum_to_total(weights: Weights) -> bool:
    """Tell whether each row sums to exactly 2**64: the 32-bit halves are added apart, so nothing wraps."""
    high = (weights >> np.uint64(32)).sum(axis=1, dtype=np.uint64)
    low = (weights & np.uint64(0xFFFFFFFF)).sum(axis=1, dtype=np.uint64)
    return all((int(h) << 32) + int(part) == TOTAL for h, part in zip(high, low, strict=True))


def floor_mixing(rows: Sequence[Sequence[Fraction]], epsilon: Fraction) -> DenseChannel:
    """Round an exact channel to whole numbers so that ratios within e^epsilon stay within e^epsilon.

    Every probability P becomes (TOTAL - g m) P + g, rounded to a neighbouring whole number, with m reports and a floor
    g >= coth(epsilon/2): the floor outweighs what the rounding can do to a ratio.

    Args:
        rows: probabilities P(report|value), each row summing to exactly 1.
        epsilon: the smallest exponent by which two rows are to stay comparable.

    Raises:
        InvalidParameter: where the floor leaves no room for the probabilities.

    """
    floor = _floor(epsilon, len(rows[0]), TOTAL)
    return DenseChannel(np.stack([_round_row(row, floor) for row in rows]))


def _floor(epsilon: Fraction, reports: int, room: int) -> int:
    """Return coth(epsilon/2) = (e^epsilon + 1)/(e^epsilon - 1), from above; that of all reports must be less than the room."""
    grown = exp_below(epsilon)
    floor = int(-(-(grown + 1) // (grown - 1)))
    if floor * reports >= room:
        raise InvalidParameter("this channel is too close to constant to be kept in whole numbers")
    return floor


def _round_row(row: Sequence[Fraction], floor: int) -> NDArray[np.uint64]:
    """Round one row to whole numbers that sum to TOTAL, each within one of its exact value (largest remainders)."""
    exact = [(TOTAL - floor * len(row)) * p + floor for p in row]
    whole = [int(v) for v in exact]
    by_remainder = sorted(range(len(row)), key=lambda y: exact[y] - whole[y], reverse=True)
    for y in by_remainder[: TOTAL - sum(whole)]:
        whole[y] += 1
    return np.array(whole, dtype=np.uint64)


# A channel in doubles is built for an exponent that is smaller by this much: far above the rounding of doubles (about 1e-14
# in a logarithm of probabilities above 2**-64), far below what anybody could measure.
MARGIN = Fraction(1, 2**36)


def reduced(exponent: Fraction) -> float:
    """Return the exponent for which to build a channel in doubles, smaller by `MARGIN`.

    Raises:
        InvalidParameter: where nothing would be left.

    """
    if exponent < 2 * MARGIN:
        raise InvalidParameter("epsilon is too small for this mechanism", "use at least 1e-10")
    return float(exponent - MARGIN)


def from_doubles(table: NDArray[np.float64], exponent: Fraction) -> DenseChannel:
    """Round a channel in doubles to whole numbers by floor mixing; see `floor_mixing`.

    What doubles can lose must be covered by building the table for `reduced` exponents; the certificate decides.

    Args:
        table: probabilities or weights, rows are scaled to sum to 1; a column of zeros stays one.
        exponent: the smallest exponent by which two rows are to stay comparable.

    Raises:
        InvalidParameter: where fewer than two reports have a chance, or the floor leaves no room for the probabilities.

    """
    used = np.flatnonzero(table.any(axis=0))
    if len(used) < 2:
        raise InvalidParameter(
            "every value would give the same report", "blahut_arimoto keeps rare reports with mixing above 0"
        )
    floor = _floor(exponent, len(used), TOTAL // 2)
    shares = table[:, used] / table[:, used].sum(axis=1, keepdims=True)
    room = TOTAL - floor * len(used)
    # Whole parts of a double below 2**64 are exact; 2**-40 less leaves room for the rounding of products and sums.
    inside = (shares * (float(room) * (1 - 2.0**-40))).astype(np.uint64)
    left = [room - sum(row) for row in inside.tolist()]
    weights = np.zeros(table.shape, dtype=np.uint64)
    for x, rest in enumerate(left):
        weights[x, used] = inside[x] + _shared_out(shares[x], rest) + np.uint64(floor)
    return DenseChannel(weights)


def _shared_out(shares: NDArray[np.float64], rest: int) -> Weights:
    """Split a small whole number in proportion to the shares, what cannot be split going to the largest ones."""
    out = (shares * (rest * (1 - 2.0**-40))).astype(np.uint64)
    more = rest - int(out.sum())
    largest = np.argsort(-shares, kind="stable")
    out[largest] += np.uint64(more // len(shares))
    out[largest[: more % len(shares)]] += np.uint64(1)
    return out
