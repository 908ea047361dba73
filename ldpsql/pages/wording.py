"""Numbers as people read them: shares in percent, errors in points, values of domains shortened for axes."""

from __future__ import annotations

from math import floor, isfinite, log10

ALL = 0.5  # the standard error of a share from which on its interval holds nearly all shares
WIDTH = 3.92  # of a 95 % interval, in standard errors
LONGEST = 14  # characters of a name on an axis


def percent(share: float, step: float = 0.001) -> str:
    """Return a share in percent with the decimals that steps of this size need.

    >>> [text.split() for text in (percent(0.1234), percent(0.5, 0.1), percent(2e-5, 1e-5))]
    [['12.3', '%'], ['50', '%'], ['0.002', '%']]
    """
    return f"{_without_minus_zero(100 * share, decimals(100 * step))}\u00a0%"


def points(error: float) -> str:
    """Return a standard error of a share in percentage points, 'unknown' if the reports do not determine the share.

    Without a ± before it, which beside an interval would be read as its half width, about twice as much.
    """
    if not determined(error):
        return "unknown"
    return f"{_without_minus_zero(100 * error, decimals(100 * error / 5 if error else 1.0))}\u00a0points"


def width(error: float) -> str:
    """Return how wide the 95 % interval of a share with this standard error is, in percentage points.

    >>> width(0.01).split()
    ['3.9', 'points']
    """
    return (
        f"{_without_minus_zero(100 * WIDTH * error, decimals(10 * WIDTH * error))}\u00a0points"
        if determined(error)
        else "unknown"
    )


def determined(error: float) -> bool:
    """Return whether the interval of a share with this standard error excludes some shares."""
    return error < ALL


def interval(low: float, high: float, step: float = 0.001) -> str:
    """Return an interval of shares."""
    return f"{_without_minus_zero(100 * low, decimals(100 * step))} to {percent(high, step)}"


def decimals(step: float) -> int:
    """Return how many decimals are needed to distinguish numbers that differ by a step."""
    return max(0, min(9, -floor(log10(step) + 1e-9))) if step > 0 and isfinite(step) else 0


def number(value: float, step: float = 0.0) -> str:
    """Return a number with thousands separated, with the decimals that steps of this size need, or else four digits.

    >>> number(1234567.0), number(3.14159), number(12.5, 0.1)
    ('1,234,567', '3.142', '12.5')
    """
    if not isfinite(value):
        return "unknown"
    places = decimals(step) if step else decimals(abs(value) / 1000)
    text = _without_minus_zero(value, min(places, 9))
    return text.rstrip("0").rstrip(".") if "." in text and not step else text


def _without_minus_zero(value: float, places: int) -> str:
    return f"{round(value, places) + 0.0:,.{places}f}"


def short(name: str) -> str:
    """Return a name for an axis, its end left out if it is long."""
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def counted(count: int, noun: str) -> str:
    """Return a number of things.

    >>> counted(1, "group"), counted(2_000, "group")
    ('1 group', '2,000 groups')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
