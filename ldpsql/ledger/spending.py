"""The one place that decides whether everybody in a release can afford it, and how what they paid is given back.

    charged -> drawn -> published
        `---------`---> returned: nobody has seen the reports, and their people may be charged again

The ledger knows the people of a release until one of these ends; nobody needs them later.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ldpsql.engine.identity import alike, is_path, without_secrets
from ldpsql.errors import BudgetExceeded, UnfinishedRun
from ldpsql.ledger.entries import STATE, Request, is_ahead, release_of, was_drawn
from ldpsql.ledger.file import CHARGED, PERSON, enter, load, store
from ldpsql.ledger.people import People, among, placed
from ldpsql.ledger.policy import ROW, UNPUBLISHED, Cost, Policy, delta_text, epsilon_text
from ldpsql.ledger.statements import time_text

_RECORD = np.dtype((np.void, PERSON.itemsize))


class AccountKey(NamedTuple):
    """What accounts of several datasets have in common."""

    unit: str
    part: str
    group: str
    currency: str


class Refused(NamedTuple):
    """The number of people who are refused, and for what they have spent and the reports they give, the least and the most."""

    people: int
    epsilon: tuple[int, int]
    delta: tuple[int, int]
    reports: tuple[int, int]


def accounts_of(db: sqlite3.Connection, names: Collection[str], key: AccountKey, *, made: bool = True) -> list[int]:
    """Return the numbers of the accounts of datasets, which are made if they are new, and of all that may have the same people.

    Args:
        db: the ledger, in a transaction.
        names: the datasets; the empty name if users are charged, whatever the dataset.
        key: the unit, the part, the group of columns and the currency.
        made: whether accounts that do not exist are made.

    """
    for name in names if made else ():
        new = "INSERT OR IGNORE INTO account (unit, dataset, part, column_group, currency) VALUES (?, ?, ?, ?, ?)"
        db.execute(new, [key.unit, name, key.part, key.group, key.currency])
    ours = "unit = ? AND part = ? AND column_group = ? AND currency = ?"  # without the index, which no seal covers
    rows = db.execute(f"SELECT id, dataset FROM account NOT INDEXED WHERE {ours} ORDER BY id", key).fetchall()  # noqa: S608
    known = set(names)
    return [number for number, dataset in rows if dataset in known or any(alike(dataset, name) for name in names)]


def spend(db: sqlite3.Connection, account: int, people: People, cost: Cost, policy: Policy, *, now: int) -> None:
    """Add the cost of the reports of people to what they have spent, if everybody can afford it."""
    everybody, positions = joined(load(db, account, people.pseudonyms), people.pseudonyms)
    accounts, allowed = everybody[positions].view(PERSON), policy.allowance(cost.currency)
    fresh = accounts["since"] <= (now - policy.window if policy.window is not None else -1)
    accounts["since"][fresh] = now
    for spent in (accounts["epsilon"], accounts["delta"]):
        spent[fresh] = 0
    refused = _beyond(accounts["epsilon"], cost.epsilon, people.reports, allowed.epsilon)
    refused |= _beyond(accounts["delta"], cost.delta, people.reports, allowed.delta)
    if refused.any():
        theirs, reports = accounts[refused], people.reports[refused]
        summary = Refused(len(reports), _ends(theirs["epsilon"]), _ends(theirs["delta"]), _ends(reports))
        refusal = _exceeded(summary, allowed, cost, policy)
        raise _ahead(refusal, now) if policy.window is not None and is_ahead(now) else refusal
    for name, each in (("epsilon", cost.epsilon), ("delta", cost.delta)):
        accounts[name] += each * people.reports
        accounts[f"{name}_ever"] += each * people.reports
    everybody[positions] = accounts.view(_RECORD)
    store(db, account, everybody.view(PERSON))


def unspend(db: sqlite3.Connection, account: int, people: People, epsilon: int, delta: int, *, at: int) -> None:
    """Subtract the cost of the reports of people, who were charged at some time, from what they have spent."""
    everybody, positions = joined(load(db, account, people.pseudonyms), people.pseudonyms)
    accounts = everybody[positions].view(PERSON)
    for name, each in (("epsilon", epsilon), ("delta", delta)):
        accounts[f"{name}_ever"] -= each * people.reports
        accounts[name] -= np.where(
            accounts["since"] <= at, each * people.reports, 0
        )  # a window that began later has nothing of it
    everybody[positions] = accounts.view(_RECORD)
    store(db, account, everybody.view(PERSON))


def joined(kept: NDArray[np.void], persons: NDArray[np.bytes_]) -> tuple[NDArray[np.void], NDArray[np.intp]]:
    """Return the records of the stored people and of the new ones, who have spent nothing, and the position of each of these.

    Both are in ascending order. Records without fields are copied in a fifth of the time.
    """
    at, new = placed(kept["person"], persons)
    everybody = np.insert(kept.view(_RECORD), at[new], _unspent(persons[new]).view(_RECORD))
    return everybody, at + np.cumsum(new) - new


def _unspent(persons: NDArray[np.bytes_]) -> NDArray[np.void]:
    people = np.zeros(len(persons), dtype=PERSON)
    people["person"], people["since"] = persons, -1
    return people


def _beyond(spent: NDArray[np.int64], cost: int, reports: NDArray[np.int64], budget: int) -> NDArray[np.bool_]:
    """Whether each person's budget is exceeded, computed without a product, which could be too large for 64 bits."""
    return reports > (budget - spent) // cost if cost else spent > budget


