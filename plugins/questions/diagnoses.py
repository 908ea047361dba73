"""How far an estimate can be trusted, and which estimator suits the reports best."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ldpsql.functions import read_estimator
from ldpsql.questions import (
    Argument,
    Asked,
    Diagnosis,
    Domain,
    Estimate,
    Estimates,
    GroupedCounts,
    InvalidParameter,
    Kind,
    Lines,
    Question,
    SimulatedError,
    Simulation,
    fields_of,
    hookimpl,
    of_lists,
    python_value,
    simulated_errors,
    without_impossible,
)

_UNKNOWN = {"reports": 0, "status": "no reports", "remedy": "none of these can be a report of this mechanism"}
_RANGE = {"value": Kind.TEXT, "low": Kind.NUMBER, "high": Kind.NUMBER}


@dataclass(frozen=True)
class Trust(Question):
    """How far an estimate can be trusted, with the range of each share among all maxima of the likelihood."""

    name = "diagnose"
    summary = "how far an estimate can be trusted"
    fields = {**fields_of(Diagnosis), "identified": _RANGE | {"value": Kind.VALUE}}
    options = {"estimator": "'ibu(misfit=''allow'')'", "prior": "NULL"}

    def about(self, values: Domain) -> None:
        """Return nothing: it is about all values."""

    @classmethod
    def estimated(cls, asked: Asked, counts: GroupedCounts) -> Iterator[tuple[Any, Lines]]:
        """Yield the diagnoses of all groups; reports that cannot occur are left out and counted."""
        rest, left_out = without_impossible(of_lists(asked.source, counts.reports.type), counts)
        impossible = dict(zip(counts.groups.tolist(), left_out.tolist(), strict=True))
        for groups, lines in super().estimated(asked, rest) if len(rest.groups) else ():
            number = pa.array([impossible.pop(group) for group in groups.tolist()], pa.int64())
            yield groups, lines._replace(columns={**lines.columns, "impossible": number})
        if impossible:  # groups without any other report
            unknown = [[dict.fromkeys(cls.fields) | _UNKNOWN | {"impossible": number}] for number in impossible.values()]
            yield np.array(list(impossible)), Lines.of_records(cls.fields, unknown)

    @classmethod
    def measured(cls, functional: None, estimates: Estimates) -> Lines:  # noqa: ARG003
        """Return the diagnosis of every group."""
        return Lines.of_records(cls.fields, [[_diagnosed(estimates[group])] for group in range(len(estimates.fit.theta))])


def _diagnosed(one: Estimate) -> dict[str, Any]:
    ranges = [dict(zip(_RANGE, each, strict=True)) for each in zip(one.values.texts, *one.identified, strict=True)]
    return asdict(one.diagnosis) | {"identified": ranges}


@dataclass(frozen=True)
class Estimators(Question):
    """The errors of estimators on reports that are simulated from an estimate."""

    name = "compare_estimators"
    summary = "the errors of estimators on reports that are simulated from an estimate, which `estimator` makes"
    fields = fields_of(SimulatedError)
    rows = True
    options = {"estimator": "'best'"}
    estimators: Argument
    metric: Argument = pa.scalar("mae")
    runs: Argument = pa.scalar(20)

    def about(self, values: Domain) -> Simulation:  # noqa: ARG002  # of any values
        """Return what to simulate."""
        names, metric, runs = (python_value(argument) for argument in (self.estimators, self.metric, self.runs))
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InvalidParameter("the estimators must be a list of their names", "estimators := ['ibu', 'em_mr', 'best']")
        if not isinstance(metric, str) or isinstance(runs, bool) or not isinstance(runs, int):
            raise InvalidParameter("metric must be a name, and runs a whole number", "metric := 'mae', runs := 20")
        return Simulation(tuple(map(read_estimator, names)), metric, runs)

    @classmethod
    def measured(cls, functional: Simulation, estimates: Estimates) -> Lines:
        """Return the errors for every group."""
        groups = range(len(estimates.fit.theta))
        errors = [[asdict(error) for error in simulated_errors(estimates[group], functional)] for group in groups]
        return Lines.of_records(cls.fields, errors)


@hookimpl
def ldpsql_questions() -> list[type[Question]]:
    """Offer the two."""
    return [Trust, Estimators]
