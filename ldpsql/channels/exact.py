"""Exponentials and logarithms of fractions, rounded in a stated direction."""

from __future__ import annotations

from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_DIGITS = 60
_LARGEST = Fraction(1000)
_DOWN = Context(prec=_DIGITS, rounding=ROUND_FLOOR)
_NEAREST = Context(prec=_DIGITS)


@lru_cache(maxsize=4096)
def exp_below(x: Fraction) -> Fraction:
    """Return a rational lower bound of e^x, correct to about 58 digits.

    For x above 1000 it returns that of e^1000, which is more than any ratio of weights.
    """
    x = min(x, _LARGEST)
    # Decimal.exp rounds correctly, so one step down from it is a lower bound.
    return Fraction(_NEAREST.next_minus(_NEAREST.exp(_DOWN.divide(Decimal(x.numerator), Decimal(x.denominator)))))


def log_ratio(ratio: Fraction) -> float:
    """Return ln(ratio) to double precision, even if the ratio is within 1e-30 of one."""
    nearest = _NEAREST.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    return float(_NEAREST.ln(nearest))


# The largest ratios between the rows of a channel.

_CELLS = 1 << 15  # cells at a time, so that what is subtracted stays in the cache


def highest_log_ratios(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest of logs[x, y] - logs[x', y] over the reports y, for all pairs of rows: shape (rows, rows)."""
    logs = np.ascontiguousarray(logs)  # an array of selected columns is not
    size, step = len(logs), max(1, _CELLS // logs.shape[1])
    out = np.empty((size, size))
    room = np.empty((step, logs.shape[1]))
    for start in range(0, size, step):
        others = logs[start : start + step]
        stop = start + len(others)
        for x in range(stop):  # each difference serves both directions
            apart = np.subtract(logs[x], others, out=room[: len(others)])
            apart.max(axis=1, out=out[x, start:stop])
            out[start:stop, x] = -apart.min(axis=1)
    return out
