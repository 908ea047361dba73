"""Estimators of tables that begin at a model of few parameters and leave it as far as held-out reports say."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from ldpsql.errors import IllConditioned, NotApplicable
from ldpsql.estimators.base import Estimator
from ldpsql.estimators.iteration import IterativeEstimator, StopField
from ldpsql.estimators.resampling import Split
from ldpsql.inference.counting import margin, summed
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Floats
from ldpsql.inference.outcome import Fit, Status, simplex_projection
from ldpsql.inference.solver.mle import em_step, uniform

FOLDS = 3
CELLS = 4_000_000  # of groups x folds x cells, for the groups that are estimated together
STEPS = 30  # if margins can neither be estimated by themselves nor inverted
EVEN = 1e-6  # of the start is shared equally by all cells, so that no cell is ruled out


class TableEstimator(IterativeEstimator):
    """An estimator of the joint table of several columns: an implementation sets ``name`` and `model`.

    Steps of IBU lead from the model to the maximum of the likelihood. 'held_out' takes as many as best predict held-out
    reports, with a model of the other reports; 0 takes none.
    """

    stop: StopField = Field("held_out", description="'held_out', a number of steps from the model, 'paper' or 'certified'")
    max_iterations: Annotated[int, Field(ge=1, le=10_000_000)] = Field(1000, description="most steps")
    least_gain: ClassVar[float] = 0.1  # of more steps: they begin at a model, and a few too many do little harm
    start: ClassVar[None] = None  # type: ignore[misc]  # it is the model

    @abstractmethod
    def model(self, likelihood: Likelihood) -> Floats:
        """Return the shares of all cells under the model for every group, shape (groups, cells)."""

    @abstractmethod
    def plain(self) -> Estimator:
        """Return the estimator of reports of one column."""

    def fit(self, likelihood: Likelihood) -> Fit:
        """Estimate every group from its model on."""
        if len(likelihood.variables) < 2:
            return self.plain().fit(likelihood)
        together = max(1, CELLS // (FOLDS * likelihood.operator.inputs))
        return self.each(likelihood, lambda part: self.stepped(part, Status.REGULARISED), together)

    def folds(self, likelihood: Likelihood) -> int:  # noqa: ARG002  # a table has many cells
        return FOLDS

    def started(self, likelihood: Likelihood) -> Floats:
        return (1.0 - EVEN) * self.model(likelihood) + EVEN / likelihood.operator.inputs

    def started_folds(self, parts: Split, start: Floats) -> Floats:  # noqa: ARG002  # it depends on all reports
        """Return the model of what each fold is predicted from."""
        return self.started(parts.learnt)


def shares_of(likelihood: Likelihood, columns: Sequence[int], estimator: Estimator) -> Floats:
    """Return the estimated table of some columns, given by rising numbers, for every group: shape (groups, cells of these)."""
    part = margin(likelihood, columns)
    if part is not None:
        return estimator.fit(part).theta
    return simplex_projection(summed(rough(likelihood), [variable.size for variable in likelihood.variables], columns))


def rough(likelihood: Likelihood) -> Floats:
    """Return shares of all cells whose sums are nearly unbiased; single ones may be negative."""
    try:
        return likelihood.operator.invert(likelihood.shares)
    except (IllConditioned, NotApplicable):
        theta = uniform(likelihood)
        for _ in range(STEPS):
            theta = em_step(likelihood, theta)
        return theta


def outer(tables: Sequence[Floats]) -> Floats:
    """Return the product of the shares of columns, each of shape (groups, values): shape (groups, cells)."""
    out = np.ones((len(tables[0]), 1))
    for own in tables:
        out = (out[:, :, None] * own[:, None, :]).reshape(len(out), -1)
    return out


def mutual_information(table: Floats) -> float:
    """Return the mutual information of two columns in nats, from the shares of their table, shape (values, values)."""
    alone = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True)
    seen = table > 0
    return float((table[seen] * np.log(table[seen] / alone[seen])).sum())
