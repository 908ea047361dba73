"""Spending: the one statement that decides whether everybody in a release can afford it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable

from ldpsql.errors import BudgetExceeded
from ldpsql.ledger.datasets import alike
from ldpsql.ledger.people import People
from ldpsql.ledger.policy import Cost, Policy, delta_text, epsilon_text

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


def ask(db: sqlite3.Connection, people: People) -> None:
    """Hand the people of a release to SQLite, before anybody has to wait for us."""
    db.execute("PRAGMA temp_store = MEMORY")
    db.execute("BEGIN")
    db.execute("CREATE TEMP TABLE asked (person BLOB NOT NULL, reports INTEGER NOT NULL)")
    db.executemany("INSERT INTO asked VALUES (?, ?)", zip(people.pseudonyms, people.reports, strict=True))
    db.execute("COMMIT")


def accounts_of(db: sqlite3.Connection, names: Iterable[str], where: tuple[str, str, str, str]) -> list[int]:
    """Return the numbers of the accounts of some datasets, made if they are new, and of all that may be of the same people.

    Args:
        db: the ledger, in a transaction.
        names: the datasets; the empty name where users are charged, wherever they are.
        where: unit, part, group of columns, currency.

    """
    unit, part, group, currency = where
    key = "unit = ? AND part = ? AND column_group = ? AND currency = ?"
    for name in names:
        new = "INSERT OR IGNORE INTO account (unit, dataset, part, column_group, currency) VALUES (?, ?, ?, ?, ?)"
        db.execute(new, [unit, name, part, group, currency])
    rows = db.execute(f"SELECT id, dataset FROM account WHERE {key} ORDER BY id", where).fetchall()  # noqa: S608  # a constant
    return [number for number, dataset in rows if any(dataset == name or alike(dataset, name) for name in names)]


def spend(db: sqlite3.Connection, account: int, cost: Cost, policy: Policy, now: int) -> None:
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
    db.execute("SAVEPOINT before")
    if db.execute(_SPEND, values).rowcount == people:
        return
    db.execute("ROLLBACK TO before")  # those who could afford it
    raise _exceeded(db.execute(_REFUSED, values).fetchone(), values, cost, policy)


def _exceeded(refused: tuple[int, int, int, int], values: dict[str, int], cost: Cost, policy: Policy) -> BudgetExceeded:
    """Say what was asked for, the limit, and what is left."""
    people, spent, spent_delta, reports = refused
    who = "each row" if policy.privacy_unit == "row" else f"{people} of the users"
    what, asked, limit, used = cost.currency, cost.epsilon * reports, values["epsilon_budget"], spent
    show: Callable[[int], str] = epsilon_text
    if spent + asked <= limit:
        what, asked, limit, used = "delta", cost.delta * reports, values["delta_budget"], spent_delta
        show = delta_text
    hint = "lower the epsilon, ask for fewer columns or reports, or wait for the next window; ldpsql budget show has the rest"
    if not limit:
        hint = "the policy declares no such budget: distance_budget or delta_budget, and then ldpsql budget adopt"
    return BudgetExceeded(
        f"this release costs {who} {what} {show(asked)}, and {show(max(limit - used, 0))} of {show(limit)} is left", hint
    )
