"""Charge a ledger for a run, before the first draw."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import duckdb
from duckdb import DuckDBPyConnection

from ldpsql.bulk.columns.projection import Projection
from ldpsql.bulk.meter import Meter
from ldpsql.bulk.reading.parts import Part, Source
from ldpsql.bulk.reported import charge_reports
from ldpsql.bulk.writing.tables import written_tokens
from ldpsql.engine.identity import Identity, identity_of
from ldpsql.engine.interrupting import cursor_of, until_stopped
from ldpsql.errors import DestinationExists, InvalidParameter, LdpError, LedgerMissing, NotReleased, UnfinishedRun
from ldpsql.ledger.configured import configured_ledger
from ldpsql.ledger.guard import ledgers_of
from ldpsql.ledger.policy import ROW
from ldpsql.ledger.uncharged import uncharged
from ldpsql.mechanisms.shuffled import shuffled as central_of

if TYPE_CHECKING:
    from ldpsql.ledger import Ledger, Release
    from ldpsql.mechanisms.base import Mechanism


@dataclass(frozen=True)
class Charge:
    """How a run is charged: the ledger, and the arguments of `Ledger.charge`.

    ``dataset`` names the people: a table or a view of the connection, a file, or a name of your own. ``part`` names a part of
    its rows that is disjoint from all other parts, such as a day. ``user`` is the column of user ids if the ledger charges by
    user. With ``shuffled_delta``, the history of the ledger also has the central epsilon that shuffling gives for this delta;
    what is charged stays the local epsilon.
    """

    ledger: Ledger
    dataset: str
    part: str = ""
    user: str | None = None
    shuffled_delta: float | None = None

    def always(self, columns: Mapping[str, Mechanism], destination: str, users: Any = None, rows: int | None = None) -> Release:
        """Charge for reports that are drawn at every call, even if the same reports were published before."""
        options: dict[str, Any] = {"users": users, "rows": rows, "part": self.part, "again": True, "drawn": True}
        return self.ledger.charge(self.dataset, columns, destination, **options)


Charged: TypeAlias = "Charge | str | None"  # a name is that of the people; see `charge_of`


def charge_of(charge: Charged, con: DuckDBPyConnection | None = None) -> Charge | None:
    """Return the charge that an argument stands for; without one, warn if the settings name a ledger.

    Args:
        charge: a charge; or the name of a dataset, which is charged to the ledger of the connection, else to that of the
            settings, by the column of user ids that is its unit of privacy.
        con: the connection of the run, if it has one.

    Raises:
        InvalidParameter: if it is neither a charge nor a name, or shuffled reports are to be noted without a connection.
        LedgerMissing: if a name is passed, and there is no ledger.
        LedgerError: if the ledger cannot be used.

    """
    if charge is None and not (con is not None and ledgers_of(con)):
        uncharged()
    if not isinstance(charge, Charge | str | None):
        raise InvalidParameter("a charge names the ledger and the people", "charge=Charge(ledger, 'people')")
    if isinstance(charge, Charge) and charge.shuffled_delta is not None and con is None:
        raise InvalidParameter("only perturb_copy and perturb_table shuffle what they charge", "leave out shuffled_delta")
    if not isinstance(charge, str):
        return charge
    own = [] if con is None else [*ledgers_of(con).values()]
    ledger = own[0] if len(own) == 1 else configured_ledger()
    if ledger is None:
        hint = "write path in [ledger] of ldpsql.toml, or pass charge=Charge(ledger, dataset)"
        raise LedgerMissing("there is no ledger to charge", hint)
    unit = ledger.policy.privacy_unit
    return Charge(ledger, charge, user=None if unit == ROW else unit)


def check_ledger(con: DuckDBPyConnection, charge: Charge | None) -> None:
    """Check that a run on a connection with a ledger charges that ledger.

    Raises:
        NotReleased: if it charges another ledger or none.

    """
    files = ledgers_of(con)
    if files and (charge is None or charge.ledger.path.resolve() not in files):
        raise NotReleased(
            "this connection draws only what its own ledger was charged for",
            "pass charge=ldpsql.Charge(ledger, dataset) with that ledger",
        )


def charged(
    con: DuckDBPyConnection,
    charge: Charge | None,
    source: Source,
    projection: Projection,
    destination: str,
    *,
    again: bool,
    resume: bool,
    shuffled: bool,
) -> str:
    """Charge for a run before anything is drawn; return the token of the release, or an empty string without a ledger.

    Permanent reports have a release for each column; spaces separate their tokens.

    Raises:
        DestinationExists: if the ledger records that this release was published before.
        WrongType: if a mechanism does not take the type of its column.

    """
    if charge is None:
        return ""
    central = shuffled_claim(charge, source, projection, shuffled=shuffled)
    if projection.permanent is not None:  # looks up all values before it charges
        return " ".join(release.token for release in _charged_once(con, charge, source, projection, destination))
    _check_types(source, projection)
    _check_values(con, source, projection)
    users = source.users.pop() if source.users else None
    data, columns = _whose(con, charge, source), projection.uncertified
    options: dict[str, Any] = {"users": users, "part": charge.part, "again": again, "resume": resume, "shuffled": central}
    release = charge.ledger.charge(data, columns, destination, **options)
    if release.stored:
        raise DestinationExists(
            "these reports were published there before", "use them; to draw and charge again: --replace, in Python replace=True"
        )
    return release.token


def _check_types(source: Source, projection: Projection) -> None:
    wanted = projection.read(source.names)
    for part in source.parts[:1]:
        read = part.empty or part.read
        projection.check_types(read(wanted, projection.mechanisms.keys(), projection.keep).schema)


def _check_values(con: DuckDBPyConnection, source: Source, projection: Projection) -> None:
    """Check all values before anything is charged, unless the source can be read only once.

    Raises:
        MissingValue, OutsideDomain, WrongType: if one cannot be perturbed.

    """
    meter = Meter(None, None)

    def read(part: Part) -> None:
        deque(until_stopped(con, meter.check(part, projection)), 0)

    for part in () if source.once else source.parts:
        meter.watch(partial(read, part))


def shuffled_claim(charge: Charge, source: Source, projection: Projection, *, shuffled: bool) -> str:
    """Return what the history of the ledger says about shuffled reports; an empty string unless the charge asks for it.

    Raises:
        InvalidParameter: if reports are not shuffled, or a row has more than one report, or nobody knows how many there are.

    """
    if charge.shuffled_delta is None:
        return ""
    alone = len(projection.mechanisms) == 1 and not projection.keep and projection.permanent is None
    rows = len(source.users[0]) if source.users else source.rows  # a snapshot of a table does not count its rows
    if not (shuffled and alone and rows):
        raise InvalidParameter(
            "only the reports of one column in random order have a central epsilon, if their number is known beforehand",
            "order='random', one column, nothing kept, no permanent reports; from a table, a frame or Parquet files",
        )
    if source.users and len(source.users[0].unique()) < rows:
        raise InvalidParameter("some user has more than one report, so shuffling hides less", "leave out shuffled_delta")
    (mechanism,) = projection.uncertified.values()
    central = central_of(mechanism, reports=rows, delta=charge.shuffled_delta)
    return f"({central.epsilon:.6g}, {central.delta:g}) of {rows} reports"


def _charged_once(
    con: DuckDBPyConnection, charge: Charge, source: Source, projection: Projection, destination: str
) -> list[Release]:
    wanted = projection.read(source.names)
    batches = (batch for part in source.parts for batch in part.read(wanted, projection.mechanisms.keys(), projection.keep))
    return charge_reports(charge.ledger, _whose(con, charge, source), projection, batches, destination)


def written_release(con: DuckDBPyConnection, charge: Charge, source: Source, projection: Projection, destination: str) -> str:
    """Return the token of a run that was killed after writing its table and before publishing it, or an empty string.

    Permanent reports are written again at no cost.
    """
    tokens = written_tokens(con)
    if not tokens or projection.permanent is not None:
        return ""
    users = source.users[0] if source.users else None
    data = _whose(con, charge, source)
    release = charge.ledger.unfinished(data, projection.uncertified, destination, users=users, part=charge.part)
    return release.token if release is not None and release.token in tokens else ""


def is_published(charge: Charge | None, token: str, *, permanent: bool) -> bool:
    """Whether the ledger records the run that is resumed as published.

    Permanent reports of no rows have no release; whether the unfinished run had a ledger is a part of its task.

    Raises:
        UnfinishedRun: if that run used a ledger and this one does not, or the reverse.

    """
    if not permanent and bool(token) != (charge is not None):
        raise UnfinishedRun("the unfinished run used another ledger, or none", "resume it as it was begun")
    return charge is not None and token != "" and all(charge.ledger.release_of(one).stored for one in token.split())


def mark_drawn(charge: Charge | None, token: str, *, once: bool = False) -> None:
    """Record in the ledger, if there is one, that others may see the reports from now on; see `Ledger.drawn`."""
    if charge:
        for one in token.split():
            charge.ledger.drawn(one, once=once)


@contextmanager
def returned_if_unseen(con: DuckDBPyConnection, charge: Charge | None, token: str) -> Iterator[Callable[[], None]]:
    """Run the block that draws and writes a table in one transaction; if it fails, give its charge back.

    Yields:
        a function to call just before COMMIT; see `Ledger.drawn`.

    """
    marked = False

    def mark() -> None:
        nonlocal marked
        mark_drawn(charge, token, once=True)
        marked = True

    try:
        yield mark
    except BaseException:
        if charge is not None:
            return_charge(con, charge.ledger, token, unseen=marked)
        raise


def return_charge(con: DuckDBPyConnection, ledger: Ledger, token: str, *, unseen: bool) -> None:
    """Give back the charge of a run that failed, unless its reports are in a table or others may have seen them.

    Args:
        con: the database into which the run wrote; it is not used unless ``unseen``.
        ledger: the ledger that was charged.
        token: the releases of the run.
        unseen: that only this run can have published the reports, in one transaction that has ended.

    """
    for one in token.split():
        with suppress(LdpError, duckdb.Error):  # the ledger or the database cannot be used: the release stays charged
            if unseen and one in written_tokens(con):
                ledger.publish(ledger.release_of(one))
            else:
                ledger.give_back(one, unseen=unseen)


def publish(charge: Charge | None, token: str) -> None:
    """Record in the ledger, if there is one, that the reports are at their destination."""
    if charge:
        for one in token.split():
            charge.ledger.publish(charge.ledger.release_of(one))


def _whose(con: DuckDBPyConnection, charge: Charge, source: Source) -> Identity:
    """Return whose rows a source has, under the name of the charge: that name is charged too, never instead of the source."""
    with cursor_of(con) as cursor:
        named = identity_of(cursor, charge.dataset)
        return source.whose(cursor, charge.ledger.policy.privacy_unit == ROW).called(named)
