"""What other processes run that spend one budget: they load this module only, and not that of the tests."""

from __future__ import annotations

from multiprocessing.synchronize import Event
from pathlib import Path

import polars as pl

from ldpsql import Charge, Key, Mechanism, perturb_once
from ldpsql.errors import BudgetExceeded
from ldpsql.functions import registry
from ldpsql.ledger import Ledger, Policy

DAYS = 365
YEAR = {
    "same": "krr(epsilon=1, domain=[0, 1, 2, 3, 4])",
    "few": "krr(epsilon=1, domain=[0, 1, 2, 3, 4])",
    "hashed": "loloha(permanent=1, once=0.5, domain=[0, 1, 2, 3, 4], symbols=2)",
}


def few(day: int, people: int) -> list[int]:
    """Return the value of each person on a day: one to five different values in a year."""
    return [day * 3 % (1 + person % 5) for person in range(people)]


def report_a_year(folder: Path, people: int, started: Event) -> None:
    """Give the permanent reports of every day that has not been reported yet; say so after ten of them."""
    ledger, key = Ledger.open(folder / "ledger"), Key.read(folder / "key")
    left = [day for day in range(DAYS) if not (folder / str(day)).exists()]
    for day in left:
        frame = pl.DataFrame({"id": range(people), "same": [1] * people, "few": few(day, people), "hashed": few(day, people)})
        perturb_once(frame, YEAR, key=key, user="id", charge=Charge(ledger, "people"))
        (folder / str(day)).touch()
        if day == left[10]:
            started.set()


def krr(epsilon: str) -> Mechanism:
    return registry().mechanism(f"krr(epsilon='{epsilon}', domain=['a', 'b'])")


def spend_alone(path: Path, worker: int, charges: int) -> None:
    """Try to charge so many times."""
    ledger = Ledger.open(path, Policy(epsilon_budget=1))
    for number in range(charges):
        try:
            ledger.publish(ledger.charge("people", {"city": krr("0.01")}, f"{worker} {number}"))
        except BudgetExceeded:
            continue


def report_forever(path: Path, key: Path, started: Event) -> None:
    """Give permanent reports of fifty people, day after day, until somebody kills this process."""
    ledger, read = Ledger.open(path), Key.read(key)
    frame = pl.DataFrame({"id": [at % 50 for at in range(250)], "city": ["abcde"[at // 50] for at in range(250)]})
    while True:
        mechanism = "krr(epsilon=1, domain=['a', 'b', 'c', 'd', 'e'])"
        perturb_once(frame, {"city": mechanism}, key=read, user="id", charge=Charge(ledger, "people"))
        started.set()
