"""The variance of numbers, dates or times."""

from __future__ import annotations

from dataclasses import dataclass

from ldpsql.questions import Domain, Question, QuestionOfColumn, Variance, hookimpl


@dataclass(frozen=True)
class VarianceOfValues(QuestionOfColumn):
    """The variance of the values in their unit squared: days for dates, seconds for times."""

    name = "variance"
    summary = "the variance of the values, with its error and interval"

    def about(self, values: Domain) -> Variance:
        """Return the variance, of all or where the condition holds."""
        return Variance(*self.where(values))


@hookimpl
def ldpsql_questions() -> list[type[Question]]:
    """Offer the variance."""
    return [VarianceOfValues]
