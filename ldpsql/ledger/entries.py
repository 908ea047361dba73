"""The rows of a ledger (policies, releases and their charges), and the release that is asked for."""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from hashlib import blake2b
from typing import Any, NamedTuple

from ldpsql.domains.composite import Product
from ldpsql.engine.functions import guarded
from ldpsql.engine.identity import Identity, without_secrets
from ldpsql.engine.sql_struct import columns_of
from ldpsql.errors import BudgetExceeded, InvalidParameter, LdpError, LedgerDamaged, NotReleased, UnknownRelease
from ldpsql.ledger.file import State, check_entries, check_release, damaged, enter, snapshot
from ldpsql.ledger.people import People
from ldpsql.ledger.policy import REST, ROW, Cost, Policy
from ldpsql.mechanisms.base import Mechanism, certify
from ldpsql.privacy.claims import of_core

SHUFFLED = "; shuffled "  # in the text of a claim, before the central epsilon and delta


class ReleaseName(NamedTuple):
    """What a user calls a release."""

    dataset: str
    part: str
    destination: str


@dataclass(frozen=True)
class Release:
    """One set of reports for one destination.

    ``token`` identifies it: store it with the data that you publish, and `Ledger.release_of` finds the release. ``state`` is
    ``charged``, ``published`` once the reports are at their destination, and ``returned`` if the charge was given back.
    """

    token: str
    dataset: str
    part: str
    destination: str
    state: State

    @property
    def stored(self) -> bool:
        """Whether it was published: then use its reports; nothing is charged, and nothing may be drawn."""
        return self.state == "published"


@dataclass(frozen=True)
class ColumnCost:
    """The cost of one report of a column for one person, and the claim that it follows from."""

    column: str
    mechanism: str
    claim: str
    group: str
    cost: Cost

    def shuffled(self, central: str) -> ColumnCost:
        """Return the cost with a note on what shuffled reports reveal, which changes nothing; without a note, as it is."""
        return replace(self, claim=f"{self.claim}{SHUFFLED}{central}") if central else self


def policy_text(policy: Policy) -> str:
    """Return a policy as JSON."""
    return json.dumps(policy.given(), sort_keys=True)


def policy_of(db: sqlite3.Connection) -> tuple[Policy, bytes]:
    """Return the policy in force, and the key of the pseudonyms."""
    row = db.execute("SELECT body, salt FROM policy ORDER BY id DESC LIMIT 1").fetchone()
    try:
        return Policy(**json.loads(row[0])), row[1]
    except (TypeError, ValueError, LdpError):
        raise LedgerDamaged("the policy of the ledger cannot be read", "restore it from a backup") from None


def clock() -> int:
    """Return the time of the machine's clock in microseconds."""
    return time.time_ns() // 1000


def now_of(db: sqlite3.Connection) -> int:
    """Return the time in microseconds; it never goes back, even if the clock does."""
    (latest,) = db.execute("SELECT at FROM head").fetchone()
    return max(clock(), latest)


def is_ahead(now: int) -> bool:
    """Whether the ledger's time is over an hour later than the clock's; the clocks of machines that share it differ by less."""
    return now > clock() + 3600 * 10**6


def column_costs(policy: Policy, columns: Mapping[str, Mechanism]) -> list[ColumnCost]:
    """Return the cost of each column of a release.

    Raises:
        InvalidParameter: if there is no column.
        BudgetExceeded: if a report has a larger epsilon than the policy allows.
        NotPrivate: if a mechanism does not keep its claim.

    """
    if not columns:
        raise InvalidParameter("a release must have at least one column", "name the mechanism of each column")
    costs = []
    for column, mechanism in columns.items():
        claim = certify(mechanism).certificate.claim
        costs.append(ColumnCost(column, mechanism.name, str(claim), policy.group(column), Cost.of(claim)))
        costs += _in_other_groups(policy, costs[-1], mechanism)
        most = policy.max_epsilon_per_report
        if most is not None and claim.epsilon > most:
            raise BudgetExceeded(
                f"a report under {mechanism.name} has epsilon {claim.epsilon}, and at most {most} is allowed",
                "lower its epsilon; max_epsilon_per_report is the limit",
            )
    return costs


