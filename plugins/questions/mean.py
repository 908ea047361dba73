"""The mean of numbers, dates or times."""

from __future__ import annotations

from dataclasses import dataclass

from ldpsql.questions import NUMBERS, RANGE, Domain, Kind, Mean, Question, QuestionOfColumn, hookimpl


@dataclass(frozen=True)
class MeanOfValues(QuestionOfColumn):
    """The mean of the values: of dates a time, with an error in days; of times a time, with an error in seconds."""

    name = "mean"
    summary = "the mean of the values, with its error and interval"
    fields = {**NUMBERS, **dict.fromkeys(RANGE, Kind.MEAN)}

    def about(self, values: Domain) -> Mean:
        """Return the mean, of all or where the condition holds."""
        return Mean(*self.where(values))


@hookimpl
def ldpsql_questions() -> list[type[Question]]:
    """Offer the mean."""
    return [MeanOfValues]
