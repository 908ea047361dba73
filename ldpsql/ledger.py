"""The ledger of privacy budgets: what was spent on whom, written down before anything is drawn.

    charge (on the disk) -> draw -> publish

A crash between the first and the last leaves a release that is charged and not published: people lose budget, never privacy.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ldpsql import ledger_file
from ldpsql.budget import Cost, Policy, delta_text, epsilon_text
from ldpsql.errors import BudgetExceeded, InvalidParameter, LdpError, LedgerDamaged, PolicyMismatch, UnknownRelease
from ldpsql.ledger_file import reading, writing
from ldpsql.mechanism import Mechanism, certify
from ldpsql.people import People


@dataclass(frozen=True)
class Release:
    """One set of reports that leaves for one destination.

    ``token`` names it: write it into what you publish, and `Ledger.release_of` finds it again. ``stored`` tells that the very
    same release was published before: use what is there, nothing is charged and nothing may be drawn.
    """

    token: str
    dataset: str
    part: str
    destination: str
    stored: bool
    state: str  # "charged" or "published"


@dataclass(frozen=True)
class Balance:
    """What the person who spent most has spent in a group of columns, and what is left to that person, as decimal text."""

    unit: str
    dataset: str
    part: str
    column_group: str
    currency: str
    people: int | None
    spent: str
    remaining: str
    spent_delta: str


@dataclass(frozen=True)
class _Line:
    column: str
    mechanism: str
    claim: str
    group: str
    cost: Cost


class Ledger:
    """A ledger file and its policy; make one with `open`. Any number of processes and threads may use the same file."""

    def __init__(self, path: Path, policy: Policy) -> None:
        self.path = path
        self.policy = policy

    @classmethod
    def open(cls, path: str | Path, policy: Policy | Mapping[str, Any] | None = None) -> Ledger:
        """Open a ledger; with a policy also begin one where there is none.

        Raises:
            LedgerMissing: where there is none, and no policy.
            PolicyMismatch: where the ledger keeps another policy; `adopt` changes it, and writes that down.
            LedgerError: where the file cannot be used.

        """
        wanted = Policy(**policy) if isinstance(policy, Mapping) else policy
        path = Path(path)
        if wanted is not None and not path.exists():
            ledger_file.create(path, _body(wanted), _clock())
        with reading(path) as db:
            kept, _ = _policy(db)
        if wanted is not None and wanted != kept:
            raise PolicyMismatch(
                "the ledger keeps another policy than the one that is configured",
                "compare with: ldpsql budget show; to change it: ldpsql budget adopt",
            )
        return cls(path, kept)

    def adopt(self, policy: Policy) -> None:
        """Replace the policy. What was spent stays spent; history keeps both."""
        with reading(self.path) as db, writing(db):
            _, salt = _policy(db)
            db.execute("INSERT INTO policy (at, body, salt) VALUES (?, ?, ?)", [_now(db), _body(policy), salt])
        self.policy = policy

    def charge(
        self,
        dataset: str,
        columns: Mapping[str, Mechanism],
        destination: str,
        *,
        users: Any = None,
        part: str = "",
        again: bool = False,
        resume: bool = False,
    ) -> Release:
        """Write down what a release costs everybody in it, all or nothing; it is on the disk when this returns.

        The same release again (same dataset, people, columns, mechanisms and destination) is the stored one, free of charge.

        Args:
            dataset: a name for the people of the data; the same name means the same people.
            columns: the mechanism of each column.
            destination: where the reports go.
            users: the user id of each row, where the policy's ``privacy_unit`` is a column of user ids.
            part: a part of the dataset whose rows are in no other part, such as a day: parts do not add up.
            again: charge and draw anew although it was published before.
            resume: take up a release that was charged and never published; only where nothing of it has left.

        Raises:
            BudgetExceeded: where it would cost somebody more than the policy allows; then nothing is charged.
            LedgerError: where the ledger cannot be used; then nothing may be released.

        """
        with reading(self.path) as db:
            policy, salt = _policy(db)
            people = self._people(policy, users, salt)
            lines = _lines(policy, columns)
            identity = _identity(policy, dataset, part, columns, destination, None if users is None else people.digest())
            _ask(db, people)
            with writing(db):
                if _policy(db)[0] != policy:  # somebody adopted another one just now
                    raise PolicyMismatch("the policy of the ledger was changed meanwhile", "try again")
                known = _known(db, identity)
                if known and ((known.stored and not again) or (resume and not known.stored)):
                    return known
                now = _now(db)
                token = _write_release(db, now, identity, (dataset, part, destination), None if users is None else people)
                whole = ("", "") if users is not None else (dataset, part)
                for line in lines:
                    account = _account(db, (policy.privacy_unit, *whole, line.group, line.cost.currency))
                    _spend(db, account, line.cost, policy, now)
                    _write_charge(db, token, line, account)
        return Release(token, dataset, part, destination, stored=False, state="charged")

    @staticmethod
    def _people(policy: Policy, users: Any, salt: bytes) -> People:
        if (users is None) != (policy.privacy_unit == "row"):
            raise InvalidParameter(
                f"the ledger charges by {policy.privacy_unit}",
                "pass no user ids" if policy.privacy_unit == "row" else "pass the user id of each row",
            )
        return People.each_row() if users is None else People.of(users, salt)

    def publish(self, release: Release) -> Release:
        """Write down that the reports of a release are where they belong.

        Raises:
            UnknownRelease: where the ledger does not know it.

        """
        with reading(self.path) as db, writing(db):
            _found(db, release.token)
            db.execute(
                "UPDATE release SET published_at = coalesce(published_at, ?) WHERE token = ?", [_now(db), release.token]
            )
            return _found(db, release.token)

    @contextmanager
    def release(self, *args: Any, **options: Any) -> Iterator[Release]:
        """Charge, let the block draw unless the release is ``stored``, and publish; takes what `charge` takes.

        An exception leaves the release charged and not published.
        """
        release = self.charge(*args, **options)
        yield release
        if not release.stored:
            self.publish(release)

    def release_of(self, token: str) -> Release:
        """Return the release whose token was found with some data.

        Raises:
            UnknownRelease: where the ledger is older than the data, or another one.

        """
        with reading(self.path) as db:
            return _found(db, token)

    def balances(self) -> list[Balance]:
        """Return what is spent and what is left, for each group of columns."""
        with reading(self.path) as db:
            policy, _ = _policy(db)
            opened = _now(db) - policy.window if policy.window is not None else -1
            rows = db.execute(
                """SELECT unit, dataset, part, column_group, currency, count(person), min(person) = x'',
                          max(CASE WHEN since > :opened THEN epsilon ELSE 0 END),
                          max(CASE WHEN since > :opened THEN delta ELSE 0 END)
                   FROM account JOIN spent ON account = id GROUP BY id ORDER BY id""",
                {"opened": opened},
            ).fetchall()
        out = []
        for unit, dataset, part, group, currency, people, everybody, epsilon, delta in rows:
            left = max(policy.allowance(currency).epsilon - epsilon, 0)
            number = None if everybody else people
            spent = (epsilon_text(epsilon), epsilon_text(left), delta_text(delta))
            out.append(Balance(unit, dataset, part, group, currency, number, *spent))
        return out

    def history(self) -> list[dict[str, Any]]:
        """Return every column of every release, oldest first: when, what, where, how much for one report, state."""
        with reading(self.path) as db:
            rows = db.execute(
                """SELECT r.at, r.token, r.dataset, r.part, r.destination, c.column_name, a.column_group, c.mechanism, c.claim,
                          a.currency, c.epsilon, c.delta, r.users, r.reports,
                          CASE WHEN published_at IS NULL THEN 'charged' ELSE 'published' END
                   FROM release r JOIN charge c ON c.release = r.id JOIN account a ON a.id = c.account
                   ORDER BY r.id, c.rowid"""
            ).fetchall()
        names = "at release dataset part destination column column_group mechanism claim currency epsilon delta users reports state"
        found = [dict(zip(names.split(), row, strict=True)) for row in rows]
        for row in found:
            row |= {"at": _time_text(row["at"]), "epsilon": epsilon_text(row["epsilon"]), "delta": delta_text(row["delta"])}
        return found

    def policies(self) -> list[dict[str, Any]]:
        """Return the policies, oldest first; the last is in force."""
        with reading(self.path) as db:
            rows = db.execute("SELECT at, body FROM policy ORDER BY id").fetchall()
        return [{"at": _time_text(at), **json.loads(body)} for at, body in rows]

    def check(self) -> None:
        """Check the file, and that what accounts have spent is the sum of what releases were charged.

        Raises:
            LedgerDamaged: where something is wrong.

        """
        with reading(self.path) as db:
            sound = db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            orphans = db.execute("PRAGMA foreign_key_check").fetchall()
            wrong = db.execute(
                """SELECT count(*) FROM (
                       SELECT account, sum(c.epsilon * coalesce(r.reports, 1)) AS e, sum(c.delta * coalesce(r.reports, 1)) AS d
                       FROM charge c JOIN release r ON r.id = c.release GROUP BY account) AS charged
                   FULL JOIN (SELECT account, sum(epsilon_ever) AS e, sum(delta_ever) AS d FROM spent GROUP BY account) AS kept
                   ON charged.account = kept.account WHERE charged.e IS NOT kept.e OR charged.d IS NOT kept.d"""
            ).fetchone()
        if not sound or orphans or wrong != (0,):
            raise LedgerDamaged("the ledger does not add up", "restore it from a backup, and release nothing before")


def _body(policy: Policy) -> str:
    return json.dumps(policy.given(), sort_keys=True)


def _policy(db: sqlite3.Connection) -> tuple[Policy, bytes]:
    row = db.execute("SELECT body, salt FROM policy ORDER BY id DESC LIMIT 1").fetchone()
    try:
        return Policy(**json.loads(row[0])), row[1]
    except (TypeError, ValueError, LdpError):
        raise LedgerDamaged("the policy of the ledger cannot be read", "restore it from a backup") from None


def _clock() -> int:
    return time.time_ns() // 1000


def _now(db: sqlite3.Connection) -> int:
    """Return the time in microseconds; it never goes back, whatever the clock does."""
    (latest,) = db.execute("SELECT max(at) FROM (SELECT max(at) AS at FROM release UNION ALL SELECT max(at) FROM policy)").fetchone()
    return max(_clock(), latest)


def _time_text(micros: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(micros // 10**6))


def _lines(policy: Policy, columns: Mapping[str, Mechanism]) -> list[_Line]:
    """Return what each column costs one person a report; a mechanism that does not keep its claim is refused here."""
    if not columns:
        raise InvalidParameter("a release must have at least one column", "name the mechanism of each column")
    lines = []
    for column, mechanism in columns.items():
        claim = certify(mechanism).certificate.claim
        lines.append(_Line(column, mechanism.name, str(claim), policy.group(column), Cost.of(claim)))
        most = policy.max_epsilon_per_report
        if most is not None and claim.epsilon > most:
            raise BudgetExceeded(
                f"a report under {mechanism.name} has epsilon {claim.epsilon}, and at most {most} is allowed",
                "lower its epsilon; max_epsilon_per_report is the limit",
            )
    return lines


def _identity(
    policy: Policy, dataset: str, part: str, columns: Mapping[str, Mechanism], destination: str, people: str | None
) -> str:
    """Return the fingerprint of a release."""
    told = {
        "unit": policy.privacy_unit,
        "people": people,
        "dataset": dataset,
        "part": part,
        "columns": {column: mechanism.to_json() for column, mechanism in columns.items()},
        "destination": destination,
    }
    return blake2b(json.dumps(told, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()


def _ask(db: sqlite3.Connection, people: People) -> None:
    """Hand the people of a release to SQLite, before anybody has to wait for us."""
    db.execute("PRAGMA temp_store = MEMORY")
    db.execute("BEGIN")
    db.execute("CREATE TEMP TABLE asked (person BLOB PRIMARY KEY, reports INTEGER NOT NULL) WITHOUT ROWID")
    db.executemany("INSERT INTO asked VALUES (?, ?)", zip(people.pseudonyms, people.reports, strict=True))
    db.execute("COMMIT")


_RELEASE = "SELECT token, dataset, part, destination, published_at IS NOT NULL FROM release"


def _made(row: tuple[str, str, str, str, int]) -> Release:
    token, dataset, part, destination, published = row
    return Release(token, dataset, part, destination, bool(published), "published" if published else "charged")


def _known(db: sqlite3.Connection, identity: str) -> Release | None:
    """Return the release of this identity, a published one before one that is only charged."""
    order = "ORDER BY published_at IS NULL, id DESC LIMIT 1"
    row = db.execute(f"{_RELEASE} WHERE identity = ? {order}", [identity]).fetchone()  # noqa: S608  # constants
    return _made(row) if row else None


def _found(db: sqlite3.Connection, token: str) -> Release:
    row = db.execute(f"{_RELEASE} WHERE token = ?", [token]).fetchone()  # noqa: S608  # a constant
    if row is None:
        raise UnknownRelease(
            "the ledger does not know this release", "it is older than the data or another ledger: find the right one"
        )
    return _made(row)


def _write_release(
    db: sqlite3.Connection, now: int, identity: str, named: tuple[str, str, str], people: People | None
) -> str:
    token = secrets.token_hex(16)
    users, reports = (len(people.reports), sum(people.reports)) if people else (None, None)
    db.execute(
        """INSERT INTO release (token, identity, at, dataset, part, destination, users, reports)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
        [token, identity, now, *named, users, reports],
    )
    return token


