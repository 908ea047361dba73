"""What a ledger tells: balances, history, policies, and whether it adds up."""

from __future__ import annotations

import json
import sqlite3
import time
from dataclasses import dataclass
from typing import Any

from ldpsql.ledger.entries import STATE, now_of, policy_of
from ldpsql.ledger.policy import delta_text, epsilon_text

_HISTORY = (
    *("at", "release", "dataset", "part", "destination", "column", "column_group", "mechanism", "claim"),
    *("currency", "epsilon", "delta", "users", "reports", "state"),
)


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


def balances(db: sqlite3.Connection) -> list[Balance]:
    """Return what is spent and what is left in every account."""
    policy, _ = policy_of(db)
    opened = now_of(db) - policy.window if policy.window is not None else -1
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


def history(db: sqlite3.Connection) -> list[dict[str, Any]]:
    """Return every column of every release, oldest first."""
    rows = db.execute(
        f"""SELECT r.at, r.token, r.dataset, r.part, r.destination, c.column_name, a.column_group, c.mechanism, c.claim,
                   a.currency, c.epsilon, c.delta, r.users, r.reports, {STATE}
            FROM release r JOIN charge c ON c.release = r.id JOIN account a ON a.id = c.account
            GROUP BY r.id, c.column_name ORDER BY r.id, min(c.rowid)"""  # noqa: S608  # constants
    ).fetchall()
    found = [dict(zip(_HISTORY, row, strict=True)) for row in rows]
    for row in found:
        row |= {"at": _time_text(row["at"]), "epsilon": epsilon_text(row["epsilon"]), "delta": delta_text(row["delta"])}
    return found


def policies(db: sqlite3.Connection) -> list[dict[str, Any]]:
    """Return the policies, oldest first."""
    rows = db.execute("SELECT at, body FROM policy ORDER BY id").fetchall()
    return [{"at": _time_text(at), **json.loads(body)} for at, body in rows]


def adds_up(db: sqlite3.Connection) -> bool:
    """Tell whether the file is whole, and every account has spent what its releases were charged."""
    whole = db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    orphans = db.execute("PRAGMA foreign_key_check").fetchall()
    wrong = db.execute(
        """SELECT count(*) FROM (
               SELECT account, sum(c.epsilon * coalesce(r.reports, 1)) AS e, sum(c.delta * coalesce(r.reports, 1)) AS d
               FROM charge c JOIN release r ON r.id = c.release GROUP BY account) AS charged
           FULL JOIN (SELECT account, sum(epsilon_ever) AS e, sum(delta_ever) AS d FROM spent GROUP BY account) AS kept
           ON charged.account = kept.account WHERE charged.e IS NOT kept.e OR charged.d IS NOT kept.d"""
    ).fetchone()
    return whole and not orphans and wrong == (0,)


def _time_text(micros: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(micros // 10**6))
