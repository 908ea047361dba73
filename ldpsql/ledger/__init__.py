"""The ledger of privacy budgets: a file that knows what was spent on whom, and refuses what would be too much."""

from __future__ import annotations

from ldpsql.ledger.book import Ledger
from ldpsql.ledger.entries import Release
from ldpsql.ledger.policy import Policy
from ldpsql.ledger.statements import Balance

__all__ = ["Balance", "Ledger", "Policy", "Release"]
