"""The charge of a run, before the first draw; and of permanent reports, once for each value of a person."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.bulk.columns import Ahead, Permanent, Projection
from ldpsql.bulk.orders import Meter
from ldpsql.bulk.sinks import database_of, written_tokens
from ldpsql.bulk.sources import Part, Source
from ldpsql.bulk.staging import staging_folder
from ldpsql.domains.columns import is_pandas_frame
from ldpsql.engine.connections import cursor_of, until_stopped
from ldpsql.engine.identity import Identity, identity_of, parts
from ldpsql.errors import (
    DestinationExists,
    InvalidParameter,
    KeyUnusable,
    LdpError,
    LedgerMissing,
    NotReleased,
    UnfinishedRun,
    UnknownRelease,
    of_column,
)
from ldpsql.ledger import Ledger, Release
from ldpsql.ledger.guard import configured_key, configured_ledger, keys_of, ledgers_of, uncharged
from ldpsql.ledger.people import DIGEST
from ldpsql.ledger.permanent import Key, Reported, charge_columns_once
from ldpsql.ledger.policy import ROW
from ldpsql.ledger.spending import Unpublished
from ldpsql.mechanisms.audit import shuffled as central_of
from ldpsql.mechanisms.base import CertifiedMechanism, Mechanism


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
    """Check that a run on a connection with a ledger charges that ledger."""
    files = ledgers_of(con)
    if files and (charge is None or charge.ledger.path.resolve() not in files):
        raise NotReleased(
            "this connection draws only what its own ledger was charged for",
            "pass charge=ldpsql.Charge(ledger, dataset) with that ledger",
        )


class Bill:
    """What a run pays before its first draw, and what becomes of it; without a charge, nothing is paid or recorded.

    The token of a run names its releases, with spaces between those of permanent reports, which have one for each column.
    """

    def __init__(
        self,
        con: DuckDBPyConnection,
        charge: Charge | None,
        source: Source,
        projection: Projection,
        destination: str,
        *,
        tokens: Callable[[], set[str]] | None = None,
    ) -> None:
        self._con, self._charge = con, charge
        self._source, self._projection, self._destination = source, projection, destination
        self._tokens = tokens or partial(written_tokens, con)

    def pay(self, *, again: bool, resume: bool, shuffled: bool) -> str:
        """Charge for the run, and return its token, an empty string without a ledger or people.

        All values are checked before, unless the source can be read only once; those of permanent reports are looked up.

        Raises:
            DestinationExists: if the ledger records that this release was published before.
            MissingValue, OutsideDomain, WrongType: if a value cannot be perturbed.

        """
        charge, source, projection = self._charge, self._source, self._projection
        if charge is None:
            return ""
        central = self._shuffled_claim(charge, shuffled=shuffled)
        wanted, encoded = projection.read(source.names), projection.mechanisms.keys()
        if projection.permanent is not None:
            batches = (batch for part in source.parts for batch in part.read(wanted, encoded, projection.keep))
            releases = charge_reports(charge.ledger, self._whose(charge), projection, batches, self._destination)
            return " ".join(release.token for release in releases)
        for part in source.parts[:1]:
            projection.check_types((part.empty or part.read)(wanted, encoded, projection.keep).schema)
        meter = Meter(None, None)
        for part in () if source.once else source.parts:
            meter.watch(partial(self._check_values, meter, part))
        if self._is_of_nobody:
            return ""
        users = source.users.pop() if source.users else None
        options: dict[str, Any] = {"users": users, "part": charge.part, "again": again, "resume": resume, "shuffled": central}
        release = charge.ledger.charge(self._whose(charge), projection.uncertified, self._destination, **options)
        if release.stored:
            raise DestinationExists(
                "these reports were published there before",
                "use them; to draw and charge again: --replace, in Python replace=True",
            )
        return release.token

    def _check_values(self, meter: Meter, part: Part) -> None:
        deque(until_stopped(self._con, meter.check(part, self._projection)), 0)

    def _shuffled_claim(self, charge: Charge, *, shuffled: bool) -> str:
        """Return what the history of the ledger says about shuffled reports; an empty string unless the charge asks for it."""
        if charge.shuffled_delta is None:
            return ""
        source, projection = self._source, self._projection
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

    def _whose(self, charge: Charge) -> Identity:
        """Return whose rows the source has, under the name of the charge, which is charged too, never instead of the source."""
        with cursor_of(self._con) as cursor:
            named = identity_of(cursor, charge.dataset)
            return self._source.whose(cursor, charge.ledger.policy.privacy_unit == ROW).called(named)

    def written(self) -> str:
        """Return the token of a run that was killed after writing its table and before publishing it, or an empty string.

        Permanent reports are written again at no cost.
        """
        charge, tokens, source = self._charge, self._tokens(), self._source
        if charge is None or not tokens or self._projection.permanent is not None or self._is_of_nobody:
            return ""
        options: dict[str, Any] = {"users": source.users[0] if source.users else None, "part": charge.part}
        columns = self._projection.uncertified
        release = charge.ledger.unfinished(self._whose(charge), columns, self._destination, **options)
        return release.token if release is not None and release.token in tokens else ""

    def is_published(self, token: str) -> bool:
        """Return whether the ledger records the run that is resumed as published.

        A run of nobody has no release; whether an unfinished run of permanent reports had a ledger is a part of its task.
        """
        charge = self._charge
        if self._projection.permanent is None and not self._is_of_nobody and bool(token) != (charge is not None):
            raise UnfinishedRun("the unfinished run used another ledger, or none", "resume it as it was begun")
        return charge is not None and token != "" and all(charge.ledger.release_of(one).stored for one in token.split())

    @property
    def _is_of_nobody(self) -> bool:
        """Whether the run charges by user, and has no rows: there is nothing to charge."""
        return bool(self._source.users) and not len(self._source.users[0])

    def drawn(self, token: str, *, once: bool = False) -> None:
        """Record that others may see the reports from now on; see `Ledger.drawn`."""
        if self._charge is not None:
            for one in token.split():
                self._charge.ledger.drawn(one, once=once)

    def give_back(self, token: str, *, unseen: bool) -> None:
        """Give back what a run that failed paid; see `return_charge`."""
        if self._charge is not None:
            return_charge(self._tokens, self._charge.ledger, token, unseen=unseen)

    def publish(self, token: str) -> None:
        """Record that the reports are at their destination."""
        if self._charge is not None:
            for one in token.split():
                self._charge.ledger.publish(self._charge.ledger.release_of(one))


def return_charge(tokens: Callable[[], set[str]], ledger: Ledger, token: str, *, unseen: bool) -> None:
    """Give back the charge of a run that failed, unless its reports are in a table or others may have seen them.

    Args:
        tokens: returns those in the database into which the run wrote; it is not called unless ``unseen``.
        ledger: the ledger that was charged.
        token: the releases of the run.
        unseen: that only this run can have published the reports, in one transaction that has ended.

    """
    for one in token.split():
        with suppress(LdpError, duckdb.Error):  # the ledger or the database cannot be used: the release stays charged
            if unseen and one in tokens():
                ledger.publish(ledger.release_of(one))
            else:
                ledger.give_back(one, unseen=unseen)


def is_permanent(*, permanent: bool, key: object, user: object) -> bool:
    """Return whether the arguments of a run ask for permanent reports."""
    if not permanent and not (key is None and user is None):
        raise InvalidParameter("a key and a column of user ids are for permanent reports", "permanent=True")
    return permanent


def permanent_of(
    key: Key | str | Path | None,
    user: str | None,
    charge: Charge | None,
    con: DuckDBPyConnection | None = None,
) -> Permanent:
    """Return the permanent reports of a run from its arguments.

    Args:
        key: the key or the path of its file; by default that of a connection with a ledger, else that of the settings.
        user: the column of user ids; by default that of the charge.
        charge: the charge of the run.
        con: the connection of the run, if it has one.

    Raises:
        KeyUnusable: if there is no key, or it cannot be used.
        InvalidParameter: if there is no column of user ids, or the charge is by other people, or for a part of the data.

    """
    if key is None:
        keys = [] if con is None else keys_of(con)
        key = keys[0] if len(keys) == 1 else configured_key()
    if key is None:
        hint = "pass key='people.key', or write key in [ledger] of ldpsql.toml"
        raise KeyUnusable("there is no key for permanent reports", hint)
    unit = None if charge is None else charge.user or charge.ledger.policy.privacy_unit
    user = unit if user is None else user
    if not isinstance(user, str) or user == ROW:
        raise InvalidParameter("permanent reports need the column of user ids", "user='id'")
    if charge is not None and charge.user not in (None, user):
        raise InvalidParameter("permanent reports are charged to the people who give them", "name the same column of user ids")
    if charge is not None and charge.part:
        raise InvalidParameter("permanent reports are charged once, over all parts of the data", "leave out part")
    return Permanent(opened(key), user, ahead=Ahead())


def opened(key: object) -> Key:
    """Return a key, read if it is the path of a file.

    Raises:
        KeyUnusable: if the file cannot be used.
        InvalidParameter: if it is neither a key nor a path.

    """
    chosen = Key.read(key) if isinstance(key, str | Path) else key
    if not isinstance(chosen, Key):
        raise InvalidParameter("a key must be a path or an opened key", "Key.read(path)")
    return chosen


def charge_reports(
    ledger: Ledger, dataset: str | Identity, projection: Projection, batches: Iterable[pa.RecordBatch], destination: str
) -> list[Release]:
    """Charge for the permanent reports of batches, and let the projection draw no others.

    Returns:
        the release of each column; none if there are no rows.

    Raises:
        BudgetExceeded: if somebody's budget would be exceeded; then nothing is charged.

    """
    reported = reported_in(projection, batches)
    if projection.permanent is None:
        return []
    nothing = np.array([], dtype=DIGEST)
    charged = {name: reported[name].fingerprints if name in reported else nothing for name in projection.mechanisms}
    projection.permanent.charged.update(charged)
    if not reported:
        return []
    return charge_columns_once(ledger, dataset, reported, destination)


def reported_in(projection: Projection, batches: Iterable[pa.RecordBatch]) -> dict[str, Reported]:
    """Return the permanent reports of each column of batches; nothing if there are no rows."""
    seen: dict[str, list[Reported]] = {name: [] for name in projection.mechanisms}
    permanent = projection.permanent
    for batch in batches:
        if permanent is not None and batch.num_rows:
            for name, certified in projection.mechanisms.items():
                seen[name].append(_distinct(batch, name, certified, permanent))
    return {name: _together(parts) for name, parts in seen.items() if parts}


def _distinct(batch: pa.RecordBatch, name: str, certified: CertifiedMechanism, permanent: Permanent) -> Reported:
    """Return the permanent reports of a column of a batch."""
    people = permanent.people(batch)
    with of_column(name):
        return Reported.of(certified, permanent.fingerprints(certified, batch.column(name), people, name), people)


def _together(parts: list[Reported]) -> Reported:
    if len(parts) == 1:
        return parts[0]
    fingerprints = np.concatenate([part.fingerprints for part in parts])
    return Reported.of(parts[0].certified, fingerprints, pa.concat_arrays([part.people for part in parts]))


# Reports that stay in memory: no file or table holds them, so the ledger charges whenever they are drawn.


DESTINATION = "memory"
_KEY = "ldpsql.release"
_UNCHARGED = "uncharged"


def is_held(frame: Any) -> bool:
    """Return whether all rows of a frame are in memory, so that their users can be read before the values."""
    return isinstance(frame, pa.Table | pl.DataFrame) or is_pandas_frame(frame)


class Charging:
    """The charge of a stream: one for all of its rows, or, if the users are not known before, one for those of each batch."""

    def __init__(self, charge: Charge | None, projection: Projection) -> None:
        self._charge, self._projection = charge, projection
        self._releases: list[Release] = []
        user = projection.permanent.user if projection.permanent else charge and charge.user
        self.users = [user] if user else []

    def whole(self, batches: Sequence[pa.RecordBatch] | None = None) -> None:
        """Charge for all rows before the first one is drawn, if each value can be perturbed.

        Without user ids each row is a person, and the batches of a stream may be unknown.
        """
        charge, projection = self._charge, self._projection
        rows = None if batches is None else sum(map(len, batches))
        if charge is None or rows == 0:
            return
        if projection.permanent is not None:
            self._releases = charge_reports(charge.ledger, charge.dataset, projection, batches or (), DESTINATION)
            return
        for batch in batches or ():
            projection.check(batch)
        users = pa.chunked_array([batch.column(name) for batch in batches or () for name in self.users]) if self.users else None
        self._releases = [charge.always(projection.uncertified, DESTINATION, users, rows)]

    @property
    def by_batch(self) -> bool:
        """Whether each batch is charged before it is drawn."""
        return self._charge is not None and not self._releases and self._charge.user is not None

    @contextmanager
    def drawing(self, batch: pa.RecordBatch) -> Iterator[None]:
        """Charge the users of a batch, unless all rows are charged already, and then run the block, which draws it."""
        releases: list[Release] = []
        if self._charge is not None and self.by_batch and batch.num_rows:
            releases = [self._charge.always(self._projection.uncertified, DESTINATION, batch.column(self._charge.user))]
        yield
        self._publish(releases)

    def end(self) -> None:
        """Record that all rows were drawn."""
        self._publish(self._releases)

    def _publish(self, releases: Iterable[Release]) -> None:
        for release in releases:
            if self._charge is not None:
                self._charge.ledger.publish(release)

    def metadata(self, *, uncharged: bool) -> dict[str, str]:
        """Return the metadata of a schema that record the releases of its reports, or that a ledger was not charged."""
        if self._releases:
            return {_KEY: " ".join(release.token for release in self._releases)}
        return {_KEY: _UNCHARGED} if uncharged else {}


PUBLISHED = "published: its reports are in a table"
RETURNED = "given back: nobody has seen its reports"
UNFINISHED = "left as it is: its run can go on, with ldpsql perturb --resume"
PERMANENT = "left as it is: permanent reports cost nothing again, so repeat the run"
ELSEWHERE = "left as it is: its reports may be at its destination; name that database, or the release with --release"
IN_DOUBT = "left as it is: its reports were not found; if nobody can have seen them, add --unseen"


def settle(
    ledger: Ledger, con: DuckDBPyConnection, named: Collection[str] = (), *, unseen: bool = False
) -> Iterator[tuple[Unpublished, str]]:
    """Settle unpublished releases, and yield each with its outcome.

    Args:
        ledger: the ledger.
        con: the database that they wrote tables into.
        named: the tokens of the releases to settle; all if none are named.
        unseen: nobody can have seen the reports of releases into this database that are not in a table of it, or of those that
            are named.
    """
    releases = ledger.unpublished()
    if set(named) - {release.release for release in releases}:
        raise UnknownRelease("there is no such unpublished release", "ldpsql budget unpublished lists them")
    tokens, database = written_tokens(con), database_of(con)
    for release in releases:
        if not named or release.release in named:
            yield release, _settled(ledger, release, tokens, database, unseen=unseen, named=bool(named))


def _settled(ledger: Ledger, release: Unpublished, tokens: set[str], database: str, *, unseen: bool, named: bool) -> str:
    if release.release in tokens:
        ledger.publish(ledger.release_of(release.release))
        return PUBLISHED
    if not release.returnable:
        return PERMANENT
    if (staging_folder(Path(release.destination)) / "state.json").exists():
        return UNFINISHED
    # A table of a database is named by its file, or qualified by the name of the database as dbt does.
    table, catalog = release.destination.startswith(f"{database} "), parts(release.destination)[0]
    if release.drawn and not (named or (database and (table or catalog == Path(database).stem.casefold()))):
        return ELSEWHERE
    if release.drawn and not unseen:
        return IN_DOUBT
    ledger.give_back(release.release, unseen=unseen)
    return RETURNED
