"""Questions about few columns of a table, asked of the reports of these columns only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from ldpsql.estimators.base import Estimator
from ldpsql.inference.counting import ReportSource
from ldpsql.inference.some_columns import SomeColumns
from ldpsql.mechanisms.base import CertifiedMechanism, Mechanism

if TYPE_CHECKING:
    from ldpsql.estimates.estimate import Estimates

S = TypeVar("S", bound=Mechanism | ReportSource)


class OfColumns(Protocol):
    """A question about columns of a table."""

    @property
    def touched(self) -> frozenset[int]:
        """The places of the columns that the answer depends on; none stands for all."""

    def among(self, places: Sequence[int]) -> Self:
        """Return the same question about a table that has the columns at these places only."""


Q = TypeVar("Q", bound=OfColumns)


def asked(estimates: Estimates, question: Q) -> tuple[Estimates, Q]:
    """Return a question with the estimates of the columns that it touches, or with all if the others cannot be left out."""
    source = estimates.source
    if not isinstance(source, CertifiedMechanism):
        return estimates, question
    (some, _), among = narrowed((source.mechanism, estimates.estimator), question)
    own = estimates.of_columns(some) if isinstance(some, SomeColumns) else None
    return (estimates, question) if own is None else (own, among)


def narrowed(plan: tuple[S, Estimator], question: Q) -> tuple[tuple[S | SomeColumns, Estimator], Q]:
    """Return a question, and what to estimate for it: the table of the columns that it touches, if the others can be left out.

    Args:
        plan: what drew the reports, and the estimator. If one of its options has a number for each cell, the whole table is
            estimated.
        question: a question about the whole table.

    """
    source, estimator = plan
    if not isinstance(source, Mechanism) or estimator.over_all_values:
        return plan, question
    some = SomeColumns.of(source, tuple(question.touched))
    return (plan, question) if some is None else ((some, estimator), question.among(some.places))
