"""A raw column, the outcome, by the values of a perturbed one, and regressions on perturbed columns and raw ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ldpsql.questions import (
    INV,
    NULL,
    NUMBERS,
    TESTED,
    Argument,
    Asked,
    Corrected,
    Design,
    Domain,
    InvalidParameter,
    Kind,
    Lines,
    Moments,
    Question,
    QuestionOfOutcome,
    Source,
    by_value,
    hookimpl,
    linear,
    logistic,
    named_columns,
    one_mechanism,
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


FAMILIES = ("linear", "logistic")


@dataclass(frozen=True)
class Regression(Question):
    """The coefficients of perturbed columns, all or ``of``, and of raw regressors, with sandwich errors."""

    name = "regression"
    summary = "the coefficients of a linear or logistic regression of a raw column on perturbed columns and raw ones"
    fields = {"term": Kind.TEXT, **TESTED}
    rows = True
    options = {"confidence": "NULL"}
    raw = {"outcome": None, "regressors": "NULL"}
    family: Argument = pa.scalar("linear")
    numbers: Argument = pa.scalar(False)
    interactions: Argument = pa.scalar(False)
    of: Argument = NULL

    def about(self, values: Domain) -> Regression:
        """Return the question.

        Raises:
            InvalidParameter: if there is no such family.

        """
        if python_value(self.family) not in FAMILIES:
            raise InvalidParameter(f"family must be one of {', '.join(FAMILIES)}", "family := 'linear'")
        named_columns(values, self.of)
        return self

    def check(self, source: Source) -> None:
        """Refuse reports of mechanisms by level."""
        one_mechanism(source)

    @classmethod
    def estimator(cls, source: Source) -> str:  # noqa: ARG003
        """Return the inversion, which estimating equations take."""
        return INV

    @classmethod
    def adds_up(cls, arguments: Mapping[str, Any]) -> bool:
        """Return whether the regression is linear."""
        return FAMILIES[1] not in str(arguments.get("family"))

    @classmethod
    def estimated(cls, asked: Asked, counts: Any) -> Iterator[tuple[Any, Lines]]:
        """Yield a line for each coefficient of each group."""
        own, source, confidence = asked.functional, asked.source, asked.estimator.confidence
        names, places = named_columns(cls.values(source), own.of)
        numbers, interactions = (bool(python_value(option)) for option in (own.numbers, own.interactions))
        design = Design.of(source, names, places, counts.names, numbers=numbers, interactions=interactions)
        is_linear = python_value(own.family) == FAMILIES[0]
        if not is_linear and isinstance(counts, Moments):
            raise InvalidParameter("a logistic regression needs rows, not their sums", "pass the report and the outcome")
        for each in counts.each():
            fit = (linear if is_linear else logistic)(source, each.sums() if is_linear else each, design, confidence)
            columns = {name: column[None] for name, column in fit._asdict().items()}
            lines = Lines.of_numbers(columns)
            yield each.groups, lines._replace(columns={"term": pa.array(design.terms), **lines.columns})


@hookimpl
def ldpsql_questions() -> list[type[Question]]:
    """Offer the outcome by value and the regression."""
    return [OutcomeByValue, Regression]
