"""The ledger and the key that the settings name, and the guard of a connection: it lets draw only what was charged.

A SQL function does not know the statement it runs in, so it cannot charge by itself. `release` charges first, then lets each
declared mechanism draw as many reports as there are rows; everything else is refused.

The mark of a guarded DuckDB instance is a function of the system catalog, which SQL can neither drop nor replace. Any user can
replace the macro `_guard`, or detach its catalog; attaching ldpsql again then finds the mark.
"""

from __future__ import annotations

import json
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path
from threading import Lock, local
from typing import Annotated, TypeAlias

import numpy as np
import pyarrow as pa
from duckdb import CatalogException, DuckDBPyConnection
from numpy.typing import NDArray

from ldpsql import settings
from ldpsql.channels import RepeatedHash
from ldpsql.engine.arguments import Takes, structs_with
from ldpsql.engine.connections import CONNECTIONS, guard_number
from ldpsql.engine.functions import GUARD_MARK
from ldpsql.engine.identity import Identity, identity_of_statement, parts
from ldpsql.errors import NOT_PERTURBED, InvalidParameter, LedgerMissing, NotReleased, UnchargedReports
from ldpsql.ledger import Ledger
from ldpsql.ledger.people import all_among
from ldpsql.ledger.permanent import Key
from ldpsql.ledger.policy import Policy
from ldpsql.mechanisms.base import CertifiedMechanism, Mechanism, certify
from ldpsql.registry.handles import MECHANISMS, SOURCES, Handles
from ldpsql.registry.tables import check_policies


def configured_policy() -> Policy | None:
    """Return the policy in ``[ledger]`` of ``ldpsql.toml``, None if it has none.

    Raises:
        UsageError: if it cannot be read.

    """
    options = {name: value for name, value in settings.load().ledger.items() if name not in ("path", "key")}
    return Policy(**options) if options else None


def configured_path(chosen: Path | None = None) -> Path | None:
    """Return the path of the ledger: the chosen one, or that of LDPSQL_LEDGER, or that of ``ldpsql.toml``; None without any."""
    path = chosen or os.environ.get("LDPSQL_LEDGER") or settings.load().ledger.get("path")
    return Path(path) if path else None


def path_and_policy(chosen: Path | None = None) -> tuple[Path | None, Policy | None]:
    """Return the path of the ledger, and its policy in the settings.

    Raises:
        LedgerMissing: if the settings hold a policy and no ledger is named: nothing would be charged.

    """
    path, policy = configured_path(chosen), configured_policy()
    if path is None and policy is not None:
        raise LedgerMissing("the settings hold a policy, and no ledger is named", "write path in [ledger] of ldpsql.toml")
    return path, policy


def configured_ledger(chosen: Path | None = None) -> Ledger | None:
    """Open the ledger, or begin it if the settings hold a policy for it; return None if no ledger is named.

    Raises:
        LedgerError: if it cannot be used, has another policy than the settings, or they hold a policy without a ledger.

    """
    path, policy = path_and_policy(chosen)
    return None if path is None else Ledger.open(path, policy)


def needed_ledger(chosen: Path | None = None) -> Ledger:
    """Open an existing ledger to read it, whatever its policy; a mistyped name must not look like an empty ledger."""
    path = configured_path(chosen)
    if path is None:
        raise LedgerMissing("no ledger is named", "pass --ledger, set LDPSQL_LEDGER, or write path in [ledger] of ldpsql.toml")
    if not path.exists():
        raise LedgerMissing("there is no ledger of this name", "the first release begins it; is the name right?")
    return Ledger.open(path)


def configured_key() -> Key | None:
    """Read the key of permanent reports that LDPSQL_KEY or ``ldpsql.toml`` names; return None if neither does.

    Raises:
        KeyUnusable: if it cannot be used.

    """
    path = os.environ.get("LDPSQL_KEY") or settings.load().ledger.get("key")
    return Key.read(path) if path else None


_HINT = "pass charge='people', the name of the people; on a connection: ldpsql.attach(con, ledger=...), then ldpsql.release"


def uncharged() -> bool:
    """Return whether the settings name a ledger, which the caller does not charge; warn, once in a process, if so."""
    named = configured_path() is not None
    if named:
        warn_once()
    return named


@lru_cache(maxsize=1)
def first_draw() -> None:
    """Warn as `uncharged` does, at the first draw of SQL without a ledger: the settings are read once in a process."""
    uncharged()


@lru_cache(maxsize=1)
def warn_once() -> None:
    """Warn that a ledger is not charged, once in a process."""
    warnings.warn(
        f"the settings name a ledger, and these reports are drawn without charging it: {_HINT}", UnchargedReports, stacklevel=3
    )


