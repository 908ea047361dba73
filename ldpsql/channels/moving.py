"""Tables of weights that a few whole numbers determine: a window that moves evenly, and two reports whose weights move evenly.

Sums, differences and quotients of whole numbers only, so that another program derives the same table: `ldpsql.clients.module`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ldpsql.channels.base import TOTAL, Weights


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
