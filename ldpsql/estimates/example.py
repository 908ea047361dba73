"""Public or synthetic data that look like those to be collected, and the errors of simulated reports of such people.

An example is read without any privacy, so it must not be the data that people are asked for.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ldpsql.domains.columns import family, plain
from ldpsql.errors import InvalidParameter
from ldpsql.estimates.scale import positions_of
from ldpsql.inference.operators import Floats

MOST_STEPS = 1024  # errors hardly depend on more
_HINT = "pass numbers, dates or timestamps with at least two different values"
_QUARTERS = np.array([0.25, 0.5, 0.75]) - 1e-9  # sums of shares are rounded


class Example(NamedTuple):
    """Shares of the steps from the smallest value of an example to its largest, and the length of a step.

    The step is in the unit of the values, that of dates in days, that of timestamps in seconds.
    """

    shares: Floats
    step: float


def example_of(column: pa.Array | pa.ChunkedArray, steps: int | None = None) -> Example:
    """Return the shares of the values of an example; NULL is left out.

    Args:
        column: numbers, dates or timestamps.
        steps: into how many steps they are put; by default whole numbers and dates have a step each, and others, or if there
            are more, 1,024 steps.

    Raises:
        InvalidParameter: if the column does not hold such values, or has fewer than two different ones.

    """
    x, whole = _numbers(column)
    low, high = (float(x.min()), float(x.max())) if len(x) else (0.0, 0.0)
    if not 0 < high - low < inf:
        raise InvalidParameter("the example has no two different finite values", _HINT)
    if steps is None:
        steps = int(min(high - low + 1, MOST_STEPS)) if whole else MOST_STEPS
    if not 2 <= steps <= MOST_STEPS:
        raise InvalidParameter(f"an example is put into 2 to {MOST_STEPS:,} steps", "leave out the number of values")
    at = np.rint((x - low) / (high - low) * (steps - 1)).astype(np.int64)
    return Example(np.bincount(at, minlength=steps) / len(at), (high - low) / (steps - 1))


def _numbers(column: pa.Array | pa.ChunkedArray) -> tuple[Floats, bool]:
    """Return the values as numbers, and whether all are whole numbers or dates."""
    values = plain(column).drop_null()
    if family(values.type) in (None, "text", "boolean"):
        raise InvalidParameter("the example is not a column of numbers, dates or timestamps", _HINT)
    x = positions_of(values)
    return x, family(values.type) in ("number", "date") and bool((x == np.rint(x)).all())


def rebinned(shares: Floats, bins: int) -> Floats:
    """Return distributions over equal bins, shape (distributions, bins), over another number of such bins."""
    edges, running = np.linspace(0.0, 1.0, shares.shape[1] + 1), np.pad(shares.cumsum(axis=1), ((0, 0), (1, 0)))
    at = np.linspace(0.0, 1.0, bins + 1)
    return np.diff([np.interp(at, edges, row) for row in running], axis=1)


def quartile_errors(estimated: Floats, shares: Floats) -> Floats:
    """Return the squared errors of the quartiles of estimates, shape (estimates, steps), in steps."""
    found, truth = (np.array([np.searchsorted(row.cumsum(), _QUARTERS) for row in rows]) for rows in (estimated, shares[None]))
    return np.asarray((found - truth) ** 2.0)
