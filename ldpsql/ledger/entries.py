"""The rows of a ledger: policies, releases and their charges."""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from hashlib import blake2b
from typing import Any

from ldpsql.errors import BudgetExceeded, InvalidParameter, LdpError, LedgerDamaged, NotReleased, UnknownRelease
from ldpsql.ledger.people import People
from ldpsql.ledger.policy import Cost, Policy
from ldpsql.ledger.seals import check_entries, check_release, damaged, enter
from ldpsql.mechanisms.base import Mechanism, certify
from ldpsql.privacy.owned import of_core


@dataclass(frozen=True)
class Release:
    """One set of reports that leaves for one destination.

    ``token`` names it: write it into what you publish, and `Ledger.release_of` finds it again. ``state`` is ``charged``, and
    ``published`` once the reports are where they belong.
    """

    token: str
    dataset: str
    part: str
    destination: str
    state: str

    @property
    def stored(self) -> bool:
        """Whether it was published: then its reports are there to be used, nothing is charged, and nothing may be drawn."""
        return self.state == "published"


@dataclass(frozen=True)
class Line:
    """What a column of a release costs one person for each report, and by which claim."""

    column: str
    mechanism: str
    claim: str
    group: str
    cost: Cost


def body(policy: Policy) -> str:
    """Return a policy as text."""
    return json.dumps(policy.given(), sort_keys=True)


def policy_of(db: sqlite3.Connection) -> tuple[Policy, bytes]:
    """Return the policy in force, and the key of the pseudonyms."""
    row = db.execute("SELECT body, salt FROM policy ORDER BY id DESC LIMIT 1").fetchone()
    try:
        return Policy(**json.loads(row[0])), row[1]
    except (TypeError, ValueError, LdpError):
        raise LedgerDamaged("the policy of the ledger cannot be read", "restore it from a backup") from None


def clock() -> int:
    """Return the time in microseconds, as the clock has it."""
    return time.time_ns() // 1000


def now_of(db: sqlite3.Connection) -> int:
    """Return the time in microseconds; it never goes back, whatever the clock does."""
    (latest,) = db.execute("SELECT at FROM head").fetchone()
    return max(clock(), latest)


def is_ahead(now: int) -> bool:
    """Tell whether the ledger's time is an hour later than the clock's; machines that share a ledger differ by less."""
    return now > clock() + 3600 * 10**6


def lines_of(policy: Policy, columns: Mapping[str, Mechanism]) -> list[Line]:
    """Return what each column costs one person a report; a mechanism that does not keep its claim is refused here."""
    if not columns:
        raise InvalidParameter("a release must have at least one column", "name the mechanism of each column")
    lines = []
    for column, mechanism in columns.items():
        claim = certify(mechanism).certificate.claim
        lines.append(Line(column, mechanism.name, str(claim), policy.group(column), Cost.of(claim)))
        most = policy.max_epsilon_per_report
        if most is not None and claim.epsilon > most:
            raise BudgetExceeded(
                f"a report under {mechanism.name} has epsilon {claim.epsilon}, and at most {most} is allowed",
                "lower its epsilon; max_epsilon_per_report is the limit",
            )
    return lines


