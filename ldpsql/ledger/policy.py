"""The policy of a ledger and the cost of a release, in whole numbers: micro-epsilons, and delta in units of 1e-15.

Costs are rounded up and budgets down, so that sums never allow more than the declared budget.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, field_validator

from ldpsql.errors import BadSettings
from ldpsql.mechanisms.spec import EXACT, EpsilonField, Spec, decimal_text, number
from ldpsql.privacy.claims import Claim, MetricLdp

MICRO, _FEMTO = 10**6, 10**15
_LARGEST = 10**6
_WINDOW = re.compile(r"([1-9][0-9]{0,4}) (hour|day|week)s?", re.ASCII)
_SECONDS = {"hour": 3600, "day": 86400, "week": 7 * 86400}

EPSILON, PER_DISTANCE = "epsilon", "epsilon per unit of distance"
PERMANENT = "permanent reports"  # the accounts of this currency hold fingerprints of reports instead of people
UNPUBLISHED = "unpublished reports"  # and of this one: the people of one release, until it is published or given back
REST = "all"  # the group of the columns that no group names
ROW = "row"  # the unit of privacy if each row is one person


def _budget(argument: Any) -> Fraction:
    budget = number(argument)
    if not Fraction(1, MICRO) <= budget <= _LARGEST:
        raise ValueError("must lie between 0.000001 and 1000000")
    return budget


def _delta(argument: Any) -> Fraction:
    delta = number(argument)
    if not 0 <= delta < 1:
        raise ValueError("must lie between 0 and 1")
    return delta


def duration(text: object) -> int:
    """Return the microseconds of a number of hours, days or weeks.

    >>> duration("2 days")
    172800000000
    """
    match = _WINDOW.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError("must be a number of hours, days or weeks, such as '30 days'")
    return int(match[1]) * _SECONDS[match[2]] * 10**6


def _window(argument: Any) -> str:
    duration(argument)
    return str(argument)


BudgetField = Annotated[Fraction, BeforeValidator(_budget), EXACT]
DeltaField = Annotated[Fraction, BeforeValidator(_delta), EXACT]
WindowField = Annotated[str, BeforeValidator(_window)]


@dataclass(frozen=True)
class Cost:
    """The cost of reports for one person: micro-epsilons and delta in units of 1e-15, in one currency.

    Epsilon and epsilon per unit of distance cannot be added, so each currency has its own accounts.
    """

    currency: str
    epsilon: int
    delta: int = 0

    @classmethod
    def of(cls, claim: Claim) -> Cost:
        """Return the cost of one report under a claim, rounded up."""
        currency = PER_DISTANCE if isinstance(claim, MetricLdp) else EPSILON
        return cls(currency, ceil(claim.epsilon.value * MICRO), ceil(claim.delta * _FEMTO))

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.currency, self.epsilon + other.epsilon, self.delta + other.delta)


class Policy(Spec):
    """The budget of one person for each group of columns.

    Within a group the costs of all reports of a person add up (sequential composition); two persons share nothing (parallel
    composition). A column that no group names belongs to the group ``all``: by default, all columns are assumed to depend on
    the same secret.
    """

    kind: ClassVar[str] = "policy"
    name: ClassVar[str] = "ledger"

    epsilon_budget: BudgetField = Field(description="the epsilon of one person in one group of columns")
    budget_window: WindowField | None = Field(
        None, description="time after its first charge when the budget is renewed: '30 days'"
    )
    max_epsilon_per_report: EpsilonField | None = Field(None, description="the largest epsilon of one report")
    privacy_unit: str = Field(ROW, min_length=1, description="'row': each row is one person; else the column of user ids")
    delta_budget: DeltaField = Field(Fraction(0), description="the delta of one person in one group of columns")
    distance_budget: BudgetField | None = Field(
        None, description="the budget of claims per unit of distance; without it, they are refused"
    )
    column_groups: Mapping[str, tuple[str, ...]] = Field({}, description="columns that share one budget, under its name")

    @field_validator("column_groups")
    @classmethod
    def _disjoint(cls, groups: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        columns = [column.casefold() for group in groups.values() for column in group]
        if len(set(columns)) < len(columns):
            raise ValueError("a column must not be in two groups")
        return groups

    def group(self, column: str) -> str:
        """Return the group of a column; SQL does not distinguish lowercase and uppercase letters in its name."""
        groups = {one.casefold(): name for name, columns in self.column_groups.items() for one in columns}
        return groups.get(column.casefold(), REST)

    def allowance(self, currency: str) -> Cost:
        """Return what one person may spend in a group, rounded down; zero if no budget is declared."""
        budget = self.epsilon_budget if currency == EPSILON else self.distance_budget or Fraction(0)
        return Cost(currency, int(budget * MICRO), int(self.delta_budget * _FEMTO))

    @property
    def window(self) -> int | None:
        """The length of the window in microseconds."""
        return None if self.budget_window is None else duration(self.budget_window)


def epsilon_text(micro: int) -> str:
    """Return micro-epsilons as a decimal number."""
    return _trimmed(Fraction(micro, MICRO))


def delta_text(femto: int) -> str:
    """Return a delta in units of 1e-15 as a decimal number."""
    return _trimmed(Fraction(femto, _FEMTO))


def _trimmed(value: Fraction) -> str:
    text = decimal_text(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


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
