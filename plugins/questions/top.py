"""The most frequent values of a domain, however large it is."""

from __future__ import annotations

from dataclasses import dataclass

from ldpsql.questions import (
    NUMBERS,
    Argument,
    Domain,
    Estimates,
    Kind,
    Lines,
    Question,
    Source,
    checked_count,
    estimator_of_top,
    hookimpl,
    python_value,
    tops,
)


@dataclass(frozen=True)
class Top(Question):
    """The most frequent values, the most frequent first.

    Over many values the estimates are shrunk, so that their sum is nearly unbiased although the reports chose the values.
    """

    name = "top"
    summary = "the most frequent values, with intervals that hold together, and the best and the worst rank that each may have"
    fields = {"rank": Kind.WHOLE, "value": Kind.VALUE, **NUMBERS, "best_rank": Kind.WHOLE, "worst_rank": Kind.WHOLE}
    rows = True
    most: Argument

    def about(self, values: Domain) -> int:  # noqa: ARG002  # all have a top
        """Return how many values are asked for."""
        return checked_count(python_value(self.most))

    @classmethod
    def estimator(cls, source: Source) -> str:
        """Return empirical Bayes for many values: the largest inverted shares are too large, the likeliest ones too small."""
        return estimator_of_top(source)

    @classmethod
    def measured(cls, functional: int, estimates: Estimates) -> Lines:
        """Return the most frequent values of every group."""
        return Lines.of_numbers(tops(estimates, functional))


@hookimpl
def ldpsql_questions() -> list[type[Question]]:
    """Offer the top."""
    return [Top]
