"""Read a ledger: its balances, its history, its policies, and whether it adds up."""

from __future__ import annotations

import json
import sqlite3
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldpsql.engine.identity import is_called, without_secrets
from ldpsql.ledger.entries import RETURNED, SHUFFLED, STATE, now_of, policy_of
from ldpsql.ledger.file import CHARGED, check_entries, damaged, load
from ldpsql.ledger.people import DIGEST
from ldpsql.ledger.policy import PERMANENT, ROW, UNPUBLISHED, Policy, delta_text, epsilon_text

_HISTORY = (
    *("at", "release", "dataset", "source", "part", "destination", "column", "column_group", "mechanism", "claim"),
    *("currency", "epsilon", "delta", "users", "reports", "state"),
)


@dataclass(frozen=True)
class Balance:
    """What the person who spent most has spent in a group of columns, and what that person has left, as decimal text."""

    unit: str
    dataset: str
    part: str
    column_group: str
    currency: str
    people: int | None
    spent: str
    remaining: str
    spent_delta: str


def balances(db: sqlite3.Connection) -> list[Balance]:
    """Return what is spent and what is left in every account of a name that people give to data."""
    policy, _ = policy_of(db)
    opened = now_of(db) - policy.window if policy.window is not None else -1
    accounts = "SELECT id, unit, dataset, part, column_group, currency FROM account WHERE currency NOT IN (?, ?) ORDER BY id"
    rows = db.execute(accounts, [PERMANENT, UNPUBLISHED]).fetchall()
    return [_balance(load(db, account), opened, policy, names) for account, *names in rows if is_called(names[1])]


def _balance(people: NDArray[np.void], opened: int, policy: Policy, names: list[str]) -> Balance:
    unit, dataset, part, group, currency = names
    now = people[people["since"] > opened]
    epsilon, delta = (int(now[name].max(initial=0)) for name in ("epsilon", "delta"))
    left = max(policy.allowance(currency).epsilon - epsilon, 0)
    number = None if unit == ROW else len(people)
    spent = (epsilon_text(epsilon), epsilon_text(left), delta_text(delta))
    return Balance(unit, without_secrets(dataset), part, group, currency, number, *spent)


def history(db: sqlite3.Connection) -> list[dict[str, Any]]:
    """Return every column of every release, oldest first, after a check of all of them."""
    check_entries(db)
    rows = db.execute(
        f"""SELECT release.at, token, release.dataset, source, release.part, destination, c.column_name, a.column_group,
                   c.mechanism, c.claim, a.currency, c.epsilon, c.delta, users, reports, {STATE}
            FROM release JOIN charge c ON c.release = release.id JOIN account a ON a.id = c.account
            GROUP BY release.id, c.column_name ORDER BY release.id, min(c.rowid)"""  # noqa: S608  # constants
    ).fetchall()
    records = [dict(zip(_HISTORY, row, strict=True)) for row in rows]
    for row in records:
        row |= {
            name: without_secrets(row[name]) for name in ("dataset", "source", "destination")
        }  # older ledgers hold whole addresses
        row["claim"], _, row["shuffled"] = row["claim"].partition(SHUFFLED)
        row |= {"at": time_text(row["at"]), "epsilon": epsilon_text(row["epsilon"]), "delta": delta_text(row["delta"])}
    return records


def policies(db: sqlite3.Connection) -> list[dict[str, Any]]:
    """Return the policies, oldest first."""
    rows = db.execute("SELECT at, body FROM policy ORDER BY id").fetchall()
    return [{"at": time_text(at), **json.loads(body)} for at, body in rows]


def check(db: sqlite3.Connection) -> None:
    """Check that the file is whole, every row is as it was written, and every account has spent what releases were charged."""
    if db.execute("PRAGMA integrity_check").fetchall() != [("ok",)] or db.execute("PRAGMA foreign_key_check").fetchall():
        raise damaged("tables")
    check_entries(db)
    charged = db.execute(
        f"""SELECT a.id, a.currency,
                   coalesce(sum(c.epsilon * coalesce(r.reports, 1)), 0), coalesce(sum(c.delta * coalesce(r.reports, 1)), 0)
            FROM account a LEFT JOIN (SELECT * FROM charge WHERE release NOT IN ({RETURNED})) c ON c.account = a.id
            LEFT JOIN release r ON r.id = c.release GROUP BY a.id"""  # noqa: S608  # constants
    ).fetchall()
    for account, currency, epsilon, delta in charged:
        if currency in (PERMANENT, UNPUBLISHED):
            load(db, account, kind=DIGEST if currency == PERMANENT else CHARGED)
            continue
        people = load(db, account)
        if (_total(people["epsilon_ever"]), _total(people["delta_ever"])) != (epsilon, delta):
            raise damaged("people")


def _total(numbers: NDArray[np.int64]) -> int:
    """Return a sum that may be larger than 64 bits."""
    return (int((numbers >> 32).sum()) << 32) + int((numbers & 0xFFFFFFFF).sum())


def time_text(micros: int) -> str:
    """Return a time in microseconds as a date and a time of day, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(micros // 10**6))
