"""Exponentials and logarithms of fractions, rounded in a stated direction."""

from __future__ import annotations

from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache

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
