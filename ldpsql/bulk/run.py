"""Perturb files, tables, streams, frames and columns: all of the reports are published, or nothing.

charge, if there is a ledger -> draw -> write to the disk -> rename to the destination -> publish in the ledger
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, overload

import polars as pl
import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql import settings
from ldpsql.bulk.charging import (
    Bill,
    Charge,
    Charged,
    Charging,
    charge_of,
    check_ledger,
    is_held,
    is_permanent,
    opened,
    permanent_of,
)
from ldpsql.bulk.columns import Columns, Permanent, Projection, by_column
from ldpsql.bulk.databases import DatabaseSink, is_address
from ldpsql.bulk.fingerprints import Marking
from ldpsql.bulk.orders import Drawing, Meter, Order, Progress, check_order
from ldpsql.bulk.sinks import Form, TableSink, destination_of
from ldpsql.bulk.sources import (
    BATCH_ROWS,
    Column,
    Source,
    batches_of,
    check_columns,
    counted,
    names_of,
    readable_twice,
    source_of,
    stream,
    witnessed,
)
from ldpsql.bulk.staging import already_exists, staging_at
from ldpsql.domains.columns import column_of, is_pandas_series, like_series
from ldpsql.engine.connections import cursor_of, stops_with_connection
from ldpsql.engine.identity import Identity
from ldpsql.errors import InvalidParameter, NotReleased
from ldpsql.errors.boundary import withheld, withheld_stream
from ldpsql.ledger.guard import uncharged
from ldpsql.ledger.permanent import Key
from ldpsql.mechanisms.base import Mechanism
from ldpsql.places import Place
from ldpsql.registry.tables import TablePolicy, check_policies, table_policy
from ldpsql.sql.named import mechanism_of


class Chosen(NamedTuple):
    """The mechanism of each column that is perturbed, the columns that are kept, the policy with both, and the connection."""

    mechanisms: Columns
    keep: tuple[str, ...]
    policy: TablePolicy | None = None
    con: DuckDBPyConnection | None = None

    def charge(self, argument: Charged) -> Charge | None:
        """Return the charge of a run, as `charge_of` reads it, with the column of user ids of the policy."""
        charge = charge_of(argument, self.con)
        if self.policy is None:
            return charge
        unit = charge.ledger.policy.privacy_unit if charge else "row"
        if unit != self.policy.unit:
            raise NotReleased(
                f"the privacy unit of [tables.{self.policy.name}] is {self.policy.unit}, and that of the run is {unit}",
                "charge a ledger with the same privacy_unit (charge='people', --dataset people), or change the policy",
            )
        return replace(charge, user=charge.user or self.policy.unit) if charge and not self.policy.by_row else charge

    def check(self, projection: Projection, charge: Charge | None, source: Source | None = None) -> None:
        """Check that the policies of the source allow what happens to its columns.

        A source that is not identified goes by the name of its charge.

        Raises:
            OutsidePolicy: if they do not.

        """
        if not settings.load().tables:
            return
        named = whose = Identity.named(charge.dataset) if charge else Identity("", ())
        if self.con is not None and source is not None:
            with cursor_of(self.con) as cursor:
                whose = source.whose(cursor, False)
        check_policies(
            whose if whose.base else named,
            projection.uncertified,
            keep=projection.keep,
            permanent=projection.permanent is not None,
            policy=None if self.policy is None else self.policy.name,
            con=self.con,
        )


def chosen_columns(
    columns: Columns | None,
    keep: Iterable[str],
    policy: str | None,
    con: DuckDBPyConnection | None = None,
) -> Chosen:
    """Return the columns of a run from its arguments.

    Raises:
        InvalidParameter: unless either columns or a policy is passed.
        RowBudgetExceeded, BadSettings, UnknownName: if the policy cannot be used.

    """
    kept = names_of(keep, "keep")
    if policy is None and columns is not None:
        named = columns if con is None else by_column(columns, lambda mechanism: mechanism_of(mechanism, con))
        return Chosen(named, kept, con=con)
    if policy is None or columns is not None or kept:
        raise InvalidParameter(
            "a run needs either columns with mechanisms or the policy of a table", "policy='people' stands for columns and keep"
        )
    chosen = table_policy(policy, con)
    return Chosen(chosen.mechanisms, chosen.keep, chosen, con)


@dataclass
class Run:
    """The result of a run: the rows and parts that it drew, the parts that an earlier run drew, and its token in the ledger.

    A run of permanent reports has a token for each column, with spaces between them.
    ``uncharged`` is true if the settings name a ledger that the run did not charge.
    """

    rows: int = 0
    parts: int = 0
    resumed: int = 0
    release: str = ""
    uncharged: bool = False


@dataclass(frozen=True)
class Plan:
    """What a run reads, what happens to its columns, and who is charged: all of it is checked, and nothing is drawn yet."""

    con: DuckDBPyConnection
    source: Source
    projection: Projection
    charge: Charge | None
    order: Order

    @classmethod
    def of(
        cls,
        con: DuckDBPyConnection,
        source: Any,
        columns: Columns | None,
        *,
        policy: str | None,
        keep: Iterable[str],
        order: Order,
        charge: Charged,
        permanent: bool,
        key: Key | str | Path | None,
        user: str | None,
        split: bool = False,
    ) -> Plan:
        """Return the plan of a run from the arguments of `perturb_copy`; ``split`` cuts files into parts.

        A source has its user ids with it if the ledger charges by user.
        """
        check_order(order)
        chosen = chosen_columns(columns, keep, policy, con)
        charged = chosen.charge(charge)
        unit = None if chosen.policy is None or chosen.policy.by_row else chosen.policy.unit
        once = is_permanent(permanent=permanent, key=key, user=user)
        projection = Projection.of(
            chosen.mechanisms, chosen.keep, permanent_of(key, user or unit, charged, con) if once else None
        )
        opened = source_of(con, source, split=split, text=projection.text, counted=True)
        opened.check(projection.read(opened.names) if once else projection.columns)
        opened.check_folders(projection.mechanisms)
        if once:  # each report is compared with those that were charged
            opened = readable_twice(opened) if charged else opened
        else:
            opened = counted(opened) if charged and charged.shuffled_delta is not None else opened
            opened = witnessed(opened, charged.user if charged else None, projection.keep)
        chosen.check(projection, charged, opened)
        check_ledger(con, charged)
        return cls(con, opened, projection, charged, order)

    def into_files(self, target: Place, form: Form, *, replace: bool, resume: bool, progress: Progress | None) -> Run:
        """Charge, draw, and publish files; a run that is resumed draws the parts that are not complete."""
        form.check(target, self.projection, self.source.files)
        drawing = Drawing(self.con, self.source, self.projection, Meter(self.source.rows, progress))
        bill = Bill(self.con, self.charge, self.source, self.projection, target.shown)
        task = self._task(form, drawing.buckets)
        with staging_at(target, form.suffix) as staging:
            token = staging.begin(task, replace=replace, resume=resume)
            if token is None:
                token = bill.pay(again=replace, resume=resume, shuffled=self.order == "random")
                staging.write_state({"task": task, "release": token, "replace": replace})
            elif bill.is_published(token):  # killed while it tidied up
                staging.remove()
                return Run(0, 0, len(self.source.parts), token)
            elif self.projection.permanent is not None:  # costs nothing, and says what may be drawn
                token = staging.add_release(bill.pay(again=False, resume=True, shuffled=False))
            try:
                drawing.into_files(form, staging, self.order)
            except BaseException:
                if not staging.has_parts:  # from which a later run could go on
                    bill.give_back(token, unseen=False)
                raise
            bill.drawn(token)
            staging.publish(one_file=not form.folder)
            bill.publish(token)
            staging.remove()
        return Run(drawing.rows, drawing.parts, drawing.resumed, token, self.charge is None and uncharged())

    def _task(self, form: Form, buckets: int) -> dict[str, Any]:
        """Return all that a run that resumes must have in common with the run that was killed."""
        permanent = self.projection.permanent
        return {
            "inputs": [part.identity for part in self.source.parts],
            "columns": {name: str(mechanism) for name, mechanism in self.projection.uncertified.items()},
            "keep": self.projection.keep,
            "partition_by": form.partition_by,
            "order": self.order,
            "buckets": buckets,
            "permanent": permanent and [permanent.key.fingerprint, permanent.user, self.charge is not None],
        }

    def into_table(self, sink: TableSink | DatabaseSink, *, resume: bool, progress: Progress | None) -> Run:
        """Charge, draw, and write a table in one transaction; a run that wrote its table before it was killed is published."""
        bill = Bill(self.con, self.charge, self.source, self.projection, sink.place, tokens=sink.tokens)
        if resume and (token := bill.written()):
            bill.publish(token)
            return Run(0, 0, 1, token)
        sink.check(self.source.named, self.projection.columns)
        mechanisms = self.projection.uncertified
        marking = Marking(self.con, sink.name, mechanisms) if isinstance(sink, TableSink) else sink.marking(mechanisms)
        if sink.append:
            marking.check()
        token = bill.pay(again=sink.replace, resume=resume, shuffled=self.order == "random")
        drawing, committing = Drawing(self.con, self.source, self.projection, Meter(self.source.rows, progress)), False

        def sign(cursor: Any) -> None:
            """Sign the table, and record in the ledger that COMMIT comes next: after it, others may see the reports."""
            nonlocal committing
            marking.write(cursor, token, appended=sink.append and sink.there)
            bill.drawn(token, once=True)
            committing = True

        try:
            drawing.into_table(sink, self.order, sign)
        except BaseException:
            bill.give_back(token, unseen=committing)
            raise
        bill.publish(token)
        return Run(drawing.rows, 1, 0, token, self.charge is None and uncharged())


@withheld
@stops_with_connection
def perturb_copy(
    con: DuckDBPyConnection,
    source: Any,
    destination: str | os.PathLike[str],
    columns: Columns | None = None,
    *,
    policy: str | None = None,
    keep: Iterable[str] = (),
    partition_by: Iterable[str] = (),
    replace: bool = False,
    resume: bool = False,
    order: Order = "random",
    charge: Charged = None,
    permanent: bool = False,
    key: Key | str | Path | None = None,
    user: str | None = None,
    progress: Progress | None = None,
) -> Run:
    """Perturb columns of a table, of files or of a frame into a file or a folder of files.

    Args:
        con: finds tables, reads and writes files; the functions of ldpsql need not be attached.
        source: the name of a table or view; a Parquet, CSV, JSON or Arrow file, a pattern with ``*``, or a folder of Parquet
            files, by its path or its URL, such as ``s3://bucket/people.parquet``; an Arrow or Polars frame or stream; the
            address of a table of another database, such as ``postgresql://host/shop#people``.
        destination: ``*.parquet``, ``*.csv``, ``*.csv.gz``, ``*.json`` or ``*.arrow`` for one file, by its path or its URL; a
            path without suffix for a folder of Parquet files, which is drawn and resumed by input file, or by row groups of it.
        columns: the mechanism of each column, or its name (see `attach`); its reports replace the column under the same name.
            The mechanism of a row, such as ``row(city=krr(...), age=...)``, stands for those of its columns.
        policy: the name of a policy in ``ldpsql.toml``, ``[tables.NAME]``, instead of ``columns`` and ``keep``.
        keep: columns whose values pass through. All others are left out.
        partition_by: columns, perturbed or kept, that become folders ``column=value/`` (Hive's layout).
        replace: replace what is at the destination; a ledger charges for the reports again.
        resume: continue a run that was killed: complete parts are not drawn again, and nothing is charged twice.
        order: 'random' shuffles all rows with cryptographic randomness, so that the position of a report reveals nothing
            about its value. 'keep' leaves them in the order of the source: choose it only if neither that order nor the number
            of rows in each file reveals anything about the perturbed values.
        charge: the ledger that is charged before the first draw; or the name of the people, for the ledger of the connection or
            of ``ldpsql.toml``. Without a charge, ``Run.uncharged`` and a warning say that the ledger of ``ldpsql.toml`` is not
            charged.
        permanent: draw the reports of `perturb_once`: a person with the same value always gives the same report, and pays once.
        key: the key of permanent reports or its file; by default that of a connection with a ledger, else of ``ldpsql.toml``.
        user: the column of user ids of permanent reports; by default that of the charge.
        progress: called after every batch with the rows done and the rows in all, None if that number is unknown.

    Raises:
        DestinationExists, DestinationRefused: if the reports cannot go there.
        UnfinishedRun: if an earlier run to this destination is unfinished, and neither to be resumed nor replaced.
        SourceRefused: if the source does not exist or cannot be read.
        UnknownName: if the source lacks a column.
        PrivacyError: if a value cannot be perturbed, or a budget would be exceeded. Then nothing is published.
        InvalidParameter: if the arguments do not fit together, or one stands in the place of another.

    """
    target = Place.of(destination_of(destination)).absolute()
    form = Form.of(target.path, names_of(partition_by, "partition_by"))
    how: dict[str, Any] = {"permanent": permanent, "key": key, "user": user, "split": form.folder}
    plan = Plan.of(con, source, columns, policy=policy, keep=keep, order=order, charge=charge, **how)
    return plan.into_files(target, form, replace=replace, resume=resume, progress=progress)


@withheld
@stops_with_connection
def perturb_table(
    con: DuckDBPyConnection,
    source: Any,
    into: str,
    columns: Columns | None = None,
    *,
    policy: str | None = None,
    keep: Iterable[str] = (),
    replace: bool = False,
    append: bool = False,
    resume: bool = False,
    order: Order = "random",
    charge: Charged = None,
    permanent: bool = False,
    key: Key | str | Path | None = None,
    user: str | None = None,
    progress: Progress | None = None,
) -> Run:
    """Perturb columns of a table, of files or of a frame into a table, in one statement that writes all rows or none.

    Args:
        con: the database; the functions of ldpsql need not be attached. A cursor writes the table, in a transaction of its own.
        source: as for `perturb_copy`.
        into: the name of the table, ``name`` or ``schema.name``; without a schema, the connection's current one. Or the address
            of a table of another database, which others see whole or not at all.
        columns: the mechanism of each column, or its name (see `attach`); its reports replace the column under the same name.
            The mechanism of a row, such as ``row(city=krr(...), age=...)``, stands for those of its columns.
        policy: the name of a policy in ``ldpsql.toml``, ``[tables.NAME]``, instead of ``columns`` and ``keep``.
        keep: columns whose values pass through. All others are left out.
        replace: replace a table of that name; a ledger charges for the reports again.
        append: add the reports to a table of that name; name the part that is added, such as a day, in the `Charge`.
        resume: do not charge again for a run that was killed; if its reports are in a table, they are not drawn again.
        order: as for `perturb_copy`.
        charge: the ledger that is charged before the first draw; or the name of the people, for the ledger of the connection or
            of ``ldpsql.toml``. Without a charge, ``Run.uncharged`` and a warning say that the ledger of ``ldpsql.toml`` is not
            charged.
        permanent: as for `perturb_copy`; a run that was killed can be repeated with ``replace``, at no cost.
        key: as for `perturb_copy`.
        user: as for `perturb_copy`.
        progress: as for `perturb_copy`.

    Raises:
        DestinationExists, DestinationRefused: if the reports cannot go there.
        OtherMechanism: if they would be appended to reports of another mechanism.
        SourceRefused: if the source does not exist or cannot be read.
        UnknownName: if the source lacks a column.
        PrivacyError: if a value cannot be perturbed, or a budget would be exceeded. Then nothing is published.
        InvalidParameter: if the arguments do not fit together, or one stands in the place of another.

    """
    place = destination_of(into)
    if replace and append:
        raise InvalidParameter("a table is either replaced or appended to", "choose one")
    sink: TableSink | DatabaseSink
    if is_address(place):
        sink = DatabaseSink(place, replace=replace, append=append)
    else:
        sink = TableSink(con, place, replace=replace, append=append)
    how: dict[str, Any] = {"permanent": permanent, "key": key, "user": user}
    if sink.there and not (replace or append or resume):
        raise already_exists(place.partition("#")[2] if is_address(place) else place)
    plan = Plan.of(con, source, columns, policy=policy, keep=keep, order=order, charge=charge, **how)
    return plan.into_table(sink, resume=resume, progress=progress)


@withheld
def perturb_batches(
    batches: Any,
    columns: Columns | None = None,
    *,
    policy: str | None = None,
    keep: Iterable[str] = (),
    charge: Charged = None,
) -> pa.RecordBatchReader:
    """Return a stream of record batches with some columns perturbed; each batch is drawn when it is read.

    Rows stay in the order of the stream. If that order depends on the values, shuffle the rows first, or use `perturb_copy`.

    Args:
        batches: anything that speaks Arrow's stream interface: a RecordBatchReader, an Arrow table, a Polars frame; or a pandas
            frame, whose NaN is NULL.
        columns: the mechanism of each column, or one of a row, such as ``row(city=krr(...), age=...)``, which is the same; the
            reports replace each column under its name.
        policy: the name of a policy in ``ldpsql.toml``, ``[tables.NAME]``, instead of ``columns`` and ``keep``.
        keep: columns whose values pass through. All others are left out. Dictionaries and views become plain columns, so that
            they hold only the values of their rows.
        charge: the ledger that is charged before the first draw, or the name of the people, for the ledger of ``ldpsql.toml``.
            If it charges by user and the rows come as a stream, each batch is charged before it is drawn. The metadata of the
            schema record the release under ``ldpsql.release``, or that the ledger of ``ldpsql.toml`` was not charged.

    Raises:
        UnknownName, SourceRefused: if a column is missing, or occurs twice.
        BudgetExceeded: if somebody's budget would be exceeded; for a stream that is charged by user while reading.
        MissingValue, OutsideDomain, WrongType: while reading, if a value cannot be perturbed.

    Warns:
        UnchargedReports: once, if ``ldpsql.toml`` names a ledger and there is no charge.

    """
    chosen = chosen_columns(columns, keep, policy)
    return _in_memory(batches, chosen, chosen.charge(charge))


def _in_memory(frame: Any, chosen: Chosen, charge: Charge | None, permanent: Permanent | None = None) -> pa.RecordBatchReader:
    """Return the reports of a frame or a stream, which are drawn as they are read; permanent ones are charged before."""
    projection = Projection.of(chosen.mechanisms, chosen.keep, permanent)
    chosen.check(projection, charge)
    charging = Charging(charge, projection)
    reader = stream(frame, [*projection.columns, *charging.users])
    schema = projection.schema(reader.schema)
    projection.check_types(reader.schema)
    check_columns(charging.users, reader.schema.names)
    if charge is not None and (permanent is not None or is_held(frame)):
        rows = pa.Table.from_batches(batches_of(reader), reader.schema).to_batches(BATCH_ROWS)
        charging.whole(rows)
        reader = pa.RecordBatchReader.from_batches(reader.schema, rows)
    elif not charging.users:
        charging.whole()
    schema = schema.with_metadata(schema.metadata | charging.metadata(uncharged=charge is None and uncharged()))
    return pa.RecordBatchReader.from_batches(schema, _drawn(reader, projection, schema, charging))


@withheld_stream
def _drawn(
    reader: pa.RecordBatchReader, projection: Projection, schema: pa.Schema, charging: Charging
) -> Iterator[pa.RecordBatch]:
    for batch in batches_of(reader):
        if charging.by_batch:
            projection.check(batch)
        with charging.drawing(batch):
            reports = projection.perturb(batch, schema)
        yield reports
    charging.end()


@withheld
def perturb_once(
    frame: Any,
    columns: Columns,
    *,
    key: Key | str | Path,
    user: str,
    keep: Iterable[str] = (),
    charge: Charged = None,
) -> pa.Table:
    """Return the permanent report of each value: those of ``ldp.perturb_once`` in SQL with the name of the column.

    Rows stay in their order. A ledger charges each person once for each value of a column, whenever it is first reported.

    Args:
        frame: an Arrow table or stream, or a Polars or pandas frame.
        columns: the mechanism of each column; its reports replace the column under its name.
        key: the key of the reports, or the path of its file.
        user: the column of user ids. It is left out of the result unless ``keep`` names it.
        keep: columns whose values pass through.
        charge: the ledger that is charged, by user, before anything is drawn; or the name of the people, for the ledger of
            ``ldpsql.toml``.

    Raises:
        UnknownName, SourceRefused: if a column is missing, or occurs twice, or the stream fails.
        MissingValue, OutsideDomain, WrongType: if a value cannot be perturbed.
        InvalidParameter: if the charge is by other people than those of ``user``, or for a part.
        BudgetExceeded: if somebody's budget would be exceeded. Then nothing is charged or drawn.

    Warns:
        UnchargedReports: once, if ``ldpsql.toml`` names a ledger and there is no charge.

    """
    chosen = chosen_columns(columns, keep, None)
    charged = chosen.charge(charge)
    return _in_memory(frame, chosen, charged, permanent_of(opened(key), user, charged)).read_all()


@overload
def perturb(column: pl.Series, mechanism: Mechanism | str, *, charge: Charged = None) -> pl.Series: ...


@overload
def perturb(column: Column, mechanism: Mechanism | str, *, charge: Charged = None) -> Any: ...


@withheld
def perturb(column: Column, mechanism: Mechanism | str, *, charge: Charged = None) -> Any:
    """Draw one report for each value of a column.

    Args:
        column: a list, an Arrow or NumPy array, a Polars or pandas series. NaN of pandas and NumPy is NULL.
        mechanism: the mechanism that draws the reports.
        charge: the ledger that is charged before they are drawn, each row as a person; or the name of the people, for the
            ledger of ``ldpsql.toml``. If the ledger charges by user, pass a frame to `perturb_batches`.

    Returns:
        A Polars series for a Polars series, a pandas series with the same index for a pandas series, else an Arrow array.

    Raises:
        MissingValue, OutsideDomain, WrongType: if a value cannot be perturbed; then no value is perturbed.
        BudgetExceeded: if the budget would be exceeded; then no value is perturbed.

    Warns:
        UnchargedReports: once, if ``ldpsql.toml`` names a ledger and there is no charge.

    """
    batch, projection, charging = column_run(column, mechanism, charge)
    charging.whole([batch])
    reports = projection.perturb(batch, projection.schema(batch.schema)).column(0)
    charging.end()
    if isinstance(column, pl.Series):
        return pl.Series(column.name, reports)
    return like_series(reports, column) if is_pandas_series(column) else reports


def column_run(
    column: Column, mechanism: Mechanism | str, charge: Charged, *others: Mechanism
) -> tuple[pa.RecordBatch, Projection, Charging]:
    """Return a column as a batch, its projection, and the charge of its rows, each a person; nothing is charged or drawn.

    Args:
        column: the column.
        mechanism: what every row is charged for.
        charge: the ledger to charge.
        *others: mechanisms that draw some of the reports instead, at no higher cost.

    Raises:
        WrongType: if the mechanism does not take values of this type.
        InvalidParameter: if the ledger charges by user.
        OutsidePolicy: if a policy does not allow one of the mechanisms.

    """
    charged, own = charge_of(charge), getattr(column, "name", None)
    if charged is not None and charged.user is not None:
        hint = "pass a frame that has them: ldpsql.perturb_batches, or frame.ldp.perturb of Polars"
        raise InvalidParameter("the ledger charges by user, and a single column has no user ids", hint)
    values = column_of(column)  # before the mechanism is read: with a frame come those of its columns
    name = own if isinstance(own, str) else ""
    projection, *further = (Projection.of({name: one}, ()) for one in (mechanism, *others))
    for one in (projection, *further):
        Chosen(one.uncertified, ()).check(one, charged)
    batch = pa.record_batch([values], projection.columns)
    projection.check_types(batch.schema)
    return batch, projection, Charging(charged, projection)
