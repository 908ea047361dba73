"""The variance of numbers, dates or times."""

from __future__ import annotations

from dataclasses import dataclass

from ldpsql.questions import Domain, Question, QuestionOfColumn, VarianceOf, hookimpl


@dataclass(frozen=True)
class Variance(QuestionOfColumn):
    """The variance of the values in their unit squared: days for dates, seconds for times."""

    name = "variance"
    summary = "the variance of the values, with its error and interval"

    def about(self, values: Domain) -> VarianceOf:
        """Return the variance, of all or where the condition holds."""
        return VarianceOf(*self.where(values))


@hookimpl
def ldpsql_questions() -> list[type[Question]]:
    """Offer the variance."""
    return [Variance]
