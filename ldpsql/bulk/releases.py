"""Releases in SQL: charged, then drawn by the statements of a ``with`` block, then published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import duckdb
import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.bulk.charging import return_charge
from ldpsql.bulk.fingerprints import Marking
from ldpsql.bulk.sinks import written_tokens
from ldpsql.domains.columns import plain
from ldpsql.engine.connections import cursor_of, duckdb_of
from ldpsql.engine.files import query_of
from ldpsql.engine.identity import Identity, destination_of, identity_of, table_of
from ldpsql.errors import InvalidParameter, KeyUnusable, LdpError, NotReleased
from ldpsql.errors.boundary import withheld_block
from ldpsql.ledger import Ledger, Release
from ldpsql.ledger.entries import ReleaseName
from ldpsql.ledger.guard import GIVE_LEDGER, Guard, guard_of, occupied
from ldpsql.ledger.people import id_bytes, others
from ldpsql.ledger.permanent import Reported, charge_columns_once
from ldpsql.ledger.policy import ROW
from ldpsql.mechanisms.base import Mechanism, certify
from ldpsql.names import MECHANISM_HANDLE
from ldpsql.places import Place
from ldpsql.quoting import quoted
from ldpsql.registry.handles import MECHANISMS
from ldpsql.registry.registry import registry
from ldpsql.registry.tables import check_policies
from ldpsql.sql.drawing import DrawingFunctions
from ldpsql.sql.lineage import drawn_columns, mechanisms_of, stored_columns


@withheld_block
def release(
    con: DuckDBPyConnection,
    dataset: str,
    columns: Mapping[str, Mechanism | str],
    destination: str,
    *,
    part: str = "",
    again: bool = False,
    permanent: bool = False,
    name: str = "ldp",
) -> Iterator[Release]:
    """Charge a release to the connection's ledger, run the statements of the block, which draw it, then record it as published.

        with ldpsql.release(con, "people", {"city": "city()"}, "reports") as release:
            if not release.stored:
                con.execute("CREATE TABLE reports AS SELECT ldp.perturb(city, city()) AS city FROM people")

    For each column that names it, a mechanism draws at most as many reports as the dataset has rows.

    Args:
        con: a connection to which `attach(con, ledger=...)` gave a ledger.
        dataset: a table, a view or a file. The tables and files that it reads are charged, however its name is spelled.
        columns: the mechanism of each column: as SQL writes it, such as ``city()``, its text or name, or a `Mechanism`.
        destination: where the reports go; the same release for the same destination is not drawn twice.
        part: a part of the dataset whose people are in no other part, such as a day.
        again: charge and draw again what was published before.
        permanent: the block draws with ``ldp.perturb_once(city, city(), id, 'city')``, and each person is charged once for each
            value of a column of the dataset, whenever it is first reported.
        name: the catalog of ldpsql.

    Raises:
        NotReleased: if the connection has no ledger, another release is open, the same release was published for fewer
            rows, or users came into the dataset while it was open. Then it is not published: drop the reports.
        InvalidParameter: if permanent reports are charged by row, for a part or again.
        KeyUnusable: if permanent reports have no key.
        BudgetExceeded: if it would exceed somebody's budget.
        LedgerError: if the ledger cannot be used.

    """
    con = duckdb_of(con)
    Place.of(dataset).open_to(con)
    guard = guard_of(con, name)
    if guard is None or guard.ledger is None:
        raise NotReleased("this connection has no ledger", GIVE_LEDGER)
    if guard.occupied.locked():  # before it is charged
        raise occupied()
    with _without_variables(con) as cursor:
        mechanisms = {column: _mechanism(cursor, call) for column, call in columns.items()}
        check_policies(identity_of(cursor, dataset), mechanisms, permanent=permanent, con=cursor)
    named = ReleaseName(dataset, part, destination)
    if permanent:
        yield from _permanent(con, guard.ledger, guard, mechanisms, named, again=again)
    else:
        yield from _drawn(con, guard.ledger, guard, mechanisms, named, again=again)


def _drawn(
    con: DuckDBPyConnection,
    ledger: Ledger,
    guard: Guard,
    mechanisms: Mapping[str, Mechanism],
    name: ReleaseName,
    *,
    again: bool,
) -> Iterator[Release]:
    """Charge for one draw of each row and column, let the block draw, and publish unless other users came meanwhile."""
    unit = ledger.policy.privacy_unit
    with _without_variables(con) as cursor:
        rows, users = people(cursor, name.dataset, unit)
        data = identity_of(cursor, name.dataset, rows=unit == ROW)
    counted = rows if users is None else None
    there = () if again else written_tokens(con, name.destination)
    options: dict[str, Any] = {"rows": counted, "part": name.part, "again": again, "drawn": True, "there": there}
    charged = ledger.charge(data, mechanisms, name.destination, users=users, **options)
    if charged.stored:
        yield charged
        return
    allowed: Counter[Mechanism] = Counter()
    for mechanism in mechanisms.values():
        allowed[mechanism] += rows
    marking = Marking(con, name.destination, mechanisms)
    whose = _with_destination(con, data, name.destination)
    with _returned_if_nothing_was_drawn(con, ledger, charged, guard), guard.allowing(allowed, whose):
        guard.name_columns(mechanisms)
        yield charged
    with _without_variables(con) as cursor:
        refuse_others(cursor, name.dataset, unit, users)
    marking.write_if_there(con, charged.token)
    ledger.publish(charged)


@contextmanager
def _returned_if_nothing_was_drawn(con: DuckDBPyConnection, ledger: Ledger, charged: Release, guard: Guard) -> Iterator[None]:
    """Run the block of a release; if it fails before a draw has succeeded, nobody has seen a report: give the charge back."""
    try:
        yield
    except BaseException:
        if guard.drawn <= 0:
            return_charge(partial(written_tokens, con), ledger, charged.token, unseen=True)
        raise


def _permanent(
    con: DuckDBPyConnection,
    ledger: Ledger,
    guard: Guard,
    mechanisms: Mapping[str, Mechanism],
    name: ReleaseName,
    *,
    again: bool,
) -> Iterator[Release]:
    """Charge for the permanent reports of a dataset, let the block draw them, and publish."""
    with _without_variables(con) as cursor:
        table = permanent_columns(
            cursor, name.dataset, mechanisms, ledger.policy.privacy_unit, whole=not name.part and not again
        )
        data = identity_of(cursor, name.dataset)
    reported = permanent_reports(guard, mechanisms, table)
    releases = charge_columns_once(ledger, data, reported, name.destination)
    permitted = {(mechanisms[column], column): one.fingerprints for column, one in reported.items()}
    marking = Marking(con, name.destination, mechanisms)
    with guard.allowing_permanent(permitted, _with_destination(con, data, name.destination)):
        yield releases[-1]
    marking.write_if_there(con)
    for charged in releases:
        ledger.publish(charged)


def permanent_columns(
    cursor: DuckDBPyConnection, dataset: str, columns: Iterable[str], unit: str, *, whole: bool = True
) -> pa.Table:
    """Return the columns of a dataset that have permanent reports, and the user ids at the end."""
    if unit == ROW or not whole:
        raise InvalidParameter(
            "permanent reports are charged once to each person, over all parts of the data",
            "leave out part and again, and use a ledger with privacy_unit = 'id'",
        )
    named = ", ".join(quoted(column) for column in (*columns, unit))
    return cursor.sql(f"SELECT {named} FROM ({query_of(cursor, dataset)})").to_arrow_table()  # noqa: S608  # quoted


def permanent_reports(guard: Guard, mechanisms: Mapping[str, Mechanism], table: pa.Table) -> dict[str, Reported]:
    """Return the different permanent reports of the columns of a table, whose last column has the user ids."""
    if guard.ledger is None or guard.key is None:
        hint = "ldpsql.attach(con, ledger='budget.ledger', key='people.key')"
        raise KeyUnusable("this connection has no key for permanent reports", hint)
    if not table.num_rows or not mechanisms:
        raise InvalidParameter("a release of permanent reports needs a column and a row", "the dataset has none")
    people, key = id_bytes(table.column(table.num_columns - 1)), guard.key
    reported = {}
    for (column, mechanism), held in zip(mechanisms.items(), table.columns[:-1], strict=True):
        certified = certify(mechanism)
        reported[column] = Reported.of(certified, key.fingerprints(certified, plain(held), people, column), people)
    return reported


@contextmanager
def _without_variables(con: DuckDBPyConnection) -> Iterator[DuckDBPyConnection]:
    """Give a cursor like the connection that never takes the name of a dataset for a Python variable of this file."""
    with cursor_of(con) as cursor:
        cursor.execute("SET python_enable_replacements = false")
        yield cursor


def _with_destination(con: DuckDBPyConnection, data: Identity, destination: str) -> Identity:
    """Return what a release may read: its rows, and its destination, unless a table there has rows of no release."""
    with _without_variables(con) as cursor:
        of_no_release = table_of(cursor, destination) and not written_tokens(con, destination)
        raw = of_no_release and people(cursor, destination, ROW)[0]
        return replace(data, base=(*data.base, destination_of(cursor, destination))) if data.base and not raw else data


def _mechanism(cursor: DuckDBPyConnection, call: Mechanism | str) -> Mechanism:
    if isinstance(call, Mechanism):
        return call
    try:
        ((number,),) = cursor.execute(f"SELECT system.main.{MECHANISM_HANDLE}({call})").fetchall()
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException):  # as elsewhere in Python
        return registry().mechanism(call)
    return MECHANISMS.thing(number)


def people(cursor: DuckDBPyConnection, dataset: str, unit: str) -> tuple[int, pa.ChunkedArray | None]:
    """Return the number of rows, and the user ids if they are the unit of privacy."""
    source = f"({query_of(cursor, dataset)})"
    if unit == ROW:
        ((rows,),) = cursor.execute(f"SELECT count(*) FROM {source}").fetchall()  # noqa: S608  # quoted
        return rows, None
    ids = f"SELECT {quoted(unit)} FROM {source}"  # noqa: S608  # quoted
    users = cursor.sql(ids).to_arrow_table().column(0)
    return len(users), users


def refuse_others(cursor: DuckDBPyConnection, dataset: str, unit: str, charged: pa.ChunkedArray | None) -> None:
    """Refuse to publish reports that may be of users who came into a dataset after it was charged.

    Raises:
        NotReleased: if any user came. Users may have left: a statement may delete the rows that it draws from.

    """
    if charged is None:
        return
    try:
        _, users = people(cursor, dataset, unit)
    except duckdb.CatalogException:  # dropped
        return
    if new := others(charged, users):
        raise NotReleased(
            f"the dataset has rows of {new} users now that were not charged for, and they may have been drawn",
            "drop the reports and release again while nobody writes; ldpsql.perturb_table charges and draws one snapshot",
        )


@contextmanager
def recorded_by(con: DuckDBPyConnection, sql: str, drawing: DrawingFunctions) -> Iterator[None]:
    """Within a ``with`` block that runs a statement, record what CREATE TABLE AS or INSERT draws as comments of its columns."""
    stored = stored_columns(sql, drawing) if drawing.of(sql) else None
    marking = None if stored is None else _marking(con, *stored)
    yield
    if marking is not None:
        marking.write_if_there(con, appended=sql.lstrip()[:6].lower() == "insert")


def marking_of_query(con: DuckDBPyConnection, table: str, sql: str, drawing: DrawingFunctions) -> Marking | None:
    """Return what will record the mechanisms of the columns that a query draws into a table; None if it draws none."""
    return _marking(con, table, drawn_columns(sql, drawing))


def _marking(con: DuckDBPyConnection, table: str, columns: dict[str, str]) -> Marking | None:
    if not columns:
        return None
    try:
        with cursor_of(con) as cursor:
            mechanisms = mechanisms_of(cursor, columns)
        return Marking(con, table, mechanisms)
    except (duckdb.Error, LdpError):  # the statement itself says what is wrong, or the call is not a constant
        return None
