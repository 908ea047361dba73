"""Spending: the one place that decides whether everybody in a release can afford it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ldpsql.engine.identity import alike
from ldpsql.errors import BudgetExceeded
from ldpsql.ledger.accounts import PERSON, load, store
from ldpsql.ledger.digests import placed
from ldpsql.ledger.entries import is_ahead
from ldpsql.ledger.people import People
from ldpsql.ledger.policy import ROW, Cost, Policy, delta_text, epsilon_text
from ldpsql.ledger.statements import time_text

_RECORD = np.dtype((np.void, PERSON.itemsize))


class AccountKey(NamedTuple):
    """What accounts of several datasets have in common."""

    unit: str
    part: str
    group: str
    currency: str


class Refused(NamedTuple):
    """How many people are refused, the most that one of them has spent, and the most reports that one of them gives."""

    people: int
    epsilon: int
    delta: int
    reports: int


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
        refusal = _exceeded(_most(accounts[refused], people.reports[refused]), allowed, cost, policy)
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


def _most(refused: NDArray[np.void], reports: NDArray[np.int64]) -> Refused:
    return Refused(len(refused), int(refused["epsilon"].max()), int(refused["delta"].max()), int(reports.max()))


def _exceeded(refused: Refused, allowed: Cost, cost: Cost, policy: Policy) -> BudgetExceeded:
    """Return an error with the cost of the release, the limit, and what is left."""
    who = "each row" if policy.privacy_unit == ROW else f"{refused.people} of the users"
    what, asked, limit, used = cost.currency, cost.epsilon * refused.reports, allowed.epsilon, refused.epsilon
    show: Callable[[int], str] = epsilon_text
    if used + asked <= limit:
        what, asked, limit, used = "delta", cost.delta * refused.reports, allowed.delta, refused.delta
        show = delta_text
    hint = "lower the epsilon, ask for fewer columns or reports, or wait for the next window; ldpsql budget show has the rest"
    if not limit:
        hint = "the policy declares no such budget: distance_budget or delta_budget, and then ldpsql budget adopt"
    return BudgetExceeded(
        f"this release costs {who} {what} {show(asked)}, and {show(max(limit - used, 0))} of {show(limit)} is left", hint
    )


def _ahead(refusal: BudgetExceeded, now: int) -> BudgetExceeded:
    """Return a `BudgetExceeded` that also explains why a window does not end: time never goes back in a ledger."""
    return BudgetExceeded(
        f"{refusal.message}; the ledger was last written at {time_text(now)}, later than this machine's clock says",
        "set the clock right; if it once ran ahead, windows end only after that time: a larger epsilon_budget, and then "
        "ldpsql budget adopt, lets you release before",
    )