_NUMBERS = count()  # of marked instances
_INSTANCES: dict[int, dict[str, int]] = {}  # of each: the latest guard of each catalog, by its name in lowercase
LEDGERED: set[int] = set()  # the numbers of the catalogs that have a ledger, which an older transaction does not see
_HELD: list[Callable[[], int]] = []  # the functions that mark them: DuckDB does not keep them alive


def mark(cursor: DuckDBPyConnection, catalog: str, number: int) -> None:
    """Mark an instance: its catalog of this name has the guard of this number."""
    instance = _instance(cursor)
    if instance is None:
        instance = next(_NUMBERS)
        _INSTANCES[instance] = {}
        _HELD.append(lambda: instance)
        cursor.create_function(GUARD_MARK, _HELD[-1], [], "BIGINT")
    _INSTANCES[instance][catalog.casefold()] = number


def marked(cursor: DuckDBPyConnection) -> dict[str, int]:
    """Return the number of the latest guard of each marked catalog, by the catalog's name in lowercase."""
    instance = _instance(cursor)
    return {} if instance is None else _INSTANCES[instance]


def _instance(cursor: DuckDBPyConnection) -> int | None:
    if not _INSTANCES:
        return None
    try:
        ((instance,),) = cursor.execute(f"SELECT system.main.{GUARD_MARK}()").fetchall()
    except CatalogException:
        return None
    return int(instance)


ChargedReports: TypeAlias = dict[tuple[Mechanism, str], NDArray[np.bytes_]]  # fingerprints by mechanism and name of the column

GIVE_LEDGER = "in Python: ldpsql.attach(con, ledger='budget.ledger'); for ldpsql sql: path in [ledger] of ldpsql.toml"


@dataclass(eq=False)
class Guard:
    """The ledger of a catalog, the key of its permanent reports, and the draws that the open release has left."""

    ledger: Ledger | None
    key: Key | None
    left: Counter[Mechanism] = field(default_factory=Counter)
    columns: dict[Mechanism, str] = field(default_factory=dict)  # the columns that a mechanism draws, for messages
    drawn: int = 0  # calls of the open release that drew, or may have
    permanent: ChargedReports = field(default_factory=dict)  # what the open release has charged, in ascending order
    occupied: Lock = field(default_factory=Lock)
    counting: Lock = field(default_factory=Lock)
    process: int = 0
    opened: Identity | None = None  # whose rows the open release is charged for, and its destination

    @contextmanager
    def allowing(self, draws: Counter[Mechanism], whose: Identity) -> Iterator[None]:
        """Allow these draws of these rows within a ``with`` block."""
        if not self.occupied.acquire(blocking=False):
            raise occupied()
        try:
            self.left, self.process, self.drawn, self.opened = draws, os.getpid(), 0, whose
            yield
        finally:
            self.withdraw()
            self.opened = None
            self.occupied.release()

    @contextmanager
    def allowing_permanent(self, charged: ChargedReports, whose: Identity) -> Iterator[None]:
        """Allow these permanent reports, as often as they are drawn, within a ``with`` block."""
        with self.allowing(Counter(), whose):
            self.permanent = charged
            yield

    def name_columns(self, mechanisms: Mapping[str, Mechanism]) -> None:
        """Name the columns that mechanisms draw until `withdraw`, for messages."""
        with self.counting:
            for name, mechanism in mechanisms.items():
                named = self.columns.get(mechanism, name)
                self.columns[mechanism] = named if name in named.split("' or '") else f"{named}' or '{name}"

    def grant(self, draws: Counter[Mechanism]) -> None:
        """Allow these draws, too, until `withdraw`: for statements that another program runs, several at a time."""
        with self.counting:
            self.process = os.getpid()
            self.left.update(draws)

    def grant_permanent(self, charged: ChargedReports) -> None:
        """Allow these permanent reports, too, until `withdraw`."""
        with self.counting:
            self.process = os.getpid()
            both = {key: np.union1d(self.permanent[key], new) for key, new in charged.items() if key in self.permanent}
            self.permanent = self.permanent | charged | both

    def withdraw(self) -> None:
        """Allow no more draws."""
        with self.counting:
            self.left, self.permanent, self.columns = Counter(), {}, {}

    def take(self, mechanism: Mechanism, rows: int) -> None:
        """Subtract draws from those that are left.

        Raises:
            NotReleased: if fewer are left, or this is a forked copy of the process that was charged.

        """
        with self.counting:
            if self.left[mechanism] < rows or self.process != os.getpid():
                raise NotReleased(
                    f"no open release has so many reports of {mechanism.name} left",
                    "draw within: with ldpsql.release(con, ...), each row once (a failed statement has drawn, too); or run "
                    "ldpsql perturb --dataset",
                )
            self.left[mechanism] -= rows
            self.drawn += 1

    def refused(self) -> None:
        """Record that the values of the last call could not be perturbed, so that it drew nothing."""
        with self.counting:
            self.drawn -= 1

    def check_permanent(self, certified: CertifiedMechanism) -> None:
        """Check that a release pays for permanent reports of a mechanism: not for those that share a response that is kept.

        Several of these reveal more than as many reports of which each has a response of its own, which is what a release pays.
        """
        if self.ledger is not None and isinstance(certified.channel, RepeatedHash):
            raise NotReleased(
                f"a release in SQL cannot charge permanent reports of {certified.mechanism.name}, which share a response",
                "draw within: with ldpsql.release(..., permanent=True); or in Python: ldpsql.perturb_once(frame, columns, ...)",
            )