def _write_charge(db: sqlite3.Connection, token: str, line: _Line, account: int) -> None:
    db.execute(
        "INSERT INTO charge SELECT id, ?, ?, ?, ?, ?, ? FROM release WHERE token = ?",
        [line.column, line.mechanism, line.claim, account, line.cost.epsilon, line.cost.delta, token],
    )


def _account(db: sqlite3.Connection, key: tuple[str, str, str, str, str]) -> int:
    db.execute("INSERT OR IGNORE INTO account (unit, dataset, part, column_group, currency) VALUES (?, ?, ?, ?, ?)", key)
    where = "unit = ? AND dataset = ? AND part = ? AND column_group = ? AND currency = ?"
    return db.execute(f"SELECT id FROM account WHERE {where}", key).fetchone()[0]  # noqa: S608  # a constant


_SPENT_NOW = "CASE WHEN s.since > :opened THEN s.{0} ELSE 0 END"
_EPSILON, _DELTA = _SPENT_NOW.format("epsilon"), _SPENT_NOW.format("delta")
_FITS = f"{_EPSILON} + excluded.epsilon <= :epsilon_budget AND {_DELTA} + excluded.delta <= :delta_budget"
_SPEND = f"""
    INSERT INTO spent AS s
    SELECT :account, person, :now, :epsilon * reports, :delta * reports, :epsilon * reports, :delta * reports
    FROM asked WHERE :epsilon * reports <= :epsilon_budget AND :delta * reports <= :delta_budget
    ON CONFLICT (account, person) DO UPDATE SET
        epsilon = {_EPSILON} + excluded.epsilon, delta = {_DELTA} + excluded.delta,
        since = CASE WHEN s.since > :opened THEN s.since ELSE excluded.since END,
        epsilon_ever = s.epsilon_ever + excluded.epsilon, delta_ever = s.delta_ever + excluded.delta
    WHERE {_FITS}"""  # noqa: S608  # constants
