"""Perturb and count in Spark, with the kernels that DuckDB uses (extra ``spark``); counts travel to the driver, never reports.

Spark evaluates lazily, evaluates again what it lost or forgot, and may run a task twice. Every evaluation draws again, and
every draw costs privacy. So `perturb` writes the reports, returns the frame of what it wrote, and refuses speculation. Spark
commits the files of one attempt of each task. Then the reports are data, which may be read and sorted as often as Spark likes.
Start Python workers with the interpreter that has ldpsql: ``PYSPARK_PYTHON``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from ldpsql.bulk.charging import Charged
from ldpsql.bulk.columns import Columns, Projection
from ldpsql.bulk.counts import Counts, merge, partial_counts
from ldpsql.bulk.frames import estimate as estimate_counts
from ldpsql.bulk.orders import Order, check_order
from ldpsql.bulk.run import chosen_columns
from ldpsql.channels.randomness import random_words
from ldpsql.domains.columns import is_record
from ldpsql.engine.identity import Identity
from ldpsql.errors import InvalidParameter, SparkRefused
from ldpsql.errors.boundary import withheld_stream
from ldpsql.estimates.estimate import Estimate
from ldpsql.estimators.base import Estimator
from ldpsql.ledger.uncharged import uncharged
from ldpsql.mechanisms.base import CertifiedMechanism, CertifiedRow, Mechanism, certify
from ldpsql.names import IBU
from ldpsql.registry.agreement import KEY, of_text, of_type
from ldpsql.registry.fingerprint import fingerprint
from ldpsql.registry.registry import registry
from ldpsql.registry.tables import check_policies
from ldpsql.reports import ListedHashReports, PrefixReports, type_of
from ldpsql.spark.charging import charged
from ldpsql.spark.destination import Destination
from ldpsql.spark.groups import estimate_groups as estimate_groups
from ldpsql.spark.permanent import KeyFile, key_file
from ldpsql.spark.schemas import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KEY = KEY[:-1]  # of a column's own metadata
_HASHED = pa.struct([("seed", pa.int64()), ("y", pa.int32())])  # Spark has no unsigned numbers
_PREFIXED = pa.struct([("level", pa.int16()), ("seed", pa.int64()), ("y", pa.int32())])


def perturb(
    frame: DataFrame,
    columns: Columns | None = None,
    into: str = "",
    *,
    policy: str | None = None,
    keep: Iterable[str] = (),
    replace: bool = False,
    order: Order = "random",
    charge: Charged = None,
    permanent: bool = False,
    key: str | Path | None = None,
    user: str | None = None,
) -> DataFrame:
    """Perturb columns of a frame into Parquet files, once, and return the frame of what was written.

    Args:
        frame: any frame; only the columns that are named are read.
        columns: the mechanism of each column, or one of a row of them; the reports of a column take its place and name.
        into: the folder to write, which must be named; Spark publishes a task's files only if the whole job succeeds.
        policy: the name of a policy in ``ldpsql.toml``, ``[tables.NAME]``, instead of ``columns`` and ``keep``.
        keep: columns that go out as they are. All others stay here.
        replace: overwrite the folder.
        order: ``"random"`` puts the rows of the whole frame in a uniformly random order, over all files. The reports are drawn
            into a folder next to ``into``, each with 128 cryptographic random bits, and then Spark sorts them by these bits.
            ``"keep"`` leaves rows in the order and the partitions of the frame; one file may hold the reports of one value.
        charge: the ledger that is charged before the first draw, or the name of the people, for the ledger of ``ldpsql.toml``.
            The ledger is a file of the driver, and if it charges by user, the user ids travel there.
        permanent: draw the reports of `ldpsql.perturb_once`; the ledger charges each person once for each value of a column.
        key: the file of the key of permanent reports, which every worker reads at this path.
        user: the column of user ids of permanent reports; by default that of the charge.

    Raises:
        SparkRefused: if speculation could draw a report twice, the reports have no type in Spark, or the frame reads ``into``.
        DestinationExists: if something is at ``into``, and ``replace`` is not set.
        UnknownName, SourceRefused: if a column is missing, or occurs twice.
        BudgetExceeded: if somebody's budget would be exceeded; then nothing is drawn.
        NotReleased: if the frame had rows of users after the draw who were not charged; then delete the folder.
        InvalidParameter: if no folder is named, or the arguments do not fit together.

    """
    check_order(order)
    session = frame.sparkSession
    _refuse_speculation(session)
    if not into:
        raise InvalidParameter("the folder to write is missing", "into='reports.parquet'")
    chosen = chosen_columns(columns, keep, policy)
    charge = chosen.charge(charge)
    file = key_file(charge, permanent=permanent, key=key, user=user)
    projection = Projection.of(chosen.mechanisms, chosen.keep, file.permanent() if file else None)
    chosen.check(projection, charge)
    selected = frame.select(*projection.read(frame.columns))
    sorting = None if order == "keep" else _unlike(selected.columns)
    drawn, destination = _drawn(selected, projection, sorting, file), Destination(session, into)
    destination.check(frame, replace=replace)
    mode = "overwrite" if replace else "errorifexists"
    with charged(frame, charge, projection, destination.name, file):
        if sorting is None:
            drawn.write.mode(mode).parquet(into)
        else:
            with destination.temporary() as folder:
                drawn.write.parquet(folder)
                session.read.parquet(folder).orderBy(sorting).drop(sorting).write.mode(mode).parquet(into)
    return session.read.parquet(into)


def _unlike(names: Iterable[str]) -> str:
    """Return the name of a column that is not among these, even if Spark ignores case."""
    return max((name.lower() for name in names), key=len) + "_key"


def _drawn(selected: DataFrame, projection: Projection, key: str | None = None, file: KeyFile | None = None) -> DataFrame:
    """Return the lazy frame that draws, if a key is named with a column of random bits."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415  # an extra

    types = {name: _type(certified) for name, certified in projection.mechanisms.items()}
    written = set(projection.columns)
    fields = [pa.field(f.name, types.get(f.name, f.type)) for f in arrow_schema(selected) if f.name in written]
    schema = pa.schema([*fields, pa.field(key, pa.binary())] if key else fields)
    mechanisms = {name: certified.mechanism for name, certified in projection.mechanisms.items()}
    drawn = selected.mapInArrow(lambda batches: _perturbed(batches, mechanisms, schema, key, file), from_arrow_schema(schema))
    for name, mechanism in mechanisms.items():
        drawn = drawn.withMetadata(name, {_KEY: fingerprint(mechanism)})
    return drawn


