"""Damage a ledger, one bit or one field at a time, and look at what it makes of that.

    python -m tests.stress.damage --flips 1500

Each damaged copy must be refused by ``check``, or mean exactly what it meant before; and whether it was checked or not, nobody
whose budget is spent may be charged again, and no release may be taken up that was not written down. A field is edited as by
another program that does not know the seals: set to another value of each type, and each row is deleted and doubled.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

from ldpsql.errors import LdpError, LedgerError
from ldpsql.functions import registry
from ldpsql.ledger import Ledger, Policy
from ldpsql.mechanisms.base import Mechanism

USERS = [f"user {number}" for number in range(300)]


def krr(epsilon: str) -> Mechanism:
    return registry().mechanism(f"krr(epsilon='{epsilon}', domain=['a', 'b'])")


def fill(path: Path, unit: str) -> None:
    """Make a ledger in which the budget of everybody is spent, with one release that was not published."""
    ledger = Ledger.open(path, Policy(epsilon_budget=2, privacy_unit=unit, column_groups={"place": ("city",)}))
    for number, epsilon in enumerate(("0.5", "1", "0.5")):
        release = ledger.charge("people", {"city": krr(epsilon)}, f"reports {number}", users=users_of(unit))
        if number < 2:
            ledger.publish(release)


def users_of(unit: str) -> list[str] | None:
    return None if unit == "row" else USERS


def meaning(path: Path) -> tuple[Any, ...]:
    """Return everything that a ledger says."""
    ledger = Ledger.open(path)
    return ledger.policies(), [astuple(balance) for balance in ledger.balances()], ledger.history()


def outcome(path: Path, unit: str, before: tuple[Any, ...]) -> str:
    """Return what a ledger makes of its damage: found, harmless, or what must not be."""
    try:
        Ledger.open(path).check()
        verdict = "harmless" if meaning(path) == before else "NOT FOUND"
    except LedgerError:
        verdict = "found"
    except Exception as error:  # noqa: BLE001  # what must not be
        verdict = f"BARE {type(error).__name__}"
    return charged_again(path, unit, before) or verdict


def charged_again(path: Path, unit: str, before: tuple[Any, ...]) -> str | None:
    """Charge a user, or a row, who has nothing left, and take up a release that was published."""
    users, tokens = users_of(unit), {row["release"] for row in before[2] if row["state"] == "charged"}
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("1", "elsewhere", {"users": users and users[:1]}),
        ("0.5", "reports 0", {"users": users, "resume": True}),
        ("0.5", "reports 2", {"users": users, "resume": True}),
    ]
    for epsilon, destination, options in asked:
        try:
            release = Ledger.open(path).charge("people", {"city": krr(epsilon)}, destination, **options)
        except LdpError:
            continue
        except Exception as error:  # noqa: BLE001  # what must not be
            return f"BARE {type(error).__name__} in a charge"
        if not release.stored and release.token not in tokens:
            return "CHARGED AGAIN"
    return None


def flips(data: bytes, count: int) -> Iterator[bytes]:
    """Yield copies of a file with one bit of it flipped."""
    for bit in random.sample(range(8 * len(data)), count):
        copy = bytearray(data)
        copy[bit // 8] ^= 1 << bit % 8
        yield bytes(copy)


def other_values(value: Any) -> list[Any]:
    """Return what an edit may write in the place of a value."""
    if isinstance(value, int):
        return [value + 1, max(value - 1, 0), 0, -value, str(value), float(value) + 0.5, None]
    if isinstance(value, bytes):
        return [value[:-1], value[::-1], bytes(len(value)), b"", value.hex(), None]
    if isinstance(value, str):
        return [f"{value} ", value.upper(), value[1:], "", value.encode(), None]
    return [0, 1, "", b""]


def edits(path: Path) -> Iterator[tuple[str, list[Any]]]:
    """Yield a statement for each edit of each field of each row, for each row that is deleted, and doubled."""
    with sqlite3.connect(path) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            columns = [column[1] for column in db.execute(f"PRAGMA table_info({table})")]
            keys = [column[1] for column in db.execute(f"PRAGMA table_info({table})") if column[5]] or ["rowid"]
            names = ", ".join([*keys, *columns])
            for row in db.execute(f"SELECT {names} FROM {table} LIMIT 8").fetchall():
                key, where = list(row[: len(keys)]), " AND ".join(f"{name} = ?" for name in keys)
                yield f"DELETE FROM {table} WHERE {where}", key
                for column, value in zip(columns, row[len(keys) :], strict=True):
                    for other in other_values(value):
                        yield f"UPDATE {table} SET {column} = ? WHERE {where}", [other, *key]
            yield f"DELETE FROM {table}", []
            everything = ", ".join("NULL" if column == "id" else column for column in columns)
            yield f"INSERT INTO {table} SELECT {everything} FROM {table} LIMIT 1", []
    db.close()


def edit(path: Path, statement: str, values: list[Any]) -> bool:
    """Run an edit; tell whether it changed anything: SQLite refuses some, and stores '7' as 7."""
    db = sqlite3.connect(path)
    try:
        before = list(db.iterdump())
        db.execute(statement, values)
        db.commit()
        return list(db.iterdump()) != before
    except sqlite3.Error:  # NOT NULL, UNIQUE
        return False
    finally:
        db.close()


def damage(folder: Path, unit: str, count: int) -> Counter[str]:
    """Try all edits and so many flips on a ledger that charges by a unit."""
    whole, copy, outcomes = folder / "whole", folder / "copy", Counter[str]()
    fill(whole, unit)
    before = meaning(whole)
    for statement, values in list(edits(whole)):
        shutil.copy(whole, copy)
        if edit(copy, statement, values):
            verdict = outcome(copy, unit, before)
            outcomes[f"edits {verdict}"] += 1
            if verdict != "found":
                print(unit, statement, verdict, flush=True)
    for data in flips(whole.read_bytes(), count):
        for leftover in folder.glob("copy*"):
            leftover.unlink()
        copy.write_bytes(data)
        outcomes[f"flips {outcome(copy, unit, before)}"] += 1
    return outcomes


def stress(count: int) -> dict[str, Counter[str]]:
    """Damage a ledger of rows and one of users."""
    outcomes = {}
    for unit in ("row", "user_id"):
        with tempfile.TemporaryDirectory() as folder:
            outcomes[unit] = damage(Path(folder), unit, count)
    return outcomes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=200)
    outcomes = stress(parser.parse_args().flips)
    for unit, counted in outcomes.items():
        print(unit, dict(sorted(counted.items())))
    raise SystemExit(any(key.split()[1] not in ("found", "harmless") for counted in outcomes.values() for key in counted))