def _ends(values: NDArray[np.int64]) -> tuple[int, int]:
    return int(values.min()), int(values.max())


def _exceeded(refused: Refused, allowed: Cost, cost: Cost, policy: Policy) -> BudgetExceeded:
    """Return an error with the cost of the release, the limit, and what is left."""
    who = "each row" if policy.privacy_unit == ROW else f"{refused.people} of the users"
    fewest, reports = refused.reports
    what, each, limit, (least, used) = cost.currency, cost.epsilon, allowed.epsilon, refused.epsilon
    show: Callable[[int], str] = epsilon_text
    if used + each * reports <= limit:
        what, each, limit, (least, used) = "delta", cost.delta, allowed.delta, refused.delta
        show = delta_text
    hint = f"lower the epsilon, ask for fewer columns or reports, or {_otherwise(policy)}; ldpsql budget show has the rest"
    if reports > 1:
        hint = "make one row of all rows of a user, or leave these users out; or lower the epsilon or ask for fewer columns"
    if not limit:
        hint = "the policy declares no such budget: distance_budget or delta_budget, and then ldpsql budget adopt"
    costs = f"{what} {'up to ' * (fewest < reports)}{show(each * reports)}"
    left = f"{'as little as ' * (least < used)}{show(max(limit - used, 0))} of {show(limit)} is left"
    return BudgetExceeded(f"this release costs {who} {costs}, and {left}", hint)


def _otherwise(policy: Policy) -> str:
    """Return what is left to do if a release must cost what it costs."""
    return "wait for the next window" if policy.budget_window else "leave out the people whose budget is spent"


def _ahead(refusal: BudgetExceeded, now: int) -> BudgetExceeded:
    """Return a `BudgetExceeded` that also explains why a window does not end: time never goes back in a ledger."""
    return BudgetExceeded(
        f"{refusal.message}; the ledger was last written at {time_text(now)}, later than this machine's clock says",
        "set the clock right; if it once ran ahead, windows end only after that time: a larger epsilon_budget, and then "
        "ldpsql budget adopt, lets you release before",
    )


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
    """Return a refusal that names where reports were published before if none were published at the destination.

    A file is of a day, or of another run; a table may be the same one under another name.
    """
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
    rename = "if a model or table was renamed, rename the table of its reports as well: ALTER TABLE {} RENAME TO its new name"
    return BudgetExceeded(
        f"{refusal.message}; reports were published at {places[-1]} before, and none at {request.name.destination}",
        f"use those reports; {_otherwise(request.policy) if is_path(places[-1]) else rename.format(places[-1])}",
    )
