"""Shares: of every value, of the cells of a margin, and of some values or cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ldpsql.questions import (
    NULL,
    NUMBERS,
    Argument,
    Domain,
    Estimates,
    InvalidParameter,
    Kind,
    Lines,
    Margin,
    Question,
    Share,
    hookimpl,
    margin_of,
    python_value,
    share_of,
)

_PEOPLE = dict(zip(("people", "people_error", "people_low", "people_high"), NUMBERS, strict=True))


@dataclass(frozen=True)
class AllShares(Question):
    """The share of every value."""

    name = "estimate"
    summary = "the share of every value, with its error and interval"
    fields = {"value": Kind.VALUE, **NUMBERS}
    rows = True

    def about(self, values: Domain) -> Margin:  # noqa: ARG002  # of any values
        """Return the table of all columns."""
        return Margin(())

    @classmethod
    def measured(cls, functional: Margin, estimates: Estimates) -> Lines:
        """Return the shares of every group, in the order of the values."""
        measure = functional.measure(estimates)
        numbers: dict[str, Any] = {name: getattr(measure, name) for name in NUMBERS}
        return Lines.of_numbers({"value": np.arange(measure.estimate.shape[1]), **numbers})


@dataclass(frozen=True)
class PeopleByValue(AllShares):
    """The share of every value, and the number of people who have it: the share of all who reported."""

    name = "people"
    summary = "the number of people with each value, with its error and interval, beside the share"
    fields = {**AllShares.fields, **dict.fromkeys(_PEOPLE, Kind.NUMBER)}

    @classmethod
    def measured(cls, functional: Margin, estimates: Estimates) -> Lines:
        """Return the shares and the numbers of every group; what the reports say nothing about is unknown."""
        if estimates.likelihood.weights is not None:
            raise InvalidParameter("people are counted without weights", "multiply weighted shares by the sum of the weights")
        measure, people = functional.measure(estimates), estimates.likelihood.n[:, None]
        shares: dict[str, Any] = {name: getattr(measure, name) for name in NUMBERS}
        known = np.where(np.isfinite(measure.std_error), people, np.nan)
        numbers = {name: shares[own] * known for name, own in _PEOPLE.items()}
        return Lines.of_numbers({"value": np.arange(measure.estimate.shape[1]), **shares, **numbers})


@dataclass(frozen=True)
class SharesOfMargin(AllShares):
    """The table of some of the columns, or of all; with ``given``, shares among the rows with the same values there."""

    name = "margin"
    summary = "the table of some of the columns; with given, of shares among the rows with the same values there"
    typed_by = "columns"
    columns: Argument = NULL
    given: Argument = NULL

    def about(self, values: Domain) -> Margin:
        """Return the table of these columns."""
        return margin_of(values, python_value(self.columns), python_value(self.given))

    def unit(self, values: Domain) -> Domain:
        """Return the cells of the table."""
        return self.about(values).cells(values)


@dataclass(frozen=True)
class ShareOfValues(Question):
    """The share of some values or cells, of all or of those in which a condition holds."""

    name = "share"
    summary = (
        "the share of some values of columns, of all or where a condition on other columns holds, with its error and interval"
    )
    of: Argument
    given: Argument = NULL

    def about(self, values: Domain) -> Share:
        """Return the share."""
        return share_of(values, self.of, self.given)


@hookimpl
def ldpsql_questions() -> list[type[Question]]:
    """Offer the four."""
    return [AllShares, PeopleByValue, SharesOfMargin, ShareOfValues]
