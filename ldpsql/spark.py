"""Perturb and count in Spark, with the kernels that DuckDB uses (extra ``spark``); counts travel to the driver, never reports.

Spark evaluates lazily, evaluates again what it lost or forgot, and may run a task twice. Every evaluation draws anew, and every
draw costs privacy. So `perturb` writes the reports and gives back what it wrote, and refuses speculation. Start Python workers
with the interpreter that has ldpsql: ``PYSPARK_PYTHON``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from ldpsql.bulk.batches import Plan
from ldpsql.bulk.counts import Counts, merge, partial_counts
from ldpsql.bulk.frames import estimate as estimate_counts
from ldpsql.errors import InvalidParameter, SparkRefused
from ldpsql.errors.boundary import withheld_stream
from ldpsql.estimates.estimate import Estimate
from ldpsql.estimators.base import Estimator
from ldpsql.mechanisms.base import CertifiedMechanism, Mechanism, certify
from ldpsql.registry.fingerprint import KEY, fingerprint, of_text
from ldpsql.registry.registry import registry
from ldpsql.reports import ListedHashReports, type_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KEY = KEY[:-1]  # of a column's own metadata
_HASHED = pa.struct([("seed", pa.int64()), ("y", pa.int32())])  # Spark has no unsigned numbers


def perturb(
    frame: DataFrame, columns: Mapping[str, Mechanism | str], into: str, *, keep: Iterable[str] = (), replace: bool = False
) -> DataFrame:
    """Perturb columns of a frame into Parquet files, once, and return the frame of what was written.

    Rows stay in the order and the partitions of the frame, so one file may hold the reports of one value. If they depend on the
    values, pass ``frame.orderBy(rand())``: the raw rows are shuffled, with Spark's generator, before anything is drawn.

    Args:
        frame: any frame; only the columns that are named are read.
        columns: the mechanism of each column; its reports take its place and name.
        into: the folder to write; Spark publishes a task's files only where the whole job succeeded.
        keep: columns that go out as they are. All others stay here.
        replace: overwrite the folder.

    Raises:
        SparkRefused: where speculation could draw a report twice, or the reports have no type in Spark.
        UnknownName, SourceRefused: where a column is not there, or there twice.

    """
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema  # noqa: PLC0415  # an extra

    session = frame.sparkSession
    _refuse_speculation(session)
    plan = Plan.of(columns, keep)
    types = {name: _type(known) for name, known in plan.mechanisms.items()}
    selected = frame.select(*plan.among(frame.columns))
    given = to_arrow_schema(selected.schema)
    schema = pa.schema([pa.field(field.name, types.get(field.name, field.type)) for field in given])
    mechanisms = {name: known.mechanism for name, known in plan.mechanisms.items()}
    drawn = selected.mapInArrow(lambda batches: _perturbed(batches, mechanisms, schema), from_arrow_schema(schema))
    for name, mechanism in mechanisms.items():
        drawn = drawn.withMetadata(name, {_KEY: fingerprint(mechanism)})
    drawn.write.mode("overwrite" if replace else "errorifexists").parquet(into)
    return session.read.parquet(into)


@withheld_stream
def _perturbed(
    batches: Iterable[pa.RecordBatch], mechanisms: Mapping[str, Mechanism], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    plan = Plan.of(mechanisms, [name for name in schema.names if name not in mechanisms])
    for batch in batches:
        reports = plan.perturb(batch, plan.schema(batch.schema))
        yield pa.RecordBatch.from_arrays([c.cast(f.type) for c, f in zip(reports.columns, schema, strict=True)], schema=schema)


def register(spark: SparkSession, mechanisms: Mapping[str, Mechanism | str]) -> None:
    """Give Spark SQL one function for each named mechanism: ``city`` becomes ``ldp_perturb_city(x)``.

    It draws at every evaluation: use it only where the result is written, in ``CREATE TABLE ... AS`` or ``INSERT INTO``. Type
    what you pass, for 1.0 is a DECIMAL in Spark.

    Raises:
        SparkRefused: where speculation could draw a report twice, or the reports have no type in Spark.
        InvalidParameter: for a name that is no identifier.

    """
    from pyspark.sql.functions import arrow_udf  # noqa: PLC0415  # an extra
    from pyspark.sql.pandas.types import from_arrow_type  # noqa: PLC0415

    _refuse_speculation(spark)
    for name, given in mechanisms.items():
        if not name.isidentifier():
            raise InvalidParameter("a mechanism in Spark needs a name of letters, digits and _", "for example city")
        known = certify(registry().mechanism(given))
        kind, mechanism = _type(known), known.mechanism
        function = arrow_udf(_drawing(mechanism, kind), returnType=from_arrow_type(kind))
        spark.udf.register(f"ldp_perturb_{name}", function.asNondeterministic())


def _drawing(mechanism: Mechanism, kind: pa.DataType) -> object:
    def draw(column: pa.Array) -> pa.Array:
        plan = Plan.of({"values": mechanism}, ())
        batch = pa.record_batch([column], ["values"])
        return plan.perturb(batch, plan.schema(batch.schema)).column(0).cast(kind)

    draw.__annotations__ = {"column": pa.Array, "return": pa.Array}  # Spark reads them, and takes no text
    return draw


def counts(frame: DataFrame, column: str) -> Counts:
    """Count the reports of one column: each task counts its own, and the driver adds up what the tasks send."""
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema  # noqa: PLC0415  # an extra

    selected = frame.select(column)
    written = of_text(selected.schema[0].metadata.get(_KEY))
    (field,) = to_arrow_schema(selected.schema)
    schema = pa.schema([("report", field.type), ("n", pa.int64())])
    parts = selected.mapInArrow(lambda batches: _counted(batches, column, schema), from_arrow_schema(schema)).toArrow()
    nothing = Counts.of(pa.array([], field.type), pa.array([], pa.uint64()))
    counted = merge([nothing, *(Counts.from_arrow(pa.table(batch)) for batch in parts.to_batches())])
    return replace(counted, fingerprints=written)


@withheld_stream
def _counted(batches: Iterable[pa.RecordBatch], column: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    waiting = iter(batches)
    first = next(waiting, None)
    if first is not None:
        counted = partial_counts(pa.RecordBatchReader.from_batches(first.schema, chain([first], waiting)), column)
        yield pa.record_batch([counted.reports, counted.numbers.cast(pa.int64())], schema=schema)


def estimate(frame: DataFrame, column: str, mechanism: Mechanism | str, estimator: Estimator | str = "ibu") -> Estimate:
    """Estimate the distribution of the values from a column of reports: exactly what DuckDB gives for the same reports."""
    return estimate_counts(counts(frame, column), mechanism, estimator)


def _type(known: CertifiedMechanism) -> pa.DataType:
    """Return the type that reports have in Spark.

    Raises:
        SparkRefused: where there is none.

    """
    if isinstance(known.reports, ListedHashReports):
        return _HASHED
    kind = type_of(known.reports)
    if pa.types.is_nested(kind) or pa.types.is_unsigned_integer(kind):
        raise SparkRefused(
            f"the reports of {known.mechanism.name} are unsigned words, which Spark does not have",
            "use krr or olh, or perturb with ldpsql.perturb_copy",
        )
    return kind


def _refuse_speculation(spark: SparkSession) -> None:
    if spark.sparkContext.getConf().get("spark.speculation", "false").lower() == "true":
        raise SparkRefused("with spark.speculation a task may run twice, and draw every report twice", "switch it off")