def occupied() -> NotReleased:
    """Return the error for a release within another."""
    return NotReleased("another release is open on this connection", "close it first: one after the other")


GUARDS: Handles[Guard] = Handles()
_DRAWS: Handles[tuple[Mechanism, Guard]] = Handles()


def guard_at(number: int | None) -> Guard | None:
    """Return the guard that the macro ``_guard`` names; None for NULL or a number below zero, that of a catalog without one."""
    return None if number is None or number < 0 else GUARDS.thing(number)


@dataclass(frozen=True)
class Statement:
    """A statement that draws: its SQL, and what its connection says.

    Args:
        sql: the statement.
        search_path: where the connection looks names up.
        catalog: the number of the catalog.
        guard: the number of the guard of the catalog.
        temporary: the names of the tables and views that only this connection sees, in lowercase.

    """

    sql: str
    search_path: str
    catalog: int
    guard: int | None
    temporary: frozenset[str]

    def check(self, handle: int, drawn: str) -> None:
        """Check that the policies of the tables that it reads allow what it draws, and that the open release is for them.

        Args:
            handle: with which it draws.
            drawn: what: ``reports``, ``permanent`` ones, those of ``levels``, whose handle is that of a map, or in JSON the
                ``column`` that is drawn and the columns that the statement is to ``keep``.

        Raises:
            OutsidePolicy: if a policy does not.
            NotReleased: if it reads other rows than those of the open release, or nobody can see which.

        """
        guard = guard_at(self.guard)
        looked_up = guard is not None and guard.opened is not None
        if getattr(_PLANNING, "now", False) or not (looked_up or settings.load().tables):
            return
        _PLANNING.now = True  # to plan the statement again, DuckDB may call this function again
        try:
            with CONNECTIONS.cursor_at(self.catalog, self.search_path) as cursor:
                whose = identity_of_statement(cursor, self.sql, unless_by_value=True)
                rows = json.loads(drawn) if drawn.startswith("{") else {}
                for mechanism in _drawing(handle, drawn):
                    columns, keep = {rows.get("column", ""): mechanism}, rows.get("keep", [])
                    check_policies(whose, columns, keep=keep, permanent=drawn == "permanent", con=cursor)
        finally:
            _PLANNING.now = False
        opened = None if guard is None else guard.opened
        if opened is None or not opened.base:
            return
        if whose is None or self.temporary & {parts(name)[-1] for name in whose.names}:  # they may hide those that were planned
            raise NotReleased(
                "nobody can see which tables and files this statement reads",
                "write it with their names: no EXECUTE, no parameter or variable for a name, no temporary or uncommitted table",
            )
        if not whose.within(opened):
            raise NotReleased(
                "a statement draws from another table or file than the dataset of the open release",
                "draw from that dataset; to join others, make a view of all of them, and release the view",
            )


def _drawing(handle: int, drawn: str) -> list[Mechanism]:
    """Return the mechanisms that draw with a handle."""
    if drawn == "levels":
        levels = SOURCES.thing(handle)
        return [one for one in getattr(levels, "mechanisms", (levels,)) if isinstance(one, Mechanism)]
    return [MECHANISMS.thing(handle) if handle >= 0 else _DRAWS.thing(-1 - handle)[0]]


_PLANNING = local()
_PARTS = ("sql", "search_path", "catalog", "guard", "temporary")
Statements: TypeAlias = Annotated[pa.ChunkedArray, Takes("a statement", structs_with(*_PARTS))]