def _in_other_groups(policy: Policy, whole: ColumnCost, mechanism: Mechanism) -> Iterator[ColumnCost]:
    """Yield what the columns of a row in one column cost the groups that name them; columns of a joint report pay together."""
    values, own, paid = certify(mechanism).values, dict(columns_of(mechanism)), set[str]()
    for name in values.names if isinstance(values, Product) else ():
        group = policy.group(name)
        if name in own and group not in (whole.group, REST):
            claim = certify(own[name]).certificate.claim
            yield ColumnCost(name, own[name].name, str(claim), group, Cost.of(claim))
        elif group not in (whole.group, REST):
            cost = Cost(whole.cost.currency, 0) if group in paid else whole.cost
            yield replace(whole, column=name, group=group, cost=cost)
            paid.add(group)


def release_digest(
    policy: Policy, people: People | None, name: ReleaseName, columns: Mapping[str, Mechanism], base: Sequence[str] = ()
) -> str:
    """Return the fingerprint of a release; ``base`` names the tables and files that it reads."""
    identity = {
        "unit": policy.privacy_unit,
        "people": people.digest() if people else None,
        "named": name,
        "base": base,
        "columns": {column: _written(mechanism) for column, mechanism in columns.items()},
    }
    return blake2b(json.dumps(identity, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()


def _written(mechanism: Mechanism) -> dict[str, Any] | list[Any]:
    """Return a mechanism as JSON; a plugin's mechanism with its claim, since its JSON may be the same for two epsilons."""
    spec = mechanism.to_json()
    return spec if of_core(type(mechanism)) else [spec, str(certify(mechanism).certificate.claim)]


RETURNED = "SELECT release FROM entry WHERE state = 'returned'"
STATE = f"CASE WHEN published_at NOTNULL THEN 'published' WHEN release.id IN ({RETURNED}) THEN 'returned' ELSE 'charged' END"
_RELEASE = f"SELECT token, dataset, part, destination, {STATE} FROM release"  # noqa: S608  # constants


def latest_release(db: sqlite3.Connection, identity: str) -> Release | None:
    """Return the latest release of this identity that was not given back, a published one if there is any."""
    order = "ORDER BY published_at IS NULL, id DESC LIMIT 1"
    row = db.execute(f"{_RELEASE} WHERE identity = ? AND id NOT IN ({RETURNED}) {order}", [identity]).fetchone()
    return Release(*row) if row else None


def check_earlier(db: sqlite3.Connection, release: Release, identity: str) -> None:
    """Check that an earlier release, whose repetition will cost nothing, is as it was written."""
    check_entries(db)
    same = f"{_RELEASE} NOT INDEXED WHERE token = ? AND identity = ?"
    if db.execute(same, [release.token, identity]).fetchall() != [astuple(release)]:
        raise damaged("releases")


def release_of(db: sqlite3.Connection, token: str) -> Release:
    """Return the release of a token, checked by its seals; the index of tokens, which no seal covers, is not used.

    Raises:
        UnknownRelease: if no release has this token.
        LedgerDamaged: if it is not as it was written.

    """
    rows = db.execute("SELECT id FROM release NOT INDEXED WHERE token = ?", [token]).fetchall()
    if not rows:
        raise UnknownRelease(
            "the ledger does not know this release", "this ledger is older than the data, or not theirs: name the right file"
        )
    if len(rows) > 1:
        raise damaged("releases")
    check_release(db, rows[0][0])
    return Release(*db.execute(f"{_RELEASE} WHERE id = ?", rows[0]).fetchone())


def refuse_new_rows(db: sqlite3.Connection, release: Release, rows: int | None) -> None:
    """Refuse a dataset that has more rows now than when its release was published."""
    (then,) = db.execute("SELECT users FROM release NOT INDEXED WHERE token = ?", [release.token]).fetchone()
    if release.stored and rows is not None and then is not None and rows > then:
        raise NotReleased(
            f"these reports were published for {then} rows, and the dataset has {rows} now",
            "release the new rows as a part, part='...', from a view of them alone; again=True charges and draws all of them",
        )


def write_release(
    db: sqlite3.Connection, now: int, identity: str, name: ReleaseName, people: People | int | None, *, source: str
) -> str:
    """Write a release and return its token; if each row is a person, ``people`` is their number, None if unknown."""
    token = secrets.token_hex(16)
    users, reports = (len(people.reports), int(people.reports.sum())) if isinstance(people, People) else (people, None)
    db.execute(
        """INSERT INTO release (token, identity, at, dataset, part, destination, users, reports, source)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        [token, identity, now, *name, users, reports, source],
    )
    enter(db, token, "charged")
    return token


def was_drawn(db: sqlite3.Connection, token: str) -> bool:
    """Whether the ledger records that others may have seen the reports of a release."""
    query = (
        "SELECT count(*) FROM entry WHERE state = 'drawn' AND release = (SELECT id FROM release NOT INDEXED WHERE token = ?)"
    )
    return bool(db.execute(query, [token]).fetchone()[0])


def write_charge(db: sqlite3.Connection, token: str, column: ColumnCost, account: int) -> None:
    """Write the charge of one column of a release."""
    db.execute(
        "INSERT INTO charge SELECT id, ?, ?, ?, ?, ?, ? FROM release NOT INDEXED WHERE token = ?",
        [column.column, column.mechanism, column.claim, account, column.cost.epsilon, column.cost.delta, token],
    )


def charged_columns(db: sqlite3.Connection) -> list[tuple[str, str, str]]:
    """Return the unit, column and group of every column that was ever charged."""
    both = "SELECT DISTINCT a.unit, c.column_name, a.column_group FROM charge c JOIN account a ON a.id = c.account"
    return db.execute(both).fetchall()


@dataclass(frozen=True)
class Request:
    """A release that is asked for under a policy.

    Args:
        policy: the policy.
        dataset: whose rows they are.
        name: what the release is called.
        users: the people; None if each row is a person.
        identity: the fingerprint by which the ledger recognises the release.
        state: the name of the rows as they are now, whatever part they are called; '' if they are not known.

    """

    policy: Policy
    dataset: Identity
    name: ReleaseName
    users: People | None
    identity: str
    state: str

    @property
    def accounts(self) -> list[tuple[str, tuple[str, ...]]]:
        """The parts with the names of the accounts that are charged; the same rows are the same people in every part."""
        if self.users is not None:
            return [("", ("",))]
        rows = [("", (self.state,))] if self.state else []
        return [(self.name.part, self.dataset.names), *rows]

    @property
    def people(self) -> People:
        """The people who are charged.

        Raises:
            InvalidParameter: if the policy charges by user, and the request has no user ids.

        """
        if self.users is None and self.policy.privacy_unit != ROW:
            raise _other_unit(self.policy, "pass the user id of each row (--user COLUMN)")
        return self.users or People.each_row()

    def identity_at(self, destination: str, columns: Mapping[str, Mechanism]) -> str:
        """Return the fingerprint that the request would have for another destination."""
        name = self.name._replace(destination=destination)
        return release_digest(self.policy, self.users, name, columns, self.dataset.base)


def renamed(
    db: sqlite3.Connection, request: Request, columns: Mapping[str, Mechanism], tokens: Collection[str]
) -> Release | None:
    """Return a published release of these tokens that is the request for another destination; None if there is none."""
    for token in tokens:
        row = db.execute("SELECT identity, destination FROM release NOT INDEXED WHERE token = ?", [token]).fetchone()
        if row and row[0] == request.identity_at(row[1], columns):
            release = release_of(db, token)
            if release.stored:
                return release
    return None


def request_of(
    db: sqlite3.Connection,
    dataset: str | Identity,
    columns: Mapping[str, Mechanism],
    destination: str,
    *,
    users: Any,
    part: str,
) -> Request:
    """Return the request for a release, under the policy in force.

    Raises:
        InvalidParameter: if it has user ids, and the policy charges by row.

    """
    data = Identity.named(dataset) if isinstance(dataset, str) else dataset
    with snapshot(db):
        policy, salt = policy_of(db)
    if users is not None and policy.privacy_unit == ROW:
        raise _other_unit(policy, "pass no user ids (--user)")
    people = None if users is None else _people_of(users, salt)
    name = ReleaseName(data.name, part, without_secrets(destination))
    identity = release_digest(policy, people, name, columns, data.base)
    return Request(policy, data, name, people, identity, data.state(salt))


def _other_unit(policy: Policy, hint: str) -> InvalidParameter:
    return InvalidParameter(f"the ledger charges by {policy.privacy_unit}", hint)


@guarded
def _people_of(users: Any, salt: bytes) -> People:
    return People.of(users, salt)
