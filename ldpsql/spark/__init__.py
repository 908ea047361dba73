"""Perturb and count in Spark, with the kernels that DuckDB uses (extra ``spark``); counts travel to the driver, never reports.

Spark evaluates lazily, evaluates again what it lost or forgot, and may run a task twice. Every evaluation draws again, and
every draw costs privacy. So `perturb` writes the reports, returns the frame of what it wrote, and refuses speculation. Spark
commits the files of one attempt of each task. Then the reports are data, which may be read and sorted as often as Spark likes.
Start Python workers with the interpreter that has ldpsql: ``PYSPARK_PYTHON``.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ldpsql.bulk.charging import Charge, Charged, is_permanent, permanent_of, reported_in
from ldpsql.bulk.columns import Columns, Permanent, Projection
from ldpsql.bulk.counts import Counts, merge, partial_counts
from ldpsql.bulk.fingerprints import agreed
from ldpsql.bulk.frames import estimate as estimate_counts
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
from ldpsql.bulk.orders import Order, check_order
from ldpsql.bulk.run import chosen_columns
from ldpsql.bulk.sources import check_columns
from ldpsql.channels.randomness import random_words
from ldpsql.domains.columns import is_record, plain
from ldpsql.engine.groups import GROUPS_AT_ONCE, GROUPS_SEEN, in_order, learnt_of, learnt_of_order, one_thread
from ldpsql.engine.identity import Identity
from ldpsql.errors import DestinationExists, InvalidParameter, NotReleased, SparkRefused
from ldpsql.errors.boundary import withheld_stream
from ldpsql.estimates.estimate import Estimate, estimated, refuse_pairs
from ldpsql.estimators.base import Estimator
from ldpsql.inference.counts import GroupedCounts, whole_numbers
from ldpsql.ledger.guard import uncharged
from ldpsql.ledger.people import DIGEST, SIZE, others
from ldpsql.ledger.permanent import Key, Reported, charge_columns_once
from ldpsql.mechanisms.base import CertifiedMechanism, CertifiedRow, Mechanism, certify, certify_values
from ldpsql.names import IBU
from ldpsql.registry.agreement import KEY, Fingerprints, of_text
from ldpsql.registry.documents import fingerprint
from ldpsql.registry.registry import registry
from ldpsql.registry.tables import check_policies
from ldpsql.reports import ListedHashReports, PrefixReports, type_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """Return the types in which workers get the columns of a frame; times have the time zone of the session."""
    return frame.limit(0).toArrow().schema


_OWNER_ONLY = "700"


class Destination:
    """A folder that is to be written."""

    def __init__(self, session: SparkSession, into: str) -> None:
        self._hadoop = session._jvm.org.apache.hadoop.fs
        path = self._hadoop.Path(into)
        self._files = path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
        self._path = self._files.makeQualified(path)

    @property
    def name(self) -> str:
        """The full path with its file system, by which a ledger recognises the folder."""
        return str(self._path.toString())

    def check(self, frame: DataFrame, *, replace: bool) -> None:
        """Check that the folder does not exist, or may be replaced.

        Raises:
            DestinationExists: if it exists and ``replace`` is false.
            SparkRefused: if the frame reads files that would be replaced.

        """
        if not replace and self._files.exists(self._path):
            raise DestinationExists("the folder to write exists", "choose another one, or pass replace=True")
        own = f"{self._path.toString()}/"
        if any(f"{self._hadoop.Path(file).toString()}/".startswith(own) for file in frame.inputFiles()):
            raise SparkRefused("the frame reads the folder that it would be written into", "write another folder")

    @contextmanager
    def temporary(self) -> Iterator[str]:
        """Yield a folder next to the destination, for its owner only if the file system has owners; delete it at the end."""
        name = f".{self._path.getName()}.ldpsql-{secrets.token_hex(8)}"
        path = self._hadoop.Path(self._path.getParent(), name)
        try:
            self._files.mkdirs(path)
            self._files.setPermission(path, self._hadoop.permission.FsPermission(_OWNER_ONLY))
            yield self._hadoop.Path(path, "drawn").toString()
        finally:
            self._files.delete(path, True)


_SCHEMA = pa.schema([("name", pa.string()), ("fingerprint", pa.binary()), ("person", pa.binary())])
_COLUMNS = "name string, fingerprint binary, person binary"


@dataclass(frozen=True)
class KeyFile:
    """The path of a key, which must be the same file on every worker, its fingerprint, and the column of user ids."""

    path: str
    fingerprint: str
    user: str

    @classmethod
    def of(cls, path: str | Path, user: str) -> KeyFile:
        """Return the file of a key.

        Raises:
            KeyUnusable: if it cannot be used.

        """
        return cls(str(Path(path).absolute()), Key.read(path).fingerprint, user)

    def permanent(self) -> Permanent:
        """Return the permanent reports under the key, which is read here."""
        return Permanent(Key.read(self.path, self.fingerprint), self.user)


def key_file(charge: Charge | None, *, permanent: bool, key: str | Path | None, user: str | None) -> KeyFile | None:
    """Return the key file of permanent reports, None if the reports are not permanent.

    Raises:
        InvalidParameter: as `permanent_of` does, or if the key is not a path.

    """
    if not is_permanent(permanent=permanent, key=key, user=user):
        return None
    if not isinstance(key, str | Path):
        raise InvalidParameter("workers read the key of permanent reports from its file", "key='people.key'")
    return KeyFile.of(key, permanent_of(key, user, charge).user)


def reported(frame: DataFrame, projection: Projection, file: KeyFile) -> dict[str, Reported]:
    """Return the distinct permanent reports of each column of a frame, without the values."""
    compute = partial(_fingerprints, mechanisms=projection.uncertified, file=file)
    made = frame.select(*projection.read(frame.columns)).mapInArrow(compute, _COLUMNS).distinct().toArrow()
    return {name: _of_column(made, name, mechanism) for name, mechanism in projection.uncertified.items() if len(made)}


def _of_column(made: pa.Table, name: str, mechanism: Mechanism) -> Reported:
    rows = made.filter(pc.field("name") == name)
    fingerprints = np.array(rows.column("fingerprint").to_pylist(), dtype=DIGEST)
    return Reported.of(certify(mechanism), fingerprints, rows.column("person").combine_chunks().cast(pa.large_binary()))


@withheld_stream
def _fingerprints(
    batches: Iterable[pa.RecordBatch], mechanisms: Mapping[str, Mechanism], file: KeyFile
) -> Iterator[pa.RecordBatch]:
    projection = Projection.of(mechanisms, (), file.permanent())
    for batch in batches:
        for name, one in reported_in(projection, [batch]).items():
            fingerprints = pa.array([bytes(each).ljust(SIZE, b"\0") for each in one.fingerprints.tolist()], pa.binary())
            names = pa.array([name] * len(fingerprints), pa.string())
            yield pa.RecordBatch.from_arrays([names, fingerprints, one.people.cast(pa.binary())], schema=_SCHEMA)


@contextmanager
def charged(
    frame: DataFrame, charge: Charge | None, projection: Projection, destination: str, file: KeyFile | None = None
) -> Iterator[None]:
    """Charge for a frame, run the block, which draws and writes it, and publish; with a key, for permanent reports.

    Raises:
        BudgetExceeded: if somebody's budget would be exceeded.
        NotReleased: if the frame has rows of other users after the block: a frame is computed again at each use.

    """
    if charge is None:
        yield
        return
    if file is not None:
        with _charged_once(frame, charge, projection, destination, file):
            yield
        return
    users = _users(frame, charge.user)
    rows = None if users is not None else frame.count()
    check_values(frame, projection)
    of_nobody = users is not None and not len(users)
    releases = [] if of_nobody else [charge.always(projection.uncertified, destination, users, rows)]
    yield
    if users is not None and (new := others(users, _users(frame, charge.user))):
        raise _changed(f"rows of {new} users")
    for release in releases:
        charge.ledger.publish(release)


@contextmanager
def _charged_once(frame: DataFrame, charge: Charge, projection: Projection, destination: str, file: KeyFile) -> Iterator[None]:
    """Charge for permanent reports, run the block, and publish if the frame still has the same reports."""
    before = reported(frame, projection, file)
    releases = charge_columns_once(charge.ledger, charge.dataset, before, destination) if before else []
    for release in releases:
        charge.ledger.drawn(release.token)
    yield
    after = reported(frame, projection, file)
    if any(name not in before or not np.isin(one.fingerprints, before[name].fingerprints).all() for name, one in after.items()):
        raise _changed("values of users")
    for release in releases:
        charge.ledger.publish(release)


def check_values(frame: DataFrame, projection: Projection) -> None:
    """Check all values before anything is charged.

    Raises:
        MissingValue, OutsideDomain, WrongType: in Spark's words, if one cannot be perturbed.

    """
    mechanisms = projection.uncertified
    frame.select(*mechanisms).mapInArrow(lambda batches: _checked(batches, mechanisms), "checked boolean").count()


@withheld_stream
def _checked(batches: Iterable[pa.RecordBatch], mechanisms: Mapping[str, Mechanism]) -> Iterator[pa.RecordBatch]:
    projection = Projection.of(mechanisms, ())
    for batch in batches:
        projection.check(batch)
    yield pa.record_batch([pa.array([], pa.bool_())], ["checked"])


def _changed(what: str) -> NotReleased:
    return NotReleased(
        f"the frame has {what} now that were not charged for, and they may have been drawn",
        "delete the folder, write the rows into a table or a file first, and perturb the frame that reads it",
    )


def _users(frame: DataFrame, user: str | None) -> pa.ChunkedArray | None:
    """Return the user ids of all rows, None if each row is a person."""
    if user is None:
        return None
    check_columns([user], frame.columns)
    return frame.select(user).toArrow().column(0)


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
    drew, method = agreed(_recorded(frame.select(_quoted(column))), mechanism), registry().estimator(estimator)
    refuse_pairs(drew)
    reports = _selected(frame, column, keys)
    learned = _learned(reports, drew, method) if method.needs_groups else ([method], {})
    return _estimated_frame(_groups(reports, _tasks(reports)), keys, drew, *learned)


def _recorded(selected: DataFrame) -> Fingerprints:
    """Return the fingerprints in the metadata and in the type of the only column of a frame."""
    field = selected.schema[0]
    return of_text("\n".join([field.metadata.get(_KEY) or "", *getattr(field.dataType, "names", [])]))


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
        groups = ordered.toArrow()
        runs, estimators = learnt_of_order(drew, _counts(plain(groups.column(_CELLS))), method)
        return estimators, dict(zip(_keys_as_text(groups.columns[:-1]), runs.tolist(), strict=True))
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
        SparkRefused: if speculation could draw a report twice, the reports have no type in Spark, the name of a column has a
            dot, or the frame reads ``into``.
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
    read = projection.read(frame.columns)
    if dotted := [name for name in read if "." in name]:
        hint = f"rename it: frame.withColumnRenamed('{dotted[0]}', '{dotted[0].replace('.', '_')}')"
        raise SparkRefused("Spark gives Python workers no column with a dot in its name", hint)
    selected = frame.select(*read)
    # The name of a column that is not among these, even if Spark ignores case.
    sorting = None if order == "keep" else max((name.lower() for name in selected.columns), key=len) + "_key"
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
    (field,) = arrow_schema(selected)
    kind = field.type.field(0).type if is_record(field.type) else field.type
    schema = pa.schema([("report", kind), ("n", pa.int64())])
    parts = selected.mapInArrow(lambda batches: _counted(batches, column, schema), from_arrow_schema(schema)).toArrow()
    nothing = Counts.of(pa.array([], kind), pa.array([], pa.uint64()))
    counted = merge([nothing, *(Counts.from_arrow(pa.table(batch)) for batch in parts.to_batches())])
    return replace(counted, fingerprints=_recorded(selected))


@withheld_stream
def _counted(batches: Iterable[pa.RecordBatch], column: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    waiting = iter(batches)
    first = next(waiting, None)
    if first is not None:
        counted = partial_counts(pa.RecordBatchReader.from_batches(first.schema, chain([first], waiting)), column)
        yield pa.record_batch([counted.reports, counted.numbers.cast(pa.int64())], schema=schema)


def estimate(
    frame: DataFrame, mechanism: Mechanism | str | None = None, estimator: Estimator | str = IBU, *, column: str
) -> Estimate:
    """Estimate the distribution of the values from a column of reports: exactly what DuckDB gives for the same reports.

    The mechanism may be left out if the frame records it, as that of `perturb` does.
    """
    return estimate_counts(counts(frame, column), mechanism, estimator)


def _type(certified: CertifiedMechanism) -> pa.DataType:
    """Return the type that reports have in Spark."""
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
