"""Numbers that are estimated for each group, as SQL columns of structs or of lists of structs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.engine.groups import counts_of, estimated
from ldpsql.estimates.functionals import Functional
from ldpsql.estimates.measures import FIELDS
from ldpsql.estimators.base import Estimator
from ldpsql.inference.counting import ReportSource
from ldpsql.inference.operators import Floats
from ldpsql.mechanisms.base import Mechanism

Question: TypeAlias = Callable[[int], tuple[tuple[Mechanism | ReportSource, Estimator], Functional]]  # of a handle
_ERRORS = FIELDS[1:]


def measured(histograms: pa.ChunkedArray, handles: pa.ChunkedArray, question: Question, fields: tuple[str, ...]) -> pa.Array:
    """Return a struct of numbers for each group; NULL if the group is empty.

    Args:
        histograms: maps from reports to numbers.
        handles: the question of each row.
        question: what a handle stands for.
        fields: names of attributes of the measure.

    """
    out, empty = np.zeros((len(histograms), len(fields))), np.ones(len(histograms), dtype=np.bool_)
    for rows, numbers in _answers(histograms, handles, question, fields):
        out[rows], empty[rows] = numbers, False
    return number_structs(out, fields, empty)


def all_measured(
    histograms: pa.ChunkedArray, handles: pa.ChunkedArray, question: Question, fields: tuple[str, ...]
) -> pa.Array:
    """Return a list of structs for each group, one for each of several numbers; see `measured`."""
    rows_of: list[Floats | None] = [None] * len(histograms)
    for rows, numbers in _answers(histograms, handles, question, fields):
        for row, table in zip(rows, numbers, strict=True):
            rows_of[row] = table
    some = np.concatenate([one for one in rows_of if one is not None] or [np.empty((0, len(fields)))])
    ends = np.cumsum([0, *(0 if one is None else len(one) for one in rows_of)]).astype(np.int32)
    empty = pa.array([one is None for one in rows_of], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(ends), number_structs(some, fields), mask=empty)


def _answers(
    histograms: pa.ChunkedArray, handles: pa.ChunkedArray, question: Question, fields: tuple[str, ...]
) -> Iterator[tuple[NDArray[np.int64], Floats]]:
    """Yield rows and their numbers, whose last axis are the fields."""
    for handle, counts in counts_of(histograms, handles):
        (source, estimator), functional = question(handle)
        for rows, estimates in estimated(source, counts, estimator):
            measure = functional.measure(estimates)
            yield rows, np.stack([getattr(measure, field) for field in fields], axis=-1)


def number_structs(table: Floats, fields: tuple[str, ...], empty: NDArray[np.bool_] | None = None) -> pa.StructArray:
    """Return numbers, shape (rows, fields), as structs: what the reports say nothing about is NULL, and so are its errors.

    Args:
        table: the numbers.
        fields: their names, one of which is ``std_error``.
        empty: the rows without reports, which are NULL.

    """
    unknown = ~np.isfinite(table[:, fields.index("std_error")])
    columns = [
        pa.array(column, mask=~np.isfinite(column) | unknown & (name in _ERRORS))
        for name, column in zip(fields, table.T.copy(), strict=True)
    ]
    return pa.StructArray.from_arrays(columns, fields, mask=None if empty is None else pa.array(empty))
