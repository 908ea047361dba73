"""Answers to questions for each group, as columns of SQL: numbers, and values as text that SQL casts to their type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.domains.columns import family
from ldpsql.engine.arguments import Column, Handles
from ldpsql.engine.functions import Scalar, guarded
from ldpsql.engine.groups import counts_of, once_a_run
from ldpsql.estimates.functionals import FIELDS
from ldpsql.estimates.question import Asked, Fields, Kind, Lines, Question, arrow_type
from ldpsql.inference.operators import Ints
from ldpsql.outcomes.moments import rows_of
from ldpsql.quoting import quoted

_ERRORS = FIELDS[1:]
_SQL = {Kind.VALUE: "VARCHAR", Kind.MEAN: "VARCHAR"}  # SQL casts the text
_DAY = 86_400.0


def sql_type(fields: Fields) -> str:
    """Return the type of a struct of fields in SQL, with values as text."""
    kinds = {
        name: _SQL.get(kind, kind.value) if isinstance(kind, Kind) else f"{sql_type(kind)}[]" for name, kind in fields.items()
    }
    return f"STRUCT({', '.join(f'{quoted(name)} {kind}' for name, kind in kinds.items())})"


def answering(question: type[Question], asked: Callable[[int], Asked]) -> Scalar:
    """Return the function that answers a question from counts; ``asked`` returns what a handle stands for."""

    def answer(histograms: Column, handles: Handles) -> pa.Array:
        return answers(histograms, handles, asked, question)

    returns = f"{sql_type(question.fields)}{'[]' * bool(question.rows)}"
    return Scalar(f"__ldp_answer_{question.name}", guarded(once_a_run(answer)), returns)


def answers(
    histograms: pa.ChunkedArray, handles: pa.ChunkedArray, asked: Callable[[int], Asked], question: type[Question]
) -> pa.Array:
    """Return the answer to a question for each group, a struct or a list of structs; NULL for an empty group.

    Args:
        histograms: maps from reports to numbers, or lists of reports if the question reads these; see also `rows_of`.
        handles: what each row asks.
        asked: what a handle stands for.
        question: the question that all rows ask.

    """
    parts: list[tuple[Ints, Ints, pa.StructArray]] = []
    counted: Iterator[tuple[int, Any]] = counts_of(histograms, handles, lists=question.lists)
    for handle, counts in rows_of(histograms, handles) if question.raw else counted:
        one = asked(handle)
        for groups, lines in question.estimated(one, counts):
            parts.append((groups, lines.sizes, as_structs(question.fields, lines, one.unit)))
    sizes = np.zeros(len(histograms), dtype=np.int32)
    for groups, own, _ in parts:
        sizes[groups] = own
    ends = np.concatenate([[0], sizes.cumsum()]).astype(np.int32)
    structs = _in_order([part for *_, part in parts], [_places(ends[groups], own) for groups, own, _ in parts], question)
    answered = np.zeros(len(sizes), dtype=np.bool_)
    for groups, *_ in parts:
        answered[groups] = True
    if question.rows:
        return pa.ListArray.from_arrays(pa.array(ends), structs, mask=pa.array(~answered))
    return structs.take(pa.array(np.where(answered, ends[:-1], -1), mask=~answered))


def _places(first: NDArray[np.int32], sizes: Ints) -> Ints:
    """Return the place of each line, if the lines of a group begin at its first place."""
    before = np.cumsum(sizes) - sizes
    return np.arange(sizes.sum()) + np.repeat(first - before, sizes)


def _in_order(parts: list[pa.StructArray], places: list[Ints], question: type[Question]) -> pa.StructArray:
    if not parts:
        return pa.array([], pa.struct([(name, arrow_type(kind)) for name, kind in question.fields.items()]))
    lines = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
    order = np.argsort(np.concatenate(places), kind="stable")
    return lines if (order[1:] > order[:-1]).all() else lines.take(pa.array(order))


def as_structs(fields: Fields, lines: Lines, unit: Any = None) -> pa.StructArray:
    """Return one struct for each line.

    What the reports say nothing about is NULL, and so are its errors.

    Args:
        fields: the fields of the structs.
        lines: the lines.
        unit: the values, if any field has one.

    """
    errors = lines.columns.get("std_error")
    unknown = ~np.isfinite(errors) if isinstance(errors, np.ndarray) else np.zeros(1, dtype=np.bool_)
    reach = {"low": -lines.reach, "high": lines.reach}
    columns = []
    for name, kind in fields.items():
        column = lines.columns[name]
        if isinstance(column, np.ndarray):
            missing = ~np.isfinite(column) | unknown & (name in _ERRORS)
            column = _column(column, missing, kind, unit, reach.get(name, 0.0))
        columns.append(column)
    return pa.StructArray.from_arrays(columns, list(fields))


def _column(
    column: np.ndarray[Any, Any], missing: np.ndarray[Any, Any], kind: Kind | Fields, unit: Any, reach: float
) -> pa.Array:
    """Return numbers as a column of SQL.

    Args:
        column: the numbers, or positions in the values.
        missing: which of them are NULL.
        kind: what they are.
        unit: the values.
        reach: how much further than at the position the end of an interval is.

    """
    if kind in (Kind.NUMBER, Kind.WHOLE, Kind.FLAG):
        return pa.array(column, mask=missing).cast(arrow_type(kind))
    if kind is Kind.VALUE:
        places = pa.array(np.where(missing, 0, column).astype(np.int32), mask=missing)
        if not reach:
            return pa.DictionaryArray.from_arrays(places, unit.listed.written)
        # 15 digits: 7.7, not 7.699999999999999
        texts = unit.listed.written.take(places).to_pylist()
        return pa.array([text and f"{float(text) + reach:.15g}" for text in texts], pa.string())
    of = family(unit.values.type)
    if of not in ("date", "timestamp", "timestamp with time zone"):
        return pa.array(column, mask=missing).cast(pa.string())
    seconds = np.where(missing, 0.0, column) * (_DAY if of == "date" else 1.0)
    microseconds = pa.array(np.rint(seconds * 1e6).astype(np.int64), mask=missing)
    return microseconds.cast(pa.timestamp("us", tz="UTC" if of == "timestamp with time zone" else None)).cast(pa.string())
