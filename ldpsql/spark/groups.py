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

_CELLS, _REPORT, _N, _NUMBER = "ldp cells", "ldp report", "ldp n", "ldp number"  # keys may have any other name


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
    if method.needs_groups:
        count = groups.count()
        if not count:
            return _estimated_frame(groups.limit(0), drew, Learned([method]))
        if count <= GROUPS_SEEN and in_order(_last_key(groups)):
            ordered = _numbered(groups)
            learned = _learned_in_order(ordered, drew, method)
            return _estimated_frame(groups if len(learned.estimators) == 1 else ordered, drew, learned)
        method = _learned(groups, count, drew, method)
    return _estimated_frame(groups, drew, Learned([method]))


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


def _last_key(groups: DataFrame) -> pa.DataType:
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415  # an extra

    return to_arrow_schema(groups.schema)[-2].type


def _numbered(groups: DataFrame) -> DataFrame:
    """Return the frame with the number of each group in the order of the keys, before the cells."""
    from pyspark.sql import Window  # noqa: PLC0415  # an extra
    from pyspark.sql import functions as sql  # noqa: PLC0415

    *keys, cells = (sql.col(_quoted(name)) for name in groups.columns)
    number = sql.row_number().over(Window.orderBy(*(key.asc_nulls_last() for key in keys)))
    return groups.select(*keys, (number - 1).alias(_NUMBER), cells).repartition(_quoted(_NUMBER))


def _learned_in_order(ordered: DataFrame, drew: Mechanism, method: Estimator) -> Learned:
    """Return what each group is estimated with, on the driver, which sees all groups in order."""
    counts = _counts(plain(ordered.orderBy(_quoted(_NUMBER)).select(_CELLS).toArrow().column(0)))
    runs, estimators = learnt_of_order(drew, counts, iter([counts]), method)
    return Learned(estimators, counts.groups, runs)


def _learned(groups: DataFrame, count: int, drew: Mechanism, method: Estimator) -> Estimator:
    """Return the estimator with what all groups have in common, on the driver, which sees a part of very many."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    seen, every = groups.select(_CELLS), 1 + count // GROUPS_SEEN
    if every > 1:
        keys = [sql.col(_quoted(key)) for key in groups.columns[:-1]]
        seen = groups.where(sql.pmod(sql.xxhash64(*keys), sql.lit(every)) == 0).select(_CELLS)
    cells = groups.select(sql.explode(_CELLS).alias("cell")).select("cell.*")
    total = cells.groupBy(_REPORT).agg(sql.sum(_N).alias(_N)).toArrow()
    counts = Counts.of(plain(total.column(0)), plain(total.column(1)))
    lists = plain(seen.toArrow().column(0))
    return learnt_of(
        drew, counts, (_counts(lists.slice(at, GROUPS_AT_ONCE)) for at in range(0, len(lists), GROUPS_AT_ONCE)), method
    )


def _counts(lists: pa.ListArray) -> Counts:
    """Return the counts of groups, each a list of reports with their numbers."""
    cells, sizes = lists.flatten(), np.diff(lists.offsets.to_numpy())
    reports, numbers = (plain(cells.field(place)) for place in (0, 1))
    return Counts(reports, whole_numbers(numbers), np.repeat(np.arange(len(sizes)), sizes), np.arange(len(sizes)))


def _estimated_frame(groups: DataFrame, drew: Mechanism, learned: Learned) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema  # noqa: PLC0415  # an extra

    kind, method = certify_values(drew).values.values.type, learned.estimators[0]
    value = pa.field("value", pa.int64() if pa.types.is_unsigned_integer(kind) else kind)
    keys = [key for key in to_arrow_schema(groups.schema) if key.name not in (_NUMBER, _CELLS)]
    named = zip(keys, keys_named([key.name for key in keys], columns_of(method)), strict=True)
    schema = pa.schema([*(key.with_name(name) for key, name in named), value, *numbers_of(method)])
    return groups.mapInArrow(lambda batches: _estimates(batches, drew, learned, schema), from_arrow_schema(schema))


@withheld_stream
def _estimates(
    batches: Iterator[pa.RecordBatch], drew: Mechanism, learned: Learned, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    values = certify_values(drew).values.values.cast(schema.field("value").type)
    for batch in batches:
        for start in range(0, batch.num_rows, GROUPS_AT_ONCE):
            yield from _of_some(batch.slice(start, GROUPS_AT_ONCE), drew, learned, values, schema)


@one_thread
def _of_some(
    batch: pa.RecordBatch, drew: Mechanism, learned: Learned, values: pa.Array, schema: pa.Schema
) -> list[pa.RecordBatch]:
    """Return a row for each value of each of these groups."""
    counts, out = _counts(plain(batch.column(batch.num_columns - 1))), []
    keys = schema.get_field_index("value")  # how many there are; the number of the group comes after them, if there is one
    numbers = batch.column(keys).to_numpy() if len(learned.estimators) > 1 else counts.groups
    for some, method in learned.parts(counts, numbers):
        for part in estimated(drew, some, method):
            rows = rows_of(some, *part, schema_of(method)).combine_chunks()
            of_keys = [key.take(rows.column(CELL).combine_chunks()) for key in batch.columns[:keys]]
            columns = [*of_keys, values.take(rows.column(PLACE).combine_chunks()), *rows.columns[2:]]
            table = pa.table([column.cast(field.type) for column, field in zip(columns, schema, strict=True)], schema=schema)
            out += table.to_batches()
    return out
