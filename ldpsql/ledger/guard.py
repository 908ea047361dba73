"""What stands between a connection that has a ledger and the random bits: only what a release was charged for is drawn.

A SQL function does not know the statement it runs in, so it cannot charge by itself. `release` charges first, then lets each
declared mechanism draw as many reports as there are rows; everything else is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.boundary import withheld_block
from ldpsql.connections import duckdb_of
from ldpsql.errors import NotReleased
from ldpsql.handles import MECHANISMS, Handles
from ldpsql.interrupting import cursor_of
from ldpsql.ledger import Ledger, Release
from ldpsql.ledger.permanent import Key
from ldpsql.mechanism import Mechanism
from ldpsql.sql import quoted, text_literal

GIVE_LEDGER = "in Python ldpsql.attach(con, ledger='budget.ledger'); for ldpsql sql, path below [ledger] in ldpsql.toml"


@dataclass(eq=False)
class Guard:
    """The ledger of a catalog, the key of its permanent reports, and what the open release may still draw."""

    ledger: Ledger | None
    key: Key | None
    left: Counter[Mechanism] = field(default_factory=Counter)
    occupied: Lock = field(default_factory=Lock)
    counting: Lock = field(default_factory=Lock)

    @contextmanager
    def allowing(self, draws: Counter[Mechanism]) -> Iterator[None]:
        """Let these be drawn while the block runs."""
        if not self.occupied.acquire(blocking=False):
            raise NotReleased("another release is open on this connection", "close it first: one after the other")
        try:
            self.left = draws
            yield
        finally:
            self.left = Counter()
            self.occupied.release()

    def grant(self, draws: Counter[Mechanism]) -> None:
        """Let these be drawn too, until `withdraw`: for statements that somebody else runs, several at a time."""
        with self.counting:
            self.left.update(draws)

    def withdraw(self) -> None:
        """Let nothing be drawn any longer."""
        with self.counting:
            self.left = Counter()

    def take(self, mechanism: Mechanism, rows: int) -> None:
        """Take some draws off what is left.

        Raises:
            NotReleased: where so many are not left.

        """
        with self.counting:
            if self.left[mechanism] < rows:
                raise NotReleased(
                    f"no open release has so many reports of {mechanism.name} left",
                    "draw inside of: with ldpsql.release(con, ...), each row once (a failed statement has drawn too); or run "
                    "ldpsql perturb --dataset",
                )
            self.left[mechanism] -= rows


GUARDS: Handles[Guard] = Handles()
_DRAWS: Handles[tuple[Mechanism, Guard]] = Handles()


def draws_handle(mechanism: int, guard: int | None) -> int:
    """Return the handle with which a mechanism draws: its own, or below zero where a ledger is asked first."""
    if guard is None or GUARDS.thing(guard).ledger is None:
        return mechanism
    return -1 - _DRAWS.number((MECHANISMS.thing(mechanism), GUARDS.thing(guard)))


def drawing(handle: int, rows: int) -> Mechanism:
    """Return the mechanism of a handle, if it may draw so many reports now."""
    if handle >= 0:
        return MECHANISMS.thing(handle)
    mechanism, guard = _DRAWS.thing(-1 - handle)
    guard.take(mechanism, rows)
    return mechanism


def guard_of(con: DuckDBPyConnection, name: str = "ldp") -> Guard | None:
    """Return the guard of the catalog on a connection."""
    with con.cursor() as cursor:
        ((number,),) = cursor.execute(f"SELECT {quoted(name)}._guard()").fetchall()
    return None if number is None else GUARDS.thing(number)


def ledger_files(con: DuckDBPyConnection) -> set[Path]:
    """Return the files of the ledgers that a connection has, whatever the names of the catalogs of ldpsql are."""
    with con.cursor() as cursor:
        named = (
            "SELECT DISTINCT database_name FROM duckdb_functions() WHERE function_name = '_guard' AND function_type = 'macro'"
        )
        catalogs = [name for (name,) in cursor.execute(named).fetchall()]
    guards = [guard_of(con, name) for name in catalogs]
    return {guard.ledger.path.resolve() for guard in guards if guard is not None and guard.ledger is not None}


@withheld_block
def release(
    con: DuckDBPyConnection,
    dataset: str,
    columns: Mapping[str, Mechanism | str],
    destination: str,
    *,
    part: str = "",
    again: bool = False,
    name: str = "ldp",
) -> Iterator[Release]:
    """Charge a release to the connection's ledger, let the statements of the block draw it, then write it down as published.

        with ldpsql.release(con, "people", {"city": "city()"}, "reports") as release:
            if not release.stored:
                con.execute("CREATE TABLE reports AS SELECT ldp.perturb(city, city()) AS city FROM people")

    Each mechanism draws at most as many reports as the dataset has rows, for each column that names it.

    Args:
        con: a connection to which `attach(con, ledger=...)` gave a ledger.
        dataset: a table, a view or a file. Its name stands for its people, so keep to one name.
        columns: the mechanism of each column: as SQL writes it, such as ``city()``, or a `Mechanism`.
        destination: where the reports go; the same release for the same destination is not drawn twice.
        part: a part of the dataset with other people than the other parts, such as a day.
        again: charge and draw anew what was published before.
        name: the catalog of ldpsql.

    Raises:
        NotReleased: where the connection has no ledger, or another release is open.
        BudgetExceeded: where it would cost somebody too much.
        LedgerError: where the ledger cannot be used.

    """
    con = duckdb_of(con)
    guard = guard_of(con, name)
    if guard is None or guard.ledger is None:
        raise NotReleased("this connection has no ledger", GIVE_LEDGER)
    with cursor_of(con) as cursor:
        mechanisms = {column: _mechanism(cursor, told) for column, told in columns.items()}
        rows, users = people(cursor, dataset, guard.ledger.policy.privacy_unit)
    charged = guard.ledger.charge(dataset, mechanisms, destination, users=users, part=part, again=again)
    if charged.stored:
        yield charged
        return
    allowed: Counter[Mechanism] = Counter()
    for mechanism in mechanisms.values():
        allowed[mechanism] += rows
    with guard.allowing(allowed):
        yield charged
    guard.ledger.publish(charged)


def _mechanism(cursor: DuckDBPyConnection, told: Mechanism | str) -> Mechanism:
    if isinstance(told, Mechanism):
        return told
    ((number,),) = cursor.execute(f"SELECT system.main.__ldp_mechanism({told})").fetchall()
    return MECHANISMS.thing(number)


def people(cursor: DuckDBPyConnection, dataset: str, unit: str) -> tuple[int, pa.ChunkedArray | None]:
    """Return the number of rows, and the user ids where they are the unit of privacy."""
    source = f"query_table({text_literal(dataset)})"
    if unit == "row":
        ((rows,),) = cursor.execute(f"SELECT count(*) FROM {source}").fetchall()  # noqa: S608  # quoted
        return rows, None
    ids = f"SELECT {quoted(unit)} FROM {source}"  # noqa: S608  # quoted
    users = cursor.sql(ids).to_arrow_table().column(0)
    return len(users), users
