"""The ledger of privacy budgets: a file that records what each person has spent, and refuses what exceeds a budget."""

from __future__ import annotations

from ldpsql.ledger.book import Ledger
from ldpsql.ledger.entries import Release
from ldpsql.ledger.policy import Policy
from ldpsql.ledger.statements import Balance

__all__ = ["Balance", "Ledger", "Policy", "Release"]