def statement_of(described: pa.Scalar) -> Statement:
    """Return the statement that a STRUCT of the macro ``_allowed`` describes."""
    sql, path, catalog, guard, names = described.as_py().values() if described.is_valid else (None,) * 5
    if not (isinstance(sql, str) and isinstance(path, str) and isinstance(catalog, int) and isinstance(guard, int | None)):
        raise InvalidParameter("this is not a statement that draws", "do not call functions whose name starts with __ldp")
    return Statement(sql, path, catalog, guard, frozenset(map(str.casefold, names or ())))


def draws_handles(mechanisms: NDArray[np.int64], guards: pa.Array) -> NDArray[np.int64]:
    """Return the handles with which mechanisms draw: their own, or some below zero if a ledger must allow the draws.

    Args:
        mechanisms: the handles of the mechanisms.
        guards: the number of the guard of a catalog, as often as there are rows; NULL, or below zero, if there is none.

    Raises:
        InvalidParameter: if there are several guards.
        NotReleased: if the catalog has had a ledger only since the transaction began.

    """
    number = guards[0].as_py() if len(guards) else None
    if not guards.equals(pa.repeat(pa.scalar(number, guards.type), len(guards))):  # much faster than distinct guards
        raise InvalidParameter("a catalog has one guard", "do not call functions whose name starts with __ldp")
    if number is not None and -number in LEDGERED:
        raise NotReleased(
            "this transaction began before the ledger was attached", "COMMIT or ROLLBACK it, and draw in a new one"
        )
    guard = guard_at(number)
    if guard is None or guard.ledger is None:
        first_draw()
        return mechanisms
    distinct, place = np.unique(mechanisms, return_inverse=True)
    drawing = [-1 - _DRAWS.number((MECHANISMS.thing(int(one)), guard)) for one in distinct]
    return np.array(drawing, np.int64)[place]


def drawing(handle: int, rows: int) -> Mechanism:
    """Return the mechanism of a handle, after a check that it may draw so many reports now."""
    if handle >= 0:
        return MECHANISMS.thing(handle)
    mechanism, guard = _DRAWS.thing(-1 - handle)
    guard.take(mechanism, rows)
    return mechanism


@contextmanager
def naming_column(handle: int) -> Iterator[None]:
    """Run a call that draws; the error of a value that cannot be perturbed names the column of the open release."""
    try:
        yield
    except NOT_PERTURBED as error:
        if handle >= 0:
            raise
        mechanism, guard = _DRAWS.thing(-1 - handle)
        guard.refused()
        name = guard.columns.get(mechanism)
        raise error.of_column(name) if name else error from None


def drawing_permanent(
    handle: int, rows: int, name: str, fingerprints: Callable[[CertifiedMechanism], NDArray[np.bytes_]]
) -> CertifiedMechanism:
    """Return the mechanism of a handle, after a check that it may draw the permanent reports of a column now."""
    if handle >= 0:
        return certify(MECHANISMS.thing(handle))
    mechanism, guard = _DRAWS.thing(-1 - handle)
    certified, charged = certify(mechanism), guard.permanent.get((mechanism, name))
    if charged is None:
        guard.take(mechanism, rows)
        guard.check_permanent(certified)
    elif guard.process != os.getpid() or not all_among(charged, fingerprints(certified)):
        raise NotReleased(
            "a permanent report is not among those that the release has charged",
            "draw from the dataset of the release, with its user ids and column_name := the name of the column",
        )
    return certified


def guard_of(con: DuckDBPyConnection, name: str = "ldp") -> Guard | None:
    """Return the guard of the catalog on a connection: that of its mark if it has one, because the macro can be replaced."""
    with con.cursor() as cursor:
        number = marked(cursor).get(name.casefold())
        number = guard_number(cursor, name) if number is None else number
    return None if number is None else GUARDS.thing(number)


def ledgers_of(con: DuckDBPyConnection) -> dict[Path, Ledger]:
    """Return the ledgers of a connection, in all catalogs of ldpsql, by their files."""
    return {guard.ledger.path.resolve(): guard.ledger for guard in _guards(con) if guard.ledger is not None}


def keys_of(con: DuckDBPyConnection) -> list[Key]:
    """Return the keys of permanent reports of a connection, in all catalogs of ldpsql."""
    keys = {guard.key.fingerprint: guard.key for guard in _guards(con) if guard.key is not None}
    return [*keys.values()]


def _guards(con: DuckDBPyConnection) -> list[Guard]:
    with con.cursor() as cursor:
        return [GUARDS.thing(number) for number in marked(cursor).values()]
