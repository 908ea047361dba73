"""Estimates by group in Spark: the cluster counts, executors estimate, and the driver learns what groups have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ldpsql.bulk.fingerprints import agreed
from ldpsql.bulk.many_groups import (
    CELL,
    CELLS_AT_ONCE,
    PLACE,
    Learned,
    check_keys,
    groups_at_once,
    keys_named,
    numbers_of,
    result_columns,
    rows_of,
    schema_of,
)
from ldpsql.domains.columns import plain
from ldpsql.engine.groups import GROUPS_AT_ONCE, GROUPS_SEEN, estimated, in_order, learnt_of, learnt_of_order, refuse_pairs
from ldpsql.engine.threads import one_thread
from ldpsql.errors.boundary import withheld_stream
from ldpsql.estimators.base import Estimator
from ldpsql.inference.counts import GroupedCounts, whole_numbers
from ldpsql.mechanisms.base import Mechanism, certify_values
from ldpsql.names import IBU
from ldpsql.registry.agreement import KEY, of_text
from ldpsql.registry.registry import registry
from ldpsql.spark.schemas import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OWN_KEY, _CELLS, _REPORT, _N = "ldp key", "ldp cells", "ldp report", "ldp n"
_ROWS_AT_ONCE = 1 << 15  # that Spark gets from a worker


def estimate_groups(
    frame: DataFrame,
    column: str,
    keys: Sequence[str],
    mechanism: Mechanism | str | None = None,
    estimator: Estimator | str = IBU,
) -> DataFrame:
    """Return the frame of the estimates of every group: the keys, value, estimate, std_error, low, high and n.

    If the estimator learns from all groups, there is also ``borrowed``: which part of the estimate of a group, from 0 to 1, is
    from the reports of other groups. A key that is named like one of these columns becomes ``value_1``.

    Spark counts the reports of each group, and the executors estimate. The driver only learns what groups have in common, if
    the estimator needs that, from the counts of at most about 20,000 groups. The numbers are those of DuckDB. The frame is
    lazy; estimates draw nothing, so Spark may compute it again at will.

    Args:
        frame: the reports.
        column: the column of the reports; NULL reports are left out, and so are groups that have only these.
        keys: the columns that define the groups.
        mechanism: what drew the reports; by default the mechanism that the frame records.
        estimator: any estimator, with its options. A deadline is for the groups of one batch of a task.

    Raises:
        InvalidParameter: unless the keys are names of different columns.
        OtherMechanism: if the frame records that another mechanism drew the reports.
        MechanismUnrecorded: if no mechanism is passed, and none is recorded.

    """
    check_keys(column, keys)
    written = of_text(frame.select(_quoted(column)).schema[0].metadata.get(KEY[:-1]))
    drew, method = agreed(written, mechanism), registry().estimator(estimator)
    refuse_pairs(drew)
    reports = _selected(frame, column, keys)
    learned = _learned(reports, drew, method) if method.needs_groups else ([method], {})
    return _estimated_frame(_groups(reports, _tasks(reports)), keys, drew, *learned)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _selected(frame: DataFrame, column: str, keys: Sequence[str]) -> DataFrame:
    """Return the lazy frame of the keys, by names of our own, as ``mapInArrow`` refuses names with dots, and the reports."""
    from pyspark.sql import functions as sql  # noqa: PLC0415  # an extra

    named = [sql.col(_quoted(key)).alias(f"{_OWN_KEY} {place}") for place, key in enumerate(keys)]
    return frame.select(*named, sql.col(_quoted(column)).alias(_REPORT)).where(sql.col(_REPORT).isNotNull())


def _groups(reports: DataFrame, tasks: int | None = None) -> DataFrame:
    """Return the lazy frame of the groups: the keys, and the list of the reports with their numbers.

    Spark chooses the number of its partitions by bytes, if ``tasks`` is None.
    """
    from pyspark.sql import functions as sql  # noqa: PLC0415

    keys = reports.columns[:-1]
    cells = reports.groupBy(*keys, _REPORT).agg(sql.count("*").alias(_N))
    spread = cells.repartition(tasks, *keys) if tasks else cells
    return spread.groupBy(*keys).agg(sql.collect_list(sql.struct(_REPORT, _N)).alias(_CELLS))


def _tasks(frame: DataFrame) -> int | None:
    """Return how many tasks estimate: two a core. Counts are few bytes, so Spark would estimate many groups in one task."""
    context = getattr(frame.sparkSession, "sparkContext", None)  # Spark Connect has none
    return 2 * context.defaultParallelism if context else None


def _learned(reports: DataFrame, drew: Mechanism, method: Estimator) -> tuple[list[Estimator], dict[str, int]]:
    """Return the estimators with what groups have in common, on the driver, and which of several each group has by its keys.

    Each step reads the reports again, which costs less than to count the cells of all groups.
    """
    from pyspark.sql import functions as sql  # noqa: PLC0415

    keys = reports.columns[:-1]
    count = reports.select(*keys).distinct().count()
    if not count:
        return [method], {}
    if count <= GROUPS_SEEN and in_order(arrow_schema(reports).field(keys[-1]).type):
        ordered = _groups(reports).orderBy(*(sql.col(key).asc_nulls_last() for key in keys))
        return _learned_in_order(ordered.toArrow(), drew, method)
    every = 1 + count // GROUPS_SEEN
    few = reports.where(sql.pmod(sql.xxhash64(*keys), sql.lit(every)) == 0) if every > 1 else reports
    lists = plain(_groups(few).select(_CELLS).toArrow().column(0))
    parts = (_counts(lists.slice(at, GROUPS_AT_ONCE)) for at in range(0, len(lists), GROUPS_AT_ONCE))
    return [learnt_of(drew, _total(reports, lists), parts, method)], {}


def _total(reports: DataFrame, lists: pa.ListArray) -> GroupedCounts:
    """Return the counts of all groups together; if too many reports differ, those of the groups in ``lists``."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    total = reports.groupBy(_REPORT).agg(sql.count("*").alias(_N)).limit(CELLS_AT_ONCE + 1).toArrow()
    return _counts(lists) if len(total) > CELLS_AT_ONCE else GroupedCounts.of(plain(total.column(0)), plain(total.column(1)))


