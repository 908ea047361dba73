"""Noise added to a position in a row of values: one table of noise serves every value."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property

import numpy as np

from ldpsql.channels.base import TOTAL, Codes, TableChannel, Weights, Witness, largest_ratio
from ldpsql.channels.dense import AliasTables
from ldpsql.channels.randomness import Words, random_words
from ldpsql.errors import InvalidParameter


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
