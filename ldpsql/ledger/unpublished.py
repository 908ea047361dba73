"""Releases that were charged and not published: their people, and how what they paid is given back.

    charged -> drawn -> published
        `---------`---> returned: nobody has seen the reports, and their people may be charged again

The ledger knows the people of a release until one of these ends; nobody needs them later.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

import numpy as np

from ldpsql.engine.identity import without_secrets
from ldpsql.errors import BudgetExceeded, UnfinishedRun
from ldpsql.ledger.accounts import CHARGED, load, store
from ldpsql.ledger.digests import among
from ldpsql.ledger.entries import STATE, release_of, was_drawn
from ldpsql.ledger.people import People
from ldpsql.ledger.policy import UNPUBLISHED
from ldpsql.ledger.requests import Request
from ldpsql.ledger.seals import enter
from ldpsql.ledger.spending import AccountKey, accounts_of, unspend
from ldpsql.ledger.statements import time_text

_KEY = AccountKey("", "", "", UNPUBLISHED)  # of accounts that are named by the number of a release
_SETTLE = "ldpsql budget settle --database FILE publishes reports that are in a table, and gives back what nobody has seen"


@dataclass(frozen=True)
class Unpublished:
    """A release that was charged and not published.

    ``people`` is their number, None if each row is a person. If it was ``drawn``, its reports were about to be published when
    the run ended, and may be at the destination. ``returnable`` is False for permanent reports, which cost nothing again.
    """

    release: str
    at: str
    dataset: str
    part: str
    destination: str
    columns: str
    people: int | None
    drawn: bool
    returnable: bool


def _accounts(db: sqlite3.Connection, token: str, *, made: bool = False) -> list[int]:
    """Return the number of the account with the people of a release; none if they are not known."""
    (number,) = db.execute("SELECT id FROM release NOT INDEXED WHERE token = ?", [token]).fetchone()
    return accounts_of(db, [str(number)], _KEY, made=made)


def remember(db: sqlite3.Connection, token: str, people: People) -> None:
    """Keep the people of a release until it is published or given back."""
    (account,) = _accounts(db, token, made=True)
    kept = np.empty(len(people.reports), dtype=CHARGED)
    kept["person"], kept["reports"] = people.pseudonyms, people.reports
    store(db, account, kept)


def forget(db: sqlite3.Connection, token: str) -> None:
    """Delete the people of a release."""
    for account in _accounts(db, token):
        for table, column in (("spent", "account"), ("bucket", "account"), ("account", "id")):
            db.execute(f"DELETE FROM {table} WHERE {column} = ?", [account])  # noqa: S608  # constants


def _people(db: sqlite3.Connection, token: str) -> People | None:
    """Return the people of a release, None if the ledger does not know them."""
    for account in _accounts(db, token):
        kept = load(db, account, kind=CHARGED)
        return People(kept["person"], kept["reports"])
    return None


def unpublished(db: sqlite3.Connection) -> list[Unpublished]:
    """Return the releases that were charged and not published, oldest first."""
    rows = db.execute(
        f"""SELECT token, release.at, dataset, part, destination, users, group_concat(DISTINCT column_name)
            FROM release JOIN charge ON charge.release = release.id WHERE {STATE} = 'charged'
            GROUP BY release.id ORDER BY release.id"""  # noqa: S608  # constants
    ).fetchall()
    return [
        Unpublished(
            release=token,
            at=time_text(at),
            dataset=without_secrets(dataset),
            part=part,
            destination=without_secrets(destination),
            columns=columns,
            people=people,
            drawn=was_drawn(db, token),
            returnable=bool(_accounts(db, token)),
        )
        for token, at, dataset, part, destination, people, columns in rows
    ]


def give_back(db: sqlite3.Connection, token: str, *, unseen: bool) -> None:
    """Give back what the people of a release paid, within a transaction; it can no longer be published.

    Args:
        db: the ledger.
        token: the release.
        unseen: that nobody has seen its reports is certain, even if it was about to publish them.

    Raises:
        UnfinishedRun: if it has ended, others may have seen its reports, or its people are not known.

    """
    release = release_of(db, token)
    if release.state != "charged":
        raise UnfinishedRun(f"the release is {release.state} already", "ldpsql budget history lists all releases")
    if was_drawn(db, token) and not unseen:
        raise UnfinishedRun(
            f"the release for {without_secrets(release.destination)} was about to publish its reports, which were not found",
            "if nobody can have seen them: ldpsql budget settle --unseen; otherwise leave out its people",
        )
    people = _people(db, token)
    if people is None:
        raise UnfinishedRun("the people of the release are not known any more, or pay nothing again", "repeat the release")
    charges = "SELECT account, epsilon, delta, at FROM charge JOIN release ON release.id = charge.release WHERE token = ?"
    for account, epsilon, delta, at in db.execute(charges, [token]).fetchall():
        unspend(db, account, people, epsilon, delta, at=at)
    forget(db, token)
    enter(db, token, "returned")


def explained(db: sqlite3.Connection, request: Request, token: str, refusal: BudgetExceeded) -> BudgetExceeded:
    """Return the refusal of a release that says by which earlier one its people were charged, and what to do."""
    wanted = request.people.pseudonyms
    for release in unpublished(db):
        if release.release == token:
            continue
        people = _people(db, release.release)
        paid = int(among(people.pseudonyms, wanted).sum()) if people is not None and len(people.pseudonyms) else 0
        if paid and (request.users is not None or release.dataset == request.name.dataset):
            who = "they" if request.users is None else f"{paid} of the users"
            charged = f"{who} were charged at {release.at} by a release for {release.destination} that was not published"
            return BudgetExceeded(f"{refusal.message}; {charged}", _SETTLE)
    return _renamed(db, request, refusal)


def _renamed(db: sqlite3.Connection, request: Request, refusal: BudgetExceeded) -> BudgetExceeded:
    """Return a refusal that names where reports were published before if none were published at the destination."""
    places = [
        without_secrets(place)
        for (place,) in db.execute(
            """SELECT destination FROM release WHERE published_at NOTNULL AND (dataset = ? OR ?)
               GROUP BY destination ORDER BY max(id)""",
            [request.name.dataset, request.users is not None],
        )
    ]
    if not places or request.name.destination in places:
        return refusal
    return BudgetExceeded(
        f"{refusal.message}; reports were published at {places[-1]} before, and none at {request.name.destination}",
        "use those reports; if a model or table was renamed, rename the table of its reports as well: "
        f"ALTER TABLE {places[-1]} RENAME TO its new name",
    )