@withheld_stream
def _perturbed(
    batches: Iterable[pa.RecordBatch],
    mechanisms: Mapping[str, Mechanism],
    schema: pa.Schema,
    key: str | None,
    file: KeyFile | None,
) -> Iterator[pa.RecordBatch]:
    keep = [name for name in schema.names if name not in mechanisms and name != key]
    projection = Projection.of(mechanisms, keep, file.permanent() if file else None)
    for batch in batches:
        reports = projection.perturb(batch, projection.schema(batch.schema))
        columns = [*reports.columns, *([_random_bits(batch.num_rows)] if key else [])]
        yield pa.RecordBatch.from_arrays([c.cast(f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def _random_bits(rows: int) -> pa.Array:
    """Return 128 bits a row: among 10^12 rows, two are alike with a probability of 1e-15."""
    return pa.Array.from_buffers(pa.binary(16), rows, [None, pa.py_buffer(random_words(2 * rows))])


def register(spark: SparkSession, mechanisms: Mapping[str, Mechanism | str]) -> None:
    """Give Spark SQL one function for each named mechanism: ``city`` becomes ``ldp_perturb_city(x)``.

    It draws at every evaluation: use it only if the result is written, in ``CREATE TABLE ... AS`` or ``INSERT INTO``, and
    without ``ORDER BY`` in the same statement: Spark samples what it sorts, and draws again for that. Rows stay in the order of
    the source; `perturb` shuffles them. Cast the arguments, because 1.0 is a DECIMAL in Spark. The function charges no ledger.

    Warns:
        UnchargedReports: once, if ``ldpsql.toml`` names a ledger.

    Raises:
        SparkRefused: if speculation could draw a report twice, or the reports have no type in Spark.
        InvalidParameter: if a name is not an identifier.

    """
    from pyspark.sql.functions import arrow_udf  # noqa: PLC0415  # an extra
    from pyspark.sql.pandas.types import from_arrow_type  # noqa: PLC0415

    _refuse_speculation(spark)
    uncharged()
    for name, specification in mechanisms.items():
        if not name.isidentifier():
            raise InvalidParameter("a mechanism in Spark needs a name of letters, digits and _", "for example city")
        certified = certify(registry().mechanism(specification))
        check_policies(Identity("", ()), {"": certified.mechanism})
        kind, mechanism = _type(certified), certified.mechanism
        function = arrow_udf(_drawing(mechanism, kind), returnType=from_arrow_type(kind))
        spark.udf.register(f"ldp_perturb_{name}", function.asNondeterministic())


def _drawing(mechanism: Mechanism, kind: pa.DataType) -> object:
    def draw(column: pa.Array) -> pa.Array:
        projection = Projection.of({"values": mechanism}, ())
        batch = pa.record_batch([column], ["values"])
        return projection.perturb(batch, projection.schema(batch.schema)).column(0).cast(kind)

    draw.__annotations__ = {"column": pa.Array, "return": pa.Array}  # Spark reads them, and does not accept strings
    return draw


def counts(frame: DataFrame, column: str) -> Counts:
    """Count the reports of one column: each task counts its own, and the driver adds up what the tasks send."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415  # an extra

    selected = frame.select(column)
    written = of_text(selected.schema[0].metadata.get(_KEY))
    (field,) = arrow_schema(selected)
    kind = field.type.field(0).type if is_record(field.type) else field.type
    schema = pa.schema([("report", kind), ("n", pa.int64())])
    parts = selected.mapInArrow(lambda batches: _counted(batches, column, schema), from_arrow_schema(schema)).toArrow()
    nothing = Counts.of(pa.array([], kind), pa.array([], pa.uint64()))
    counted = merge([nothing, *(Counts.from_arrow(pa.table(batch)) for batch in parts.to_batches())])
    return replace(counted, fingerprints=written | of_type(field.type))


@withheld_stream
def _counted(batches: Iterable[pa.RecordBatch], column: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    waiting = iter(batches)
    first = next(waiting, None)
    if first is not None:
        counted = partial_counts(pa.RecordBatchReader.from_batches(first.schema, chain([first], waiting)), column)
        yield pa.record_batch([counted.reports, counted.numbers.cast(pa.int64())], schema=schema)


def estimate(
    frame: DataFrame, column: str, mechanism: Mechanism | str | None = None, estimator: Estimator | str = IBU
) -> Estimate:
    """Estimate the distribution of the values from a column of reports: exactly what DuckDB gives for the same reports.

    The mechanism may be left out if the frame records it, as that of `perturb` does.
    """
    return estimate_counts(counts(frame, column), mechanism, estimator)


def _type(certified: CertifiedMechanism) -> pa.DataType:
    """Return the type that reports have in Spark.

    Raises:
        SparkRefused: if there is none.

    """
    if isinstance(certified.reports, ListedHashReports):
        return _HASHED
    if isinstance(certified.reports, PrefixReports):
        return _PREFIXED
    if isinstance(certified, CertifiedRow):
        return pa.struct([(name, _type(part)) for name, part in zip(certified.values.names, certified.parts, strict=True)])
    kind = type_of(certified.reports)
    if pa.types.is_nested(kind) or pa.types.is_unsigned_integer(kind):
        raise SparkRefused(
            f"the reports of {certified.mechanism.name} are unsigned words, which Spark does not have",
            "use krr or olh, or perturb with ldpsql.perturb_copy",
        )
    return kind


def _refuse_speculation(spark: SparkSession) -> None:
    if spark.sparkContext.getConf().get("spark.speculation", "false").lower() == "true":
        raise SparkRefused("with spark.speculation a task may run twice, and draw every report twice", "switch it off")
