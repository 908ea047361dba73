"""Answers to questions for each group, as columns of SQL: numbers, or text that SQL casts to the type of the values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.domains.columns import family
from ldpsql.domains.domain import Domain
from ldpsql.engine.groups import counts_of, estimated
from ldpsql.estimates.measures import FIELDS, Functional
from ldpsql.estimates.question import Question, Shown
from ldpsql.estimators.base import Estimator
from ldpsql.inference.counting import ReportSource
from ldpsql.inference.operators import Floats
from ldpsql.mechanisms.base import Mechanism

SHOWN = ("estimate", "low", "high")  # the fields in the unit of the values
_ERRORS = FIELDS[1:]
_DAY = 86_400.0


class Asked(NamedTuple):
    """What a question is asked of: the source of the reports, the estimator, the number, and the values that have its unit."""

    source: Mechanism | ReportSource
    estimator: Estimator
    functional: Functional
    unit: Domain


class _Part(NamedTuple):
    """The numbers of some rows, shape (rows, numbers, fields), in the unit of some values."""

    rows: NDArray[np.int64]
    numbers: Floats
    unit: Domain
    rounding: float


def answers(
    histograms: pa.ChunkedArray, handles: pa.ChunkedArray, asked: Callable[[int], Asked], question: type[Question]
) -> pa.Array:
    """Return the answer to a question for each group, a struct or a list of structs; NULL for an empty group.

    Args:
        histograms: maps from reports to numbers.
        handles: what each row asks.
        asked: what a handle stands for.
        question: the question that all rows ask.

    """
    parts = list(_parts(histograms, handles, asked, question))
    sizes, rows = np.zeros(len(histograms), dtype=np.int32), [part.rows for part in parts]
    for part in parts:
        sizes[part.rows] = part.numbers.shape[1]
    lines = [_lines(part, question) for part in parts]
    ends = np.concatenate([[0], sizes.cumsum()]).astype(np.int32)
    at = [(ends[own][:, None] + np.arange(part.numbers.shape[1])).ravel() for own, part in zip(rows, parts, strict=True)]
    order = np.argsort(np.concatenate([*at, np.empty(0, np.int64)]), kind="stable")
    structs = pa.concat_arrays([*lines, _lines(_nothing(question), question)]).take(pa.array(order))
    if question.rows:
        return pa.ListArray.from_arrays(pa.array(ends), structs, mask=pa.array(sizes == 0))
    return structs.take(pa.array(np.where(sizes > 0, ends[:-1], -1), mask=sizes == 0))


def _nothing(question: type[Question]) -> _Part:
    rows = np.empty(0, np.int64)
    return _Part(rows, np.empty((0, 1, len(question.fields))), Domain(pa.array([0.0, 1.0])), 0.0)


def _parts(
    histograms: pa.ChunkedArray, handles: pa.ChunkedArray, asked: Callable[[int], Asked], question: type[Question]
) -> Iterator[_Part]:
    for handle, counts in counts_of(histograms, handles):
        source, estimator, functional, unit = asked(handle)
        for rows, estimates in estimated(source, counts, estimator):
            numbers, rounding = question.measured(functional, estimates)
            yield _Part(rows, numbers, unit, rounding)


def _lines(part: _Part, question: type[Question]) -> pa.StructArray:
    """Return one struct for each number."""
    table, fields = part.numbers.reshape(-1, len(question.fields)), question.fields
    structs = number_structs(table, fields)
    if question.shown is Shown.NUMBER:
        return structs
    reach = {"low": -part.rounding, "high": part.rounding}
    columns = {field: structs.field(field) for field in fields}
    for field in SHOWN:
        columns[field] = _written(columns[field], question.shown, part.unit, reach.get(field, 0.0))
    return pa.StructArray.from_arrays(list(columns.values()), fields)


def _written(column: pa.Array, shown: Shown, unit: Domain, reach: float) -> pa.Array:
    """Return numbers, or positions in a domain, as text in the unit of the domain.

    Args:
        column: the numbers; NULL stays NULL.
        shown: what they are.
        unit: the values.
        reach: how much further than at the position the end of an interval is.

    """
    if shown is Shown.VALUE:
        texts = unit.listed.written.take(column.cast(pa.int64()))
        if not reach:
            return texts
        # 15 digits: 7.7, not 7.699999999999999
        return pa.array([text and f"{float(text) + reach:.15g}" for text in texts.to_pylist()], pa.string())
    kind = family(unit.values.type)
    if kind not in ("date", "timestamp", "timestamp with time zone"):
        return column.cast(pa.string())
    seconds = column.to_numpy(zero_copy_only=False) * (_DAY if kind == "date" else 1.0)
    microseconds = pa.array(np.rint(np.nan_to_num(seconds) * 1e6).astype(np.int64), mask=np.isnan(seconds))
    return microseconds.cast(pa.timestamp("us", tz="UTC" if kind == "timestamp with time zone" else None)).cast(pa.string())


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
