"""The guard of a connection that has a ledger: it lets draw only what a release was charged for.

A SQL function does not know the statement it runs in, so it cannot charge by itself. `release` charges first, then lets each
declared mechanism draw as many reports as there are rows; everything else is refused.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TypeAlias

import numpy as np
from duckdb import DuckDBPyConnection
from numpy.typing import NDArray

from ldpsql.channels import RepeatedHash
from ldpsql.engine.connections import guard_number
from ldpsql.errors import NOT_PERTURBED, NotReleased
from ldpsql.ledger import Ledger
from ldpsql.ledger.digests import all_among
from ldpsql.ledger.marks import marked
from ldpsql.ledger.permanent import Key
from ldpsql.ledger.uncharged import first_draw
from ldpsql.mechanisms.base import CertifiedMechanism, Mechanism, certify
from ldpsql.registry.handles import MECHANISMS, Handles

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

    @contextmanager
    def allowing(self, draws: Counter[Mechanism]) -> Iterator[None]:
        """Allow these draws within a ``with`` block."""
        if not self.occupied.acquire(blocking=False):
            raise occupied()
        try:
            self.left, self.process, self.drawn = draws, os.getpid(), 0
            yield
        finally:
            self.withdraw()
            self.occupied.release()

    @contextmanager
    def allowing_permanent(self, charged: ChargedReports) -> Iterator[None]:
        """Allow these permanent reports, as often as they are drawn, within a ``with`` block."""
        with self.allowing(Counter()):
            self.permanent = charged
            yield

    def name_columns(self, mechanisms: Mapping[str, Mechanism]) -> None:
        """Name the columns that mechanisms draw until `withdraw`, for messages."""
        with self.counting:
            for name, mechanism in mechanisms.items():
                named = self.columns.get(mechanism, name)
                self.columns[mechanism] = named if name in named.split("' or '") else f"{named}' or '{name}"

    def check_charged(self, charged: NDArray[np.bytes_], asked: NDArray[np.bytes_]) -> None:
        """Check that permanent reports are among those that the open release has charged.

        Raises:
            NotReleased: if one is not, or this is a forked copy of the process that was charged.

        """
        if self.process != os.getpid() or not all_among(charged, asked):
            raise NotReleased(
                "a permanent report is not among those that the release has charged",
                "draw from the dataset of the release, with its user ids and column_name := the name of the column",
            )

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

        Raises:
            NotReleased: if there is a ledger, and the mechanism keeps responses.

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


def draws_handle(mechanism: int, guard: int | None) -> int:
    """Return the handle with which a mechanism draws: its own, or one below zero if a ledger must allow the draws."""
    if guard is None or GUARDS.thing(guard).ledger is None:
        first_draw()
        return mechanism
    return -1 - _DRAWS.number((MECHANISMS.thing(mechanism), GUARDS.thing(guard)))


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
    else:
        guard.check_charged(charged, fingerprints(certified))
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