_REFUSED = f"""
    SELECT count(*), max(coalesce({_EPSILON}, 0)), max(coalesce({_DELTA}, 0)), max(a.reports)
    FROM asked a LEFT JOIN spent s ON s.account = :account AND s.person = a.person
    WHERE coalesce({_EPSILON}, 0) + :epsilon * a.reports > :epsilon_budget
       OR coalesce({_DELTA}, 0) + :delta * a.reports > :delta_budget"""  # noqa: S608  # constants


def _spend(db: sqlite3.Connection, account: int, cost: Cost, policy: Policy, now: int) -> None:
    """Add a cost to what everybody in the release has spent, if all of them can afford it."""
    allowed = policy.allowance(cost.currency)
    values = {
        "account": account,
        "now": now,
        "opened": now - policy.window if policy.window is not None else -1,
        "epsilon": cost.epsilon,
        "delta": cost.delta,
        "epsilon_budget": allowed.epsilon,
        "delta_budget": allowed.delta,
    }
    (people,) = db.execute("SELECT count(*) FROM asked").fetchone()
    if db.execute(_SPEND, values).rowcount == people:
        return
    raise _exceeded(db.execute(_REFUSED, values).fetchone(), values, cost, policy)


def _exceeded(refused: tuple[int, int, int, int], values: dict[str, int], cost: Cost, policy: Policy) -> BudgetExceeded:
    """Say what was asked for, the limit, and what is left."""
    people, spent, spent_delta, reports = refused
    who = "each row" if policy.privacy_unit == "row" else f"{people} of the users"
    if spent + cost.epsilon * reports > values["epsilon_budget"]:
        asked, limit, used, show = cost.epsilon * reports, values["epsilon_budget"], spent, epsilon_text
        what = cost.currency
    else:
        asked, limit, used, show, what = cost.delta * reports, values["delta_budget"], spent_delta, delta_text, "delta"
    return BudgetExceeded(
        f"this release costs {who} {what} {show(asked)}, and {show(max(limit - used, 0))} of {show(limit)} is left",
        "lower the epsilon, ask for fewer columns or reports, or wait for the next window; ldpsql budget show has the rest",
    )
