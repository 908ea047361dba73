"""How often a policy collects from a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ldpsql.errors import BadSettings
from ldpsql.ledger.policy import duration

ONCE = "once"
YEAR = duration("365 days")


def frequency_of(name: str, table: Mapping[str, Any]) -> int | None:
    """Return the time between two collections in microseconds, 0 for a single one; None if the policy of a table does not say.

    Raises:
        BadSettings: if it is neither 'once' nor a number of hours, days or weeks.

    """
    text = table.get("frequency")
    if text is None or text == ONCE:
        return None if text is None else 0
    try:
        return duration(text)
    except ValueError:
        refusal = BadSettings(
            f"frequency in [tables.{name}] must be 'once' or a number of hours, days or weeks",
            "for example frequency = '30 days'",
        )
    raise refusal


def rounds_in_a_year(frequency: int | None) -> int | None:
    """Return the number of collections in the 365 days from the first one; None if the policy does not say."""
    if frequency is None:
        return None
    return -(-YEAR // frequency) if frequency else 1
