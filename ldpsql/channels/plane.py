"""Noise on the plane, moved to the nearest cell of a rectangle: as a table of all pairs of cells if they are few."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import ceil, log, pi

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.base import TOTAL, TableChannel, Weights
from ldpsql.channels.dense import DenseChannel, from_doubles, reduced
from ldpsql.channels.planar_noise import MOST_SQUARES, PlanarNoise, box, cells_reached, noise_tables, reach
from ldpsql.errors import InvalidParameter

# Noise on the plane in six whole numbers, from which any program derives the same weights.
#
# At squared distance n, in steps of the grid of points, the noise has the weight peak * e^(-step * sqrt(n)). It is computed in
# fixed point: sums, products, quotients and roots of whole numbers, rounded down.

_BITS = 44  # of exponents after the point
_DIGIT, _DIGITS = 10, 5  # exponents are split into five digits of 10 bits, so they are below 64
_MOST = (1 << _DIGIT * _DIGITS) - 1
_LOST = 10  # what rounding takes from a weight, at most: one for each digit and each product
_ROOM = 1.0 - 2.0**-36  # for the rounding of a sum of doubles


@dataclass(frozen=True)
class PlanarDecay:
    """Noise that falls exponentially with the distance, on a rectangle of cells.

    Args:
        columns: columns of the rectangle.
        rows: its rows.
        points: steps along the side of a cell.
        step: the exponent of a step of the grid, times 2**44.
        peak: about the weight of the point at distance 0.
        spread: the weight that every point has at least.

    """

    columns: int
    rows: int
    points: int
    step: int
    peak: int
    spread: int

    @classmethod
    def within(cls, columns: int, rows: int, decay: float, points: int) -> PlanarDecay:
        """Return noise proportional to e^(-decay * distance in cells), summed over the points of each cell.

        Rounding, which takes less than 10 from a weight, changes no ratio by more than e^decay allows if each point also has a
        spread of at least 10 / (1 - e^-decay).

        Raises:
            InvalidParameter: if the noise reaches too far.

        """
        whole = min(int(decay / points * 2.0**_BITS), _MOST)
        step = whole / 2.0**_BITS
        most = 64 * log(2) + min(0.0, 2 * log(step) - log(2 * pi))  # the logarithm of the largest weight, about
        if (most / step) ** 2 >= MOST_SQUARES:
            raise InvalidParameter("epsilon is too small for cells of this side", "use larger cells or a larger epsilon")
        shape = np.exp(-step * np.sqrt(np.arange(int((most / step) ** 2) + 2)))
        spread = int(2 * _LOST / -np.expm1(-decay)) + 1
        floor = spread * points**2 * int(cells_reached(columns, rows, reach(len(shape), points)).sum())
        total = float(box(noise_tables(shape, columns, rows, points)).sum())
        return cls(columns, rows, points, whole, int((TOTAL - floor) / total * _ROOM), spread)

    def falling(self) -> Weights:
        """Return the weights by squared distance, up to the last one above 0."""
        furthest = log(self.peak) / (self.step / 2.0**_BITS)
        exponents = np.minimum(
            _upper(np.uint64(self.step << 14), _roots(int(furthest**2) + 2) << np.uint64(10)), np.uint64(_MOST)
        )
        weights = np.full(len(exponents), self.peak, dtype=np.uint64)
        for place, powers in enumerate(_powers()):
            weights = _upper(weights, powers[(exponents >> np.uint64(_DIGIT * place)) & np.uint64((1 << _DIGIT) - 1)])
        weights = np.minimum.accumulate(weights)
        return weights[: max(1, np.count_nonzero(weights))]

    def noise(self) -> PlanarNoise:
        """Return the channel. What rounding leaves over goes to all cells alike: more spread only makes ratios smaller."""
        falling = self.falling()
        floor = self.spread * self.points**2 * cells_reached(self.columns, self.rows, reach(len(falling), self.points))
        noise = box(noise_tables(falling, self.columns, self.rows, self.points))
        each, more = divmod(TOTAL - sum(noise.ravel().tolist()) - sum(floor.ravel().tolist()), floor.size)
        floor += np.uint64(each)
        floor.ravel()[:more] += np.uint64(1)
        return PlanarNoise(falling, self.columns, self.rows, self.points, floor)


@cache
def _powers() -> tuple[Weights, ...]:
    """Return for each digit of an exponent, the lowest first, e^-digit times 2**64, at most 2**64 - 1."""
    tables = []
    for place in range(_DIGITS):
        base = term = 1 << 128
        for k in range(1, 40):
            term = -(term >> _BITS - _DIGIT * place) // k
            base += term
        powers, power = [], 1 << 128
        for _ in range(1 << _DIGIT):
            powers.append(min(power >> 64, TOTAL - 1))
            power = power * base >> 128
        tables.append(np.array(powers, dtype=np.uint64))
    return tuple(tables)


def _roots(count: int) -> Weights:
    """Return the square roots of 0, 1, 2, ... times 2**40, rounded down exactly."""
    roots = np.floor(np.sqrt(np.arange(count)) * 2.0**40).astype(np.uint64)
    roots -= (-(roots * roots)).astype(np.int64) < 0  # n * 2**80 is 0 modulo 2**64, and the difference is small
    return np.asarray(roots + ((-(roots * roots)).astype(np.int64) > 2 * roots.astype(np.int64)), dtype=np.uint64)


def _upper(one: Weights | np.uint64, other: Weights) -> Weights:
    """Return the upper 64 bits of products of 64-bit words."""
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    (a, b), (c, d) = ((word >> half, word & mask) for word in (one, other))
    middle = a * d + (b * d >> half)
    return np.asarray(a * c + (middle >> half) + (b * c + (middle & mask) >> half), dtype=np.uint64)


MOST_LISTED = 1024  # cells of which all pairs are listed
_FAR = 36.0  # epsilon times distance beyond which less than 2^-45 of the noise falls
_MOST_POINTS = 60_000_000


def planar_channel(columns: int, rows: int, exponent: Fraction, points: int = 1) -> TableChannel:
    """Return the channel of noise proportional to e^(-exponent * distance in cells), see `clamped_plane`, for many cells too.

    Raises:
        InvalidParameter: if the noise reaches too far to be added up.

    """
    decay, few = reduced(exponent), columns * rows <= MOST_LISTED
    try:
        noise = PlanarDecay.within(columns, rows, decay, points).noise()
    except InvalidParameter:
        if few:  # a table can hold noise that reaches farther
            return from_doubles(clamped_plane(columns, rows, decay, points), exponent)
        raise
    return DenseChannel(noise.weights()) if few else noise


def clamped_plane(columns: int, rows: int, decay: float, points: int = 1) -> NDArray[np.float64]:
    """Return the table of noise proportional to e^(-decay * distance in cells); each point goes to its nearest cell.

    Each cell holds ``points`` x ``points`` points in a regular pattern; values are centres of cells. The pattern repeats, so
    the noise has the same total for every value, and a ratio of two rows never exceeds e^(decay * distance). In a rectangle,
    the nearest row and the nearest column give the nearest cell, so a cell on the border collects all points beyond it.

    Raises:
        InvalidParameter: if the noise reaches too far to be added up.

    """
    return _pairs(_noise_of_decay(columns, rows, decay, points), np.arange(columns * rows))


def _noise_of_decay(columns: int, rows: int, decay: float, points: int) -> NDArray[np.float64]:
    """Return the noise at each offset of columns and of rows, shape (2, 2, columns, rows).

    The first axis selects noise at that offset of columns only, or at that offset and beyond; the second does so for rows.

    Raises:
        InvalidParameter: if the noise spreads over more cells than a table may have.

    """
    far = ceil(_FAR / decay)
    if (columns + far) * (rows + far) * points**2 > _MOST_POINTS:
        raise InvalidParameter("epsilon is too small for cells of this side", "use larger cells or a larger epsilon")
    single = _quadrant(columns + far, rows + far, decay, points)
    by_column = [single, single[::-1].cumsum(axis=0)[::-1]]
    return np.array([[t[:columns, :rows], t[:, ::-1].cumsum(axis=1)[:, ::-1][:columns, :rows]] for t in by_column])


def _pairs(tables: NDArray[np.float64], values: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the noise for some values and all reports, both numbered row by row: shape (values, columns * rows)."""
    columns, rows = tables.shape[2:]
    row, column = np.divmod(values, columns)
    at_border = [np.isin(np.arange(size), [0, size - 1]).astype(np.int64) for size in (columns, rows)]
    apart = [np.abs(own[:, None] - np.arange(size)) for own, size in ((column, columns), (row, rows))]
    table = tables[at_border[0][None, None, :], at_border[1][None, :, None], apart[0][:, None, :], apart[1][:, :, None]]
    return table.reshape(len(values), columns * rows)


def _quadrant(columns: int, rows: int, decay: float, points: int) -> NDArray[np.float64]:
    """Return the noise at offsets (0.., 0..): the sum over the points of the cell."""
    steps = (np.arange(points) - (points - 1) / 2) / points
    across = (np.arange(columns)[:, None] + steps).ravel()
    along = (np.arange(rows)[:, None] + steps).ravel()
    out = np.empty((columns, rows))
    for i in range(columns):
        at = across[i * points : (i + 1) * points]
        mass = np.exp(-decay * np.hypot(at[:, None], along)).sum(axis=0)
        out[i] = mass.reshape(rows, points).sum(axis=1)
    return out
