"""Linear and logistic regressions of a raw column on perturbed ones and raw ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ldpsql.questions import (
    INV,
    NULL,
    TESTED,
    Argument,
    Asked,
    Design,
    Domain,
    InvalidParameter,
    Kind,
    Lines,
    Moments,
    Question,
    Source,
    hookimpl,
    linear,
    logistic,
    named_columns,
    one_mechanism,
    python_value,
)

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
    """Offer the regression."""
    return [Regression]
