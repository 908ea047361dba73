"""Estimates by group in Spark: the cluster counts, executors estimate, and the driver learns what groups have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ldpsql.bulk.fingerprints import agreed
from ldpsql.bulk.groups import CELL, PLACE, check_names, columns_of, keys_named, numbers_of, rows_of, schema_of
from ldpsql.bulk.learning import Learned
from ldpsql.domains.columns import plain
from ldpsql.engine.groups import GROUPS_AT_ONCE, GROUPS_SEEN, estimated, in_order, learnt_of, learnt_of_order, refuse_pairs
from ldpsql.engine.threads import one_thread
from ldpsql.errors.boundary import withheld_stream
from ldpsql.estimators.base import Estimator
from ldpsql.inference.counts import Counts, whole_numbers
from ldpsql.mechanisms.base import Mechanism, certify_values
from ldpsql.names import IBU
from ldpsql.registry.fingerprint import KEY, of_text
from ldpsql.registry.registry import registry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CELLS, _REPORT, _N = "ldp cells", "ldp report", "ldp n"  # keys may have any other name


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
    check_names(column, keys)
    written = of_text(frame.select(_quoted(column)).schema[0].metadata.get(KEY[:-1]))
    drew, method = agreed(written, mechanism), registry().estimator(estimator)
    refuse_pairs(drew)
    groups = _counted(frame, column, keys)
    return _estimated_frame(groups, drew, *(_learned(groups, drew, method) if method.needs_groups else ([method], {})))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _counted(frame: DataFrame, column: str, keys: Sequence[str]) -> DataFrame:
    """Return the lazy frame of the groups: the keys, and the list of the reports with their numbers."""
    from pyspark.sql import functions as sql  # noqa: PLC0415  # an extra

    named = [sql.col(_quoted(key)).alias(key) for key in keys]
    reports = frame.select(*named, sql.col(_quoted(column)).alias(_REPORT)).where(sql.col(_REPORT).isNotNull())
    every = [_quoted(key) for key in keys]
    cells = reports.groupBy(*every, _REPORT).agg(sql.count("*").alias(_N))
    return cells.groupBy(*every).agg(sql.collect_list(sql.struct(_REPORT, _N)).alias(_CELLS))


def _learned(groups: DataFrame, drew: Mechanism, method: Estimator) -> tuple[list[Estimator], dict[str, int]]:
    """Return the estimators with what groups have in common, on the driver, and which of several each group has by its keys."""
    from pyspark.sql import functions as sql  # noqa: PLC0415
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

    count, keys = groups.count(), [sql.col(_quoted(key)) for key in groups.columns[:-1]]
    if not count:
        return [method], {}
    if count <= GROUPS_SEEN and in_order(to_arrow_schema(groups.schema).field(len(keys) - 1).type):
        return _learned_in_order(groups.orderBy(*(key.asc_nulls_last() for key in keys)).toArrow(), drew, method)
    seen, every = groups.select(_CELLS), 1 + count // GROUPS_SEEN
    if every > 1:
        seen = groups.where(sql.pmod(sql.xxhash64(*keys), sql.lit(every)) == 0).select(_CELLS)
    cells = groups.select(sql.explode(_CELLS).alias("cell")).select("cell.*")
    total = cells.groupBy(_REPORT).agg(sql.sum(_N).alias(_N)).toArrow()
    counts = Counts.of(plain(total.column(0)), plain(total.column(1)))
    lists = plain(seen.toArrow().column(0))
    parts = (_counts(lists.slice(at, GROUPS_AT_ONCE)) for at in range(0, len(lists), GROUPS_AT_ONCE))
    return [learnt_of(drew, counts, parts, method)], {}


def _learned_in_order(groups: pa.Table, drew: Mechanism, method: Estimator) -> tuple[list[Estimator], dict[str, int]]:
    runs, estimators = learnt_of_order(drew, _counts(plain(groups.column(_CELLS))), method)
    return estimators, dict(zip(_keys_as_text(groups.columns[:-1]), runs.tolist(), strict=True))


def _keys_as_text(columns: Sequence[pa.ChunkedArray | pa.Array]) -> Iterator[str]:
    """Yield the keys of each group as text, as lists cannot be keys of a dictionary, and NaN does not equal itself."""
    return map(repr, zip(*(column.to_pylist() for column in columns), strict=True))


def _counts(lists: pa.ListArray) -> Counts:
    """Return the counts of groups, each a list of reports with their numbers."""
    cells, sizes = lists.flatten(), np.diff(lists.offsets.to_numpy())
    reports, numbers = (plain(cells.field(place)) for place in (0, 1))
    return Counts(reports, whole_numbers(numbers), np.repeat(np.arange(len(sizes)), sizes), np.arange(len(sizes)))


def _estimated_frame(groups: DataFrame, drew: Mechanism, methods: list[Estimator], runs: dict[str, int]) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema  # noqa: PLC0415  # an extra

    kind = certify_values(drew).values.values.type
    value = pa.field("value", pa.int64() if pa.types.is_unsigned_integer(kind) else kind)
    *keys, _ = to_arrow_schema(groups.schema)
    named = zip(keys, keys_named([key.name for key in keys], columns_of(methods[0])), strict=True)
    schema = pa.schema([*(key.with_name(name) for key, name in named), value, *numbers_of(methods[0])])
    return groups.mapInArrow(lambda batches: _estimates(batches, drew, methods, runs, schema), from_arrow_schema(schema))


@withheld_stream
def _estimates(
    batches: Iterator[pa.RecordBatch], drew: Mechanism, methods: list[Estimator], runs: dict[str, int], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, GROUPS_AT_ONCE):
            yield from _of_some(batch.slice(start, GROUPS_AT_ONCE), drew, methods, runs, schema)


@one_thread
def _of_some(
    batch: pa.RecordBatch, drew: Mechanism, methods: list[Estimator], runs: dict[str, int], schema: pa.Schema
) -> list[pa.RecordBatch]:
    """Return a row for each value of each of these groups."""
    counts, values = _counts(plain(batch.column(batch.num_columns - 1))), certify_values(drew).values.values
    which = [runs[keys] for keys in _keys_as_text(batch.columns[:-1])] if runs else []
    learned, out = Learned(methods, counts.groups, np.array(which, dtype=np.int64)), []
    parts = ((some, part) for some, method in learned.parts(counts) for part in estimated(drew, some, method))
    for of, part in parts:
        rows = rows_of(of, *part, schema_of(methods[0])).combine_chunks()
        keys = [key.take(rows.column(CELL).combine_chunks()) for key in batch.columns[:-1]]
        columns = [*keys, values.take(rows.column(PLACE).combine_chunks()), *rows.columns[2:]]
        table = pa.table([column.cast(field.type) for column, field in zip(columns, schema, strict=True)], schema=schema)
        out += table.to_batches()
    return out
