"""A raw column, the outcome, by the values of a perturbed one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ldpsql.questions import (
    NULL,
    NUMBERS,
    Argument,
    Asked,
    Corrected,
    InvalidParameter,
    Kind,
    Lines,
    Question,
    QuestionOfOutcome,
    by_value,
    hookimpl,
    python_value,
)


@dataclass(frozen=True)
class OutcomeByValue(QuestionOfOutcome):
    """The mean, sum or variance of the outcome for each value, the weighted share, or the difference from one value's mean."""

    name = "outcome"
    summary = "the mean, sum or variance of a raw column for each value of a perturbed one, or the weighted share of each value"
    fields = {"value": Kind.VALUE, **NUMBERS, "effective_reports": Kind.NUMBER}
    rows = True
    options = {"estimator": "NULL", "confidence": "NULL", "intervals": "NULL"}
    measure: Argument = pa.scalar("mean")
    versus: Argument = NULL

    def of_sums(self, sums: Corrected, asked: Asked) -> Lines:
        """Return the number for each value.

        Raises:
            InvalidParameter: if there is no such measure, or the value to compare with is not in the domain.

        """
        versus = asked.unit.locate(pa.array([self.versus]))[0].as_py() if self.versus.is_valid else None
        if self.versus.is_valid and versus is None:
            raise InvalidParameter("the value to compare with is not in the domain", "versus is one of the values")
        number = by_value(sums, python_value(self.measure), versus, asked.estimator)
        numbers: dict[str, Any] = {name: getattr(number, name)[None] for name in NUMBERS}
        places = np.arange(len(asked.unit))[None]
        lines = Lines.of_numbers({"value": places, **numbers, "effective_reports": np.array([[sums.effective]])})
        # The interval is known also if the error is not.
        ends = {name: pa.array(numbers[name][0], from_pandas=True) for name in ("low", "high")}
        return lines._replace(columns={**lines.columns, **ends})


@hookimpl
def ldpsql_questions() -> list[type[Question]]:
    """Offer the outcome by value."""
    return [OutcomeByValue]