def identity_of(policy: Policy, people: People | None, named: tuple[str, str, str], columns: Mapping[str, Mechanism]) -> str:
    """Return the fingerprint of a release."""
    told = {
        "unit": policy.privacy_unit,
        "people": people.digest() if people else None,
        "named": named,
        "columns": {column: _written(mechanism) for column, mechanism in columns.items()},
    }
    return blake2b(json.dumps(told, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()


def _written(mechanism: Mechanism) -> dict[str, Any] | list[Any]:
    """Return a mechanism as JSON; one of somebody else with its claim too, for it may write two epsilons in the same way."""
    spec = mechanism.to_json()
    return spec if of_core(type(mechanism)) else [spec, str(certify(mechanism).certificate.claim)]


STATE = "CASE WHEN published_at IS NULL THEN 'charged' ELSE 'published' END"
_RELEASE = f"SELECT token, dataset, part, destination, {STATE} FROM release"  # noqa: S608  # constants


def known(db: sqlite3.Connection, identity: str) -> Release | None:
    """Return the release of this identity, a published one before one that is only charged."""
    order = "ORDER BY published_at IS NULL, id DESC LIMIT 1"
    row = db.execute(f"{_RELEASE} WHERE identity = ? {order}", [identity]).fetchone()
    return Release(*row) if row else None


def check_earlier(db: sqlite3.Connection, release: Release, identity: str) -> None:
    """Check that an earlier release, for which nothing will be charged, is what was written down.

    Raises:
        LedgerDamaged: if it is not.

    """
    check_entries(db)
    same = f"{_RELEASE} NOT INDEXED WHERE token = ? AND identity = ?"
    if db.execute(same, [release.token, identity]).fetchall() != [astuple(release)]:
        raise damaged("releases")


def found(db: sqlite3.Connection, token: str) -> Release:
    """Return the release of a token, as its seals have it: the index of tokens is not relied on.

    Raises:
        UnknownRelease: if there is none.
        LedgerDamaged: if it is not as it was written.

    """
    rows = db.execute("SELECT id FROM release NOT INDEXED WHERE token = ?", [token]).fetchall()
    if not rows:
        raise UnknownRelease(
            "the ledger does not know this release", "it is older than the data or another ledger: find the right one"
        )
    if len(rows) > 1:
        raise damaged("releases")
    check_release(db, rows[0][0])
    return Release(*db.execute(f"{_RELEASE} WHERE id = ?", rows[0]).fetchone())


def refuse_new_rows(db: sqlite3.Connection, release: Release, rows: int | None) -> None:
    """Refuse a dataset that has more rows now than it had when its release was published.

    Raises:
        NotReleased: if it has.

    """
    (then,) = db.execute("SELECT users FROM release NOT INDEXED WHERE token = ?", [release.token]).fetchone()
    if release.stored and rows is not None and then is not None and rows > then:
        raise NotReleased(
            f"these reports were published for {then} rows, and the dataset has {rows} now",
            "release the new rows as a part, part='...', from a view of them alone; again=True charges and draws all of them",
        )


def write_release(
    db: sqlite3.Connection, now: int, identity: str, named: tuple[str, str, str], people: People | int | None
) -> str:
    """Write a release down and return its token; where each row is a person, ``people`` is their number, if that is known."""
    token = secrets.token_hex(16)
    users, reports = (len(people.reports), sum(people.reports)) if isinstance(people, People) else (people, None)
    db.execute(
        """INSERT INTO release (token, identity, at, dataset, part, destination, users, reports)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
        [token, identity, now, *named, users, reports],
    )
    enter(db, token, "charged")
    return token


def was_drawn(db: sqlite3.Connection, token: str) -> bool:
    """Whether the reports of a release were about to be published."""
    query = (
        "SELECT count(*) FROM entry WHERE state = 'drawn' AND release = (SELECT id FROM release NOT INDEXED WHERE token = ?)"
    )
    return bool(db.execute(query, [token]).fetchone()[0])


def write_charge(db: sqlite3.Connection, token: str, line: Line, account: int) -> None:
    """Write down what one column of a release was charged."""
    db.execute(
        "INSERT INTO charge SELECT id, ?, ?, ?, ?, ?, ? FROM release NOT INDEXED WHERE token = ?",
        [line.column, line.mechanism, line.claim, account, line.cost.epsilon, line.cost.delta, token],
    )


def charged(db: sqlite3.Connection) -> list[tuple[str, str, str]]:
    """Return the unit, column and group of every column that was ever charged."""
    both = "SELECT DISTINCT a.unit, c.column_name, a.column_group FROM charge c JOIN account a ON a.id = c.account"
    return db.execute(both).fetchall()
