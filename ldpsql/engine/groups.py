"""SQL columns of counts (maps from report to number) to estimates, on one thread each, and estimates and answers to columns."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ContextDecorator, ExitStack
from dataclasses import replace
from functools import lru_cache, wraps
from threading import Lock
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from threadpoolctl import OpenBLASController, ThreadpoolController

from ldpsql.domains.columns import family, plain
from ldpsql.engine.arguments import Column, Handles
from ldpsql.engine.functions import Scalar, guarded
from ldpsql.errors import BadCounts
from ldpsql.estimates.estimate import check_possible, refuse_pairs
from ldpsql.estimates.functionals import FIELDS
from ldpsql.estimates.question import Asked, Fields, Kind, Lines, Question, arrow_type
from ldpsql.estimators.base import Estimator
from ldpsql.inference.counting import ReportSource, likelihoods
from ldpsql.inference.counts import GroupedCounts, numbers_of
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.limits import soonest, until
from ldpsql.inference.operators import Ints
from ldpsql.mechanisms.base import Mechanism
from ldpsql.outcomes.moments import rows_of
from ldpsql.quoting import quoted

# Limits linear algebra to one thread during an estimate.
#
# DuckDB calls us from threads of its own. If these and the threads of BLAS are more than the processors, small products wait
# for each other: on two busy processors an estimate of 384 values took thirty times as long.

T = TypeVar("T")
R = TypeVar("R")
_AT_ONCE = 4


def at_once(function: Callable[[T], R], parts: Sequence[T]) -> list[R]:
    """Return what a function returns for each part; several threads share the parts, for NumPy and Arrow let others run."""
    if len(parts) < 2:
        return [function(part) for part in parts]
    with ThreadPoolExecutor(min(_AT_ONCE, os.cpu_count() or 1, len(parts))) as pool:
        return list(pool.map(function, parts))


@lru_cache(maxsize=2)
def _libraries(scipy: bool) -> ThreadpoolController:  # noqa: ARG001  # SciPy brings a BLAS of its own, when it is first needed
    return ThreadpoolController()


class _OneThread(ContextDecorator):
    """Limits the BLAS of the process while any thread is inside, and restores it when the last one leaves.

    OpenBLAS lets only the thread that first set a limit change it; here any thread may be the first or the last.
    """

    def __init__(self) -> None:
        self._lock, self._inside, self._limit = Lock(), 0, ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                OpenBLASController.clear_controlling_thread(force=True)
                self._limit.enter_context(_libraries("scipy.linalg" in sys.modules).limit(limits=1, user_api="blas"))
            self._inside += 1

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                OpenBLASController.clear_controlling_thread(force=True)
                self._limit.close()
                OpenBLASController.clear_controlling_thread(force=True)


one_thread = _OneThread()


InOrder: TypeAlias = tuple[NDArray[np.int64], list[Estimator]]  # which estimator each group has, and these
GROUPS_SEEN, GROUPS_AT_ONCE = 20_000, 2048  # what groups have in common is learned from so many at most, some at a time


def check_counts(kind: pa.DataType) -> None:
    """Raise `BadCounts` unless a column of this type holds counts, or nothing but NULL."""
    if not (pa.types.is_map(kind) or pa.types.is_null(kind)):
        raise BadCounts("counts must be a MAP from reports to numbers", "use ldp.counts(report) or map(reports, numbers)")


def learnt_from(
    source: Mechanism | ReportSource, maps: pa.MapArray, estimator: Estimator, pooled: pa.Scalar | None = None
) -> Estimator | None:
    """Return the estimator after it has seen all groups; None if there is no group.

    Args:
        source: what drew the reports.
        maps: the counts of the groups, of which NULL and empty ones are left out; of very many groups, some are seen.
        estimator: an estimator that needs groups.
        pooled: the counts of all groups, if ``maps`` holds only some of them.

    Raises:
        BadCounts: if these are not counts.

    """
    rows = np.flatnonzero(_filled(maps))
    if pooled is not None:
        check_counts(pooled.type)
    if not len(rows):
        return None
    one = np.zeros(1, dtype=np.int64)
    total = GroupedCounts.of_maps(maps, rows) if pooled is None else GroupedCounts.of_maps(pa.array([pooled], pooled.type), one)
    return learnt_of(source, total, _some_groups(maps, rows), estimator)


def learnt_from_order(source: Mechanism | ReportSource, maps: pa.MapArray, estimator: Estimator) -> InOrder:
    """Return which estimator each group has after all have been seen, and these; ``maps`` holds the groups in order."""
    rows, runs = np.flatnonzero(_filled(maps)), np.zeros(len(maps), dtype=np.int64)
    if len(rows) > GROUPS_SEEN or not len(rows):
        learned = learnt_from(source, maps, estimator)
        return runs, [learned] if learned else []
    runs[rows], estimators = learnt_of_order(source, GroupedCounts.of_maps(maps, rows), estimator)
    return runs, estimators


def learnt_of(
    source: Mechanism | ReportSource, total: GroupedCounts, groups: Iterator[GroupedCounts], estimator: Estimator
) -> Estimator:
    """Return the estimator after it has seen ``groups``; ``total`` are all reports, whose groups do not matter."""
    with until(soonest(estimator.deadline)):
        return estimator.learnt(_together(source, total), _parts(source, groups))


def learnt_of_order(source: Mechanism | ReportSource, counts: GroupedCounts, estimator: Estimator) -> InOrder:
    """Return which estimator each group, which are in order, has after all have been seen, and these estimators."""
    with until(soonest(estimator.deadline)):
        return estimator.learnt_in_order(_together(source, counts), list(_parts(source, iter([counts]))))


def with_prior(estimator: Estimator, prior: object) -> Estimator:
    """Return an estimator that learns from groups, with what it has learned."""
    return type(estimator)(**{**dict(estimator), "prior": prior})


def in_order(key: pa.DataType) -> bool:
    """Return whether groups have an order of their own: their key, or the last one of several, is a time or a number."""
    if pa.types.is_struct(key):
        return key.num_fields > 0 and in_order(key.field(key.num_fields - 1).type)
    kinds = (pa.types.is_temporal, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(is_kind(key) for is_kind in kinds)


def _together(source: Mechanism | ReportSource, total: GroupedCounts) -> Likelihood:
    refuse_pairs(source)
    everyone = replace(total, group=np.zeros_like(total.group), groups=np.zeros(1, dtype=np.int64))
    _, together = next(likelihoods(source, everyone))
    check_possible(together)
    return together


def _parts(source: Mechanism | ReportSource, groups: Iterator[GroupedCounts]) -> Iterator[Likelihood]:
    return (each for some in groups for _, each in likelihoods(source, some))


def _some_groups(maps: pa.MapArray, rows: NDArray[np.int64]) -> Iterator[GroupedCounts]:
    """Yield the counts of `GROUPS_SEEN` groups, evenly from the smallest to the largest, or of all."""
    if len(rows) > GROUPS_SEEN:
        ends = maps.offsets.to_numpy()
        sizes = np.add.reduceat(numbers_of(maps.items)[0], ends[rows].astype(np.int64))
        order = np.argsort(sizes, kind="stable")
        rows = rows[order[np.linspace(0, len(rows) - 1, GROUPS_SEEN).astype(np.int64)]]
    for start in range(0, len(rows), GROUPS_AT_ONCE):
        yield GroupedCounts.of_maps(maps, rows[start : start + GROUPS_AT_ONCE])


def _filled(maps: pa.Array) -> NDArray[np.bool_]:
    """Return which maps hold anything.

    Raises:
        BadCounts: if they are not maps.

    """
    check_counts(maps.type)
    if pa.types.is_null(maps.type):
        return np.zeros(len(maps), dtype=np.bool_)
    return _held(maps)


def _held(lists: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(lists.is_valid().to_numpy(zero_copy_only=False) & (np.diff(lists.offsets.to_numpy()) > 0))


def counts_of(
    histograms: pa.ChunkedArray, handles: pa.ChunkedArray, *, lists: bool = False
) -> Iterator[tuple[int, GroupedCounts]]:
    """Yield each handle with the counts of its rows; each row is a group. NULL and empty maps are left out.

    Args:
        histograms: maps from reports to numbers.
        handles: what the caller knows about each row.
        lists: whether there may be lists of reports instead: if nearly all reports differ, they are made much faster.

    Raises:
        BadCounts: if the column does not hold maps, or their numbers are not counts.

    """
    maps, by_row = plain(histograms), plain(handles).to_numpy(zero_copy_only=False)
    listed = lists and pa.types.is_list(maps.type)
    filled = _held(maps) if listed else _filled(maps)
    for handle in np.unique(by_row[filled]):
        rows = np.flatnonzero(filled & (by_row == handle))
        counts = GroupedCounts.of_lists(maps, rows) if listed else GroupedCounts.of_maps(maps, rows)
        if len(counts.groups):
            yield int(handle), counts


def once_a_run(function: Callable[..., pa.Array]) -> Callable[..., pa.Array]:
    """Return a function of (maps, handles, what is the same in all rows) that computes a run of equal rows once.

    A window function repeats the map of a partition in each of its rows.
    """

    @wraps(function)
    @one_thread
    def seen_once(histograms: pa.ChunkedArray, handles: pa.ChunkedArray, *same: pa.ChunkedArray) -> pa.Array:
        maps, by_row = plain(histograms), plain(handles)
        new = _begins_a_run(maps, by_row.to_numpy(zero_copy_only=False))
        if new.all():
            return function(maps, by_row, *same)
        first = pa.array(np.flatnonzero(new))
        further = (plain(column).take(first) for column in same)
        return function(maps.take(first), by_row.take(first), *further).take(pa.array(np.cumsum(new) - 1))

    return seen_once


def _begins_a_run(maps: pa.Array, handles: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which rows differ from the row before; all do if keys cannot be compared."""
    new = np.ones(len(maps), dtype=np.bool_)
    if (
        len(maps) < 2
        or not pa.types.is_map(maps.type)
        or any(map(pa.types.is_nested, (maps.type.key_type, maps.type.item_type)))
    ):
        return new
    valid, sizes = maps.is_valid().to_numpy(zero_copy_only=False), np.diff(maps.offsets.to_numpy()).astype(np.int64)
    alike = valid[1:] & valid[:-1] & (sizes[1:] == sizes[:-1]) & (sizes[1:] > 0) & (handles[1:] == handles[:-1])
    rows = np.flatnonzero(alike) + 1
    if not len(rows):
        return new
    here, before, each = maps.take(pa.array(rows)), maps.take(pa.array(rows - 1)), sizes[rows]
    agree = pc.and_(pc.equal(here.keys, before.keys), pc.equal(here.items, before.items)).fill_null(False)
    new[rows] = ~np.logical_and.reduceat(agree.to_numpy(zero_copy_only=False), np.cumsum(each) - each)
    return new


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
