"""What other processes run that spend one budget: they load this module only, and not that of the tests."""

from __future__ import annotations

from pathlib import Path

from ldpsql.errors import BudgetExceeded
from ldpsql.ledger import Ledger, Policy
from ldpsql.mechanisms.base import Mechanism
from ldpsql.registry.registry import registry


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