def _learned_in_order(groups: pa.Table, drew: Mechanism, method: Estimator) -> tuple[list[Estimator], dict[str, int]]:
    runs, estimators = learnt_of_order(drew, _counts(plain(groups.column(_CELLS))), method)
    return estimators, dict(zip(_keys_as_text(groups.columns[:-1]), runs.tolist(), strict=True))


def _keys_as_text(columns: Sequence[pa.ChunkedArray | pa.Array]) -> Iterator[str]:
    """Yield the keys of each group as text, as lists cannot be keys of a dictionary, and NaN does not equal itself."""
    return map(repr, zip(*(column.to_pylist() for column in columns), strict=True))


def _counts(lists: pa.ListArray) -> GroupedCounts:
    """Return the counts of groups, each a list of reports with their numbers."""
    cells, sizes = lists.flatten(), np.diff(lists.offsets.to_numpy())
    reports, numbers = (plain(cells.field(place)) for place in (0, 1))
    return GroupedCounts(reports, whole_numbers(numbers), np.repeat(np.arange(len(sizes)), sizes), np.arange(len(sizes)))


def _estimated_frame(
    groups: DataFrame, keys: Sequence[str], drew: Mechanism, methods: list[Estimator], runs: dict[str, int]
) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415  # an extra

    kind = certify_values(drew).values.values.type
    value = pa.field("value", pa.int64() if pa.types.is_unsigned_integer(kind) else kind)
    named = zip(list(arrow_schema(groups))[:-1], keys_named(keys, result_columns(methods[0])), strict=True)
    schema = pa.schema([*(key.with_name(name) for key, name in named), value, *numbers_of(methods[0])])
    return groups.mapInArrow(lambda batches: _estimates(batches, drew, methods, runs, schema), from_arrow_schema(schema))


@withheld_stream
def _estimates(
    batches: Iterator[pa.RecordBatch], drew: Mechanism, methods: list[Estimator], runs: dict[str, int], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for groups in _together(batches, groups_at_once(drew, methods[0])):
        yield from _of_some(groups, drew, methods, runs, schema)


def _together(batches: Iterator[pa.RecordBatch], at_once: int) -> Iterator[pa.Table]:
    """Yield the groups of a task, at least ``at_once`` of them together; only the last may be fewer."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        for start in range(0, batch.num_rows, at_once):
            waiting.append(batch.slice(start, at_once))
            if sum(map(len, waiting)) >= at_once:
                yield pa.Table.from_batches(waiting)
                waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


@one_thread
def _of_some(
    groups: pa.Table, drew: Mechanism, methods: list[Estimator], runs: dict[str, int], schema: pa.Schema
) -> list[pa.RecordBatch]:
    """Return a row for each value of each of these groups."""
    # Workers get times in another time zone than the driver, so that their texts would differ.
    keys = [column.combine_chunks().cast(field.type) for column, field in zip(groups.columns[:-1], schema, strict=False)]
    counts, values = _counts(plain(groups.column(_CELLS))), certify_values(drew).values.values
    which = [runs[each] for each in _keys_as_text(keys)] if runs else []
    learned, out = Learned(methods, counts.groups, np.array(which, dtype=np.int64)), []
    parts = ((some, part) for some, method in learned.parts(counts) for part in estimated(drew, some, method))
    for of, part in parts:
        rows = rows_of(of, *part, schema_of(methods[0])).combine_chunks()
        cell, place = (rows.column(name).combine_chunks() for name in (CELL, PLACE))
        columns = [*(key.take(cell) for key in keys), values.take(place), *rows.columns[2:]]
        table = pa.table([column.cast(field.type) for column, field in zip(columns, schema, strict=True)], schema=schema)
        out += table.to_batches(_ROWS_AT_ONCE)
    return out
