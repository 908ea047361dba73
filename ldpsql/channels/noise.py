"""Noise added to a position: in a row of values, and on the plane, where it moves to the nearest cell of a rectangle."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from math import ceil, isqrt, log, pi
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.base import TOTAL, Codes, TableChannel, Weights, Witness, largest_ratio
from ldpsql.channels.dense import AliasTables, DenseChannel, from_doubles, reduced
from ldpsql.channels.exact import log_ratio
from ldpsql.channels.randomness import Words, random_words
from ldpsql.errors import InvalidParameter, NotApplicable, NotPrivate


class Convolution(TableChannel):
    """Report the value plus noise; a sum beyond the row of reports goes to its nearer end.

    The reports reach ``margin`` positions beyond the values at both ends. ``noise`` holds the weights of the noise
    -reach..reach with reach = inputs - 1 + margin. It sums to 2**64, and its first and last entry stand for all noise that is
    at least that large.

    Raises:
        InvalidParameter: if ``noise`` has another length or sum.

    """

    in_step = True

    def __init__(self, noise: Weights, inputs: int, margin: int = 0) -> None:
        reach = inputs - 1 + margin
        plain = type(noise) is np.ndarray  # a subclass could show other numbers later
        if not plain or noise.dtype != np.uint64 or noise.shape != (2 * reach + 1,) or inputs < 2 or margin < 0:
            raise InvalidParameter("noise must be one weight for every shift of a row of at least two values")
        if sum(noise.tolist()) != TOTAL or (noise == 0).any():
            raise InvalidParameter("the weights of noise must be positive and sum to 2**64")
        self._noise = noise.copy()
        self._noise.flags.writeable = False
        self._inputs, self._margin, self._reach = inputs, margin, reach

    @cached_property
    def tables(self) -> AliasTables:
        """The table that noise is drawn from."""
        return AliasTables.of(self._noise[None])

    @classmethod
    def geometric(cls, grown: Fraction, inputs: int, margin: int = 0) -> Convolution:
        """Return two-sided geometric noise: neighbouring values stay within the ratio ``grown`` at every report.

        The weight after w is ceil(w/grown), so no weight falls by more than the factor grown. The last one stands for the whole
        tail, which is at least w/(grown-1): then the sum of any tail falls by at most that factor, too.

        Raises:
            InvalidParameter: if ``grown`` is so small that no weight is left for noise 0.

        """
        reach = inputs - 1 + margin
        # Rounding up adds less than `extra` to a weight: 1 + 1/grown + 1/grown^2 + ...
        extra = min(Fraction(reach), grown / (grown - 1))
        added = 2 * (reach * extra + extra / (grown - 1) + 1)
        weights = [int((TOTAL - added) * (grown - 1) / (grown + 1))]
        if weights[0] < 1:
            raise InvalidParameter("epsilon is too small for a range of this size")
        while len(weights) < reach:
            weights.append(-(-weights[-1] * grown.denominator // grown.numerator))
        tail = int(-(-weights[-1] // (grown - 1)))
        rest = TOTAL - (2 * sum(weights) - weights[0]) - 2 * tail  # a larger tail only makes ratios smaller
        inner = weights[:0:-1] + weights
        return cls(np.array([tail + rest // 2, *inner, tail + rest - rest // 2], dtype=np.uint64), inputs, margin)

    @classmethod
    def shaped(cls, shape: list[float], inputs: int) -> Convolution:
        """Return symmetric noise with probabilities proportional to ``shape`` at 0, 1, .. inputs-1, none of them zero."""
        scale = float(TOTAL - 4 * inputs) * (1 - 2.0**-50) / (2 * sum(shape) - shape[0])
        half = [int(scale * s) + 1 for s in shape]
        half[0] += TOTAL - (2 * sum(half) - half[0])
        return cls(np.array(half[:0:-1] + half, dtype=np.uint64), inputs)

    @property
    def noise(self) -> Weights:
        """The weights of the noise -reach..reach."""
        return self._noise

    @property
    def inputs(self) -> int:
        return self._inputs

    @property
    def margin(self) -> int:
        """Number of reports beyond the values at each end."""
        return self._margin

    @property
    def outputs(self) -> int:
        return self._inputs + 2 * self._margin

    def rows(self, values: Codes) -> Weights:
        shift = self._reach - self._margin - values.astype(np.int64)  # of the first report in the table of noise
        out = self._noise[shift[:, None] + np.arange(self.outputs)]
        below, above = self._tails()
        out[:, 0], out[:, -1] = below[shift], above[shift + self.outputs - 1]
        return out

    def _tails(self) -> tuple[Weights, Weights]:
        """Return for every entry the weight of noise up to it, and of noise from it on."""
        return np.cumsum(self._noise, dtype=np.uint64), np.cumsum(self._noise[::-1], dtype=np.uint64)[::-1]

    def widest(self) -> Witness | None:
        """Return the largest ratio: at an end, or between two noises that can give the same report."""
        inner = self._noise[1:-1]
        highest, lowest = _extremes(inner, self._inputs, np.maximum), _extremes(inner, self._inputs, np.minimum)
        below, above = self._end_columns()
        best = largest_ratio(
            np.concatenate([[below.max()], highest, [above.max()]]), np.concatenate([[below.min()], lowest, [above.min()]])
        )
        if best is None:
            return None
        column = self._column(best[1])
        return Witness(best[0], int(column.argmax()), int(column.argmin()), best[1])

    def steepest(self) -> Witness | None:
        """Return the largest ratio of neighbouring values: of neighbouring noises, or of neighbouring tails at an end."""
        below, above = self._end_columns()
        parts = [below, above, self._noise[1:-1]]
        near, far = np.concatenate([part[:-1] for part in parts]), np.concatenate([part[1:] for part in parts])
        best = largest_ratio(np.concatenate([near, far]), np.concatenate([far, near]))
        if best is None:
            return None
        falling, at = best[1] < len(near), best[1] % len(near)
        steps = self._inputs - 1
        if at < 2 * steps:
            x, report = at % steps, 0 if at < steps else self.outputs - 1
        else:  # noise at+1 leads from x+1 to the report to which noise at+2 leads from x
            at -= 2 * steps
            x = max(0, steps - 1 - at)
            report, falling = at + 1 + x + 1 - steps, not falling
        return Witness(best[0], x if falling else x + 1, x + 1 if falling else x, report)

    def _end_columns(self) -> tuple[Weights, Weights]:
        return self._column(0), self._column(self.outputs - 1)

    def _column(self, report: int) -> Weights:
        """Return the weights of one report over all values."""
        at = self._reach - self._margin - np.arange(self._inputs) + report
        below, above = self._tails()
        if report == 0:
            return below[at]
        return above[at] if report == self.outputs - 1 else self._noise[at]

    def draws_its_weights(self) -> bool:
        return self.tables.make(self._noise[None])

    def draw(self, values: Codes, words: Words = random_words) -> Codes:
        """Draw one noise for each value, from one word each, and add it."""
        noise = self.tables.draw(np.zeros(len(values), dtype=np.int32), words)
        noise += values
        noise -= np.int32(self._inputs - 1)
        return np.clip(noise, 0, self.outputs - 1, out=noise)


def _extremes(row: Weights, width: int, keep: np.ufunc) -> Weights:
    """Return the maximum or minimum of every stretch of ``width`` entries, by doubling."""
    span = 1
    best = row
    while 2 * span <= width:
        best = keep(best[:-span], best[span:])
        span *= 2
    count = len(row) - width + 1
    return keep(best[:count], best[width - span : width - span + count])


# Noise on the plane added to the cells of a large rectangle: no table of all pairs of cells.
#
# The channel is a post-processing of a simpler one on a grid of points, ``points`` x ``points`` of them in each cell, that
# extends beyond the rectangle as far as the noise reaches. From the centre of the value's cell, the point at squared distance n
# (in steps of the grid) has the weight ``falling[n]``; every point has at least the weight ``spread`` whatever the value is.
# Each point then goes to its cell, or to the nearest cell of the rectangle. `PROOFS.md` says why the weights of points decide.

# Noise on the plane, added up for the cells of a rectangle: at each offset, and at each offset and beyond.

_LARGEST_SUM = 2.0**64 * (1.0 - 2.0**-38)  # a sum of doubles up to here is one of less than 2**64
Number = TypeVar("Number", np.uint64, np.float64)  # weights, or shares


def reach(squares: int, points: int) -> int:
    """Return by how many cells noise can move a value along a row, if it has weights for this many squared distances."""
    return (isqrt(squares - 1) + points // 2) // points


def noise_tables(falling: NDArray[Number], columns: int, rows: int, points: int) -> NDArray[Number]:
    """Return the noise at each offset of columns and of rows, shape (2, 2, columns, rows).

    The first axis selects noise at that offset of columns only, or at that offset and beyond; the second does so for rows.
    """
    total = 0.0
    last = reach(len(falling), points)
    out = np.zeros((2, 2, columns, rows), dtype=falling.dtype)
    half = points // 2
    squares = np.arange(last * points + half + 1, dtype=np.int64) ** 2
    beyond = np.zeros(last + 1, dtype=falling.dtype)
    for offset in range(last, -1, -1):
        single = np.zeros_like(beyond)
        for at in range(offset * points - half, offset * points + half + 1):
            line = np.zeros(half + len(squares), dtype=falling.dtype)  # of the points from -half on
            inside = np.searchsorted(squares, len(falling) - at**2)
            line[half : half + inside] = falling[at**2 + squares[:inside]]
            line[:half] = line[2 * half : half : -1]
            total += float(line.sum(dtype=np.float64))
            single += line.reshape(-1, points).sum(axis=1, dtype=falling.dtype)
        beyond += single
        if offset < columns:
            for kind, line in enumerate((single, beyond)):
                size = min(rows, last + 1)
                out[kind, 0, offset, :size] = line[:size]
                out[kind, 1, offset, :size] = line[::-1].cumsum(dtype=falling.dtype)[::-1][:size]
    if total > _LARGEST_SUM:
        raise InvalidParameter("the noise on the plane has too much weight", "all weights sum to 2**64")
    return out


def box(tables: NDArray[Number], *, mirrored: bool = True) -> NDArray[Number]:
    """Return the noise at the offsets up to the last column and row, where the last one stands for all beyond: one quarter.

    With ``mirrored``, each offset counts as often as it occurs in the four quarters.
    """
    columns, rows = tables.shape[2:]
    last = [np.where(np.arange(size) == size - 1, 1, 0) for size in (columns, rows)]
    quarter = tables[last[0][:, None], last[1], np.arange(columns)[:, None], np.arange(rows)]
    if not mirrored:
        return quarter
    times = [np.where(np.arange(size) == 0, 1, 2) for size in (columns, rows)]
    return quarter * np.outer(*times).astype(tables.dtype)


def at_end(size: int) -> NDArray[np.int64]:
    """Return 1 for the first and the last of some places, and 0 for the others."""
    return np.isin(np.arange(size), [0, size - 1]).astype(np.int64)


def noise_from(tables: NDArray[Number], values: NDArray[np.int64]) -> NDArray[Number]:
    """Return the noise for some values and all reports, both numbered row by row: shape (values, columns * rows)."""
    columns, rows = tables.shape[2:]
    row, column = np.divmod(values, columns)
    across, along = (at_end(size) for size in (columns, rows))
    apart = [np.abs(own[:, None] - np.arange(size)) for own, size in ((column, columns), (row, rows))]
    table = tables[across[None, None, :], along[None, :, None], apart[0][:, None, :], apart[1][:, :, None]]
    return table.reshape(len(values), columns * rows)


def cells_reached(columns: int, rows: int, reached: int) -> NDArray[np.uint64]:
    """Return how many cells of the plane go to each cell of the rectangle, shape (rows, columns)."""
    return np.outer(1 + reached * at_end(rows), 1 + reached * at_end(columns)).astype(np.uint64)


MOST_SQUARES = 1 << 24  # weights of the noise
MOST_PAIRS = 1 << 24  # cells x cells up to which tables of all pairs are made
_ROOM = 1.0 - 2.0**-36  # for the rounding of a sum of doubles


class PlanarNoise(TableChannel):
    """Report the cell of a rectangle nearest to the value plus noise; cells are numbered row by row.

    Args:
        falling: the weight of the noise at each point by its squared distance in steps of the grid, never rising.
        columns: columns of the rectangle, at least 2.
        rows: its rows, at least 2.
        points: steps along the side of a cell, an odd number.
        floor: the part of the weight of each report that does not depend on the value, shape (rows, columns).

    Raises:
        InvalidParameter: if the noise rises with the distance, or the weights do not have these shapes or do not sum to 2**64.

    """

    def __init__(self, falling: Weights, columns: int, rows: int, points: int, floor: Weights) -> None:
        plain = all(type(part) is np.ndarray and part.dtype == np.uint64 for part in (falling, floor))
        whole = type(columns) is type(rows) is type(points) is int and min(columns, rows) >= 2 and points > 0 and points % 2
        shaped = whole and floor.shape == (rows, columns) and falling.ndim == 1 and 0 < len(falling) <= MOST_SQUARES
        if not plain or not shaped:
            raise InvalidParameter("noise on the plane must be weights by squared distance, and a floor for every cell")
        self._falling, self._floor = falling.copy(), floor.copy()
        self._falling.flags.writeable = self._floor.flags.writeable = False
        self._columns, self._rows, self._points = columns, rows, points
        self._tables = noise_tables(self._falling, columns, rows, points)
        if (self._falling[1:] > self._falling[:-1]).any():
            raise InvalidParameter("noise on the plane must not rise with the distance")
        if sum(self.entries.tolist()) != TOTAL:
            raise InvalidParameter("the weights of the noise and of the floor must sum to 2**64")

    @property
    def falling(self) -> Weights:
        """The weight of the noise at each point, by its squared distance in steps of the grid."""
        return self._falling

    @property
    def floor(self) -> Weights:
        """The part of the weight of each report that does not depend on the value, shape (rows, columns)."""
        return self._floor

    @property
    def points(self) -> int:
        """Steps along the side of a cell."""
        return self._points

    @property
    def shape(self) -> tuple[int, int]:
        """The rows and the columns."""
        return self._rows, self._columns

    @property
    def inputs(self) -> int:
        return self._columns * self._rows

    @property
    def outputs(self) -> int:
        return self.inputs

    @property
    def noise(self) -> Weights:
        """The noise at each offset of columns and of rows, shape (2, 2, columns, rows): see `noise_tables`."""
        return self._tables

    @cached_property
    def spread(self) -> int:
        """The weight that every point has at least, whatever the value is."""
        alike = self._points**2 * cells_reached(self._columns, self._rows, reach(len(self._falling), self._points))
        return int((self._floor // alike).min())

    def rows(self, values: Codes) -> Weights:
        """Return the rows of weights of these values."""
        if len(values) * self.outputs > MOST_PAIRS:
            raise NotApplicable(
                f"a table of {len(values):,} x {self.outputs:,} probabilities is too large",
                "use ibu or best with stop := 'held_out', or larger cells",
            )
        return np.asarray(noise_from(self._tables, values.astype(np.int64)) + self._floor.ravel(), dtype=np.uint64)

    def widest(self) -> Witness | None:
        """Refuse: noise on the plane keeps an epsilon for each unit of distance."""
        raise NotPrivate(
            "noise on the plane keeps an epsilon per unit of distance", "claim MetricLdp with the grid of its cells"
        )

    def steepest(self) -> Witness | None:
        """Return where the ratio of two cells that are next to each other in a row or a column is about the largest."""
        candidates = [one for turned in (False, True) for one in self._steps(turned)]
        return max(candidates, key=lambda one: log_ratio(one.ratio), default=None)

    def _steps(self, turned: bool) -> list[Witness]:  # private
        """Return for each kind of report the pair of neighbours whose ratio is largest."""
        out = []
        tables = self._tables.transpose(1, 0, 3, 2) if turned else self._tables
        size, other = tables.shape[2:]
        for end in (0, 1):
            for side in (0, 1):
                # An inner report is at least one cell from either end.
                table = tables[end, side, : size if end else size - 1, : other if side else other - 1].astype(np.float64)
                table += float(self._floor[(self._rows - 1) * side, (self._columns - 1) * end])
                ratio = table[:-1] / table[1:]
                if ratio.size and (end or size > 2) and (side or other > 2):
                    k, across = (int(i) for i in np.unravel_index(ratio.argmax(), ratio.shape))
                    at, row = (size - 1 if end else k + 1), (other - 1 if side else max(1, across))
                    cells = [(row, at), (row - across, at - k), (row - across, at - k - 1)]
                    report, near, far = (c * self._columns + r if turned else r * self._columns + c for r, c in cells)
                    out.append(self._witness(near, far, report))
        return out

    def _witness(self, value: int, other: int, report: int) -> Witness:
        high, low = (int(w) for w in self.rows(np.array([value, other], dtype=np.int32))[:, report])
        return Witness(Fraction(high, low), value, other, report)

    @cached_property
    def furthest(self) -> tuple[int, int]:
        """By how many columns and rows at most an entry moves a value."""
        last = reach(len(self._falling), self._points)
        return min(self._columns - 1, last), min(self._rows - 1, last)

    @cached_property
    def entries(self) -> Weights:
        """The weights that are drawn from: of every offset of rows and columns, then of every cell."""
        across, down = self.furthest
        quarter = box(self._tables, mirrored=False)[: across + 1, : down + 1]
        half = np.concatenate([quarter[:0:-1], quarter])
        whole = np.concatenate([half[:, :0:-1], half], axis=1).T
        return np.concatenate([whole.ravel(), self._floor.ravel()])

    @cached_property
    def tables(self) -> AliasTables:
        """The table that an offset or a cell is drawn from."""
        return AliasTables.of(self.entries[None])

    def draws_its_weights(self) -> bool:
        return self.tables.make(self.entries[None])

    def draw(self, values: Codes, words: Words = random_words) -> Codes:
        """Draw an offset or a cell for each value, from one word each, and move the value by the offset."""
        entry = self.tables.draw(np.zeros(len(values), dtype=np.int32), words)
        furthest_across, furthest_down = self.furthest
        width = 2 * furthest_across + 1
        down, row = entry // width, values // self._columns
        across = entry - down * width
        across += values - row * self._columns
        across -= furthest_across
        down += row
        down -= furthest_down
        np.clip(across, 0, self._columns - 1, out=across)
        np.clip(down, 0, self._rows - 1, out=down)
        down *= self._columns
        down += across
        entry -= width * (2 * furthest_down + 1)
        drawn = entry >= 0  # a cell, whatever the value is: hardly ever
        return np.where(drawn, entry, down) if drawn.any() else down


# Noise on the plane in six whole numbers, from which any program derives the same weights.
#
# At squared distance n, in steps of the grid of points, the noise has the weight peak * e^(-step * sqrt(n)). It is computed in
# fixed point: sums, products, quotients and roots of whole numbers, rounded down.

_BITS = 44  # of exponents after the point
_DIGIT, _DIGITS = 10, 5  # exponents are split into five digits of 10 bits, so they are below 64
_MOST = (1 << _DIGIT * _DIGITS) - 1
_LOST = 10  # what rounding takes from a weight, at most: one for each digit and each product


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
    far = ceil(_FAR / decay)
    if (columns + far) * (rows + far) * points**2 > _MOST_POINTS:
        raise InvalidParameter("epsilon is too small for cells of this side", "use larger cells or a larger epsilon")
    single = _quadrant(columns + far, rows + far, decay, points)
    by_column = [single, single[::-1].cumsum(axis=0)[::-1]]
    # By columns and then rows: the noise at an offset, and at it and all beyond.
    noise = [[t[:columns, :rows], t[:, ::-1].cumsum(axis=1)[:, ::-1][:columns, :rows]] for t in by_column]
    return noise_from(np.array(noise), np.arange(columns * rows))


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
