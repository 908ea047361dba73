"""The mean of the estimators that predict held-out reports best."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from ldpsql.estimators import (
    COMPARING,
    Estimator,
    Fit,
    Floats,
    Likelihood,
    NotApplicable,
    Status,
    certain_parts,
    compared,
    hookimpl,
    simplex_projection,
    split,
    unlike_equal,
    within_part,
)
from ldpsql.functions import registry
from ldpsql.questions import OF_PLACES, MetricName, Simulation, compare_simulated, metric_named

SHRUNK = ("empirical_bayes(loss='both')",)
STOPPED = ("ibu(stop='paper', tolerance=0.001)", "ibu(stop='held_out')")
POOLED = (*SHRUNK, "pool")
# By how much a value makes its own report more likely, and from there on, what there is besides shrinking.
NAMED = ((0.5, (*SHRUNK, "ibu", "inv_p")), (0.25, ("empirical_bayes", "inv_p")), (0.0, SHRUNK))
# The paper's stop is late for channels that blur neighbours; a smoothed estimate hardly moves after a thousand steps.
SMOOTHED = "ibu(stop='held_out', max_iterations={})", "ems(stop='held_out', max_iterations={})"
# For values on a line, the rougher the later: what is rougher has to predict better, because most channels hide it.
SMOOTH = ("ems(max_iterations={})", SMOOTHED[1])
LATE = "ibu(stop='paper', tolerance=0.001, max_iterations={})"
FINER = ("ems(max_iterations={}, weight=0.0625)",), ("ems(max_iterations={}, weight=0.015625)", SMOOTHED[0], LATE)
# With em_mr among them, of 24 cells of numbers (64 bins, 20,000 reports) none got better, and three worse by 10 to 32 %.
ROUGH = ("pool(neighbours='ignore')", *SHRUNK, "ibu")
# Few shares do not show how shares are distributed, so shrinking may lose. An early stop is the other candidate: ibu that does
# not stop, or as held-out reports say, was worse on six families of shapes of 2 to 60 values.
FEW_VALUES, FEW = 60, (*SHRUNK, STOPPED[0])
# If 1.5 errors are enough, 14 of 204 cells (3 to 50 values, 500 to 50,000 reports, epsilon .7 to 1.5, seven shapes)
# are clearly worse than equal shares; with 3 none is.
DOUBTFUL, CERTAIN = 1.0, 3.0  # standard errors from equal shares, up to which, and from which on, these do not count
STEPS, FEWEST_STEPS = 1000, 20
SET_CELLS = 4 * 10**9  # of sets that are read, values x reports x steps: a quarter of a minute
TABLES = ("independent", "table_bayes", "tree")  # the last one of three columns and more
TABLE_WORK = 4_000_000  # numbers of the channel of observed reports, from which on every step takes long
CELLS = 2_000_000  # of groups x folds x (values + reports), for the groups that are estimated together


class Best(Estimator):
    """The mean of the estimators that predict held-out reports best; it states which, and by how much.

    Those are the best one and all whose log-likelihood of the held-out reports is lower by at most 2 or ``margin`` standard
    errors of the difference: estimators that cannot be distinguished are averaged, because choosing among them would follow the
    noise. Candidates are empirical Bayes for both losses if reports are votes for values; ibu and smoothing, both stopped
    early, for cells of maps; and empirical Bayes, pooling and ibu otherwise. For tables of several columns, they are ibu
    stopped early, ``independent``, ``table_bayes`` and, from three columns on, ``tree``. If many reports name the value itself,
    as those of k-RR at large epsilons, inv_p and ibu are candidates too, and the folds differ by the noise of the mechanism
    alone. Of at most 60 values, empirical Bayes and ibu that stops as in the papers are the candidates. If reports are votes,
    and do not exclude by 1 to 3 standard errors that all shares are equal, the estimate is moved to equal shares.

    For numbers in order there are four kinds, from smooth to rough: smoothing; smoothing less; ibu, stopped early or late, and
    smoothing very little; and what is right for spikes: pooling, empirical Bayes, and ibu that does not stop. Reports hardly
    show whether neighbouring numbers differ, so each kind counts only as far as it predicts better than those before it: from
    half a standard error to two, or from one to two for the last kind, which is tried only if one of the two before it counts.
    In the same way smoothing counts next to empirical Bayes.

    ``ldp.diagnose`` returns the estimators used as ``chosen``, and the differences as ``reason``. Every candidate is fitted
    once for each of ``splits`` folds: from a millisecond to a few seconds a group. After Hansen, Lunde, Nason, "The model
    confidence set", Econometrica 2011.

    With ``criterion := 'bootstrap'``, reports are simulated from that mean, and the estimate is by the candidate with the least
    ``metric`` in 20 simulations. ``em_mr`` and the mean are candidates too. It takes about 20 times as long. After Ye, Wang,
    Zhang, Feng, NDSS 2025, section VII.

    >>> from ldpsql.inference.operators import KeepOrSpreadOperator
    >>> reports = Likelihood(KeepOrSpreadOperator(2, 0.75, 0.25), np.array([[600.0, 400.0]]))
    >>> Best().fit(reports).theta.round(1).tolist()
    [[0.7, 0.3]]
    """

    name = "best"
    margin: Annotated[float, Field(ge=0, le=10)] = Field(1.0, description="what counts as alike, in standard errors")
    splits: Annotated[int, Field(ge=2, le=20)] = Field(3, description="folds that the reports are split into")
    criterion: Literal["held_out", "bootstrap"] = Field(
        "held_out",
        description="what decides: likelihood of reports that are 'held_out', or the error in simulations ('bootstrap')",
    )
    metric: MetricName = Field("mae", description="the error in simulations; positions are one apart for those that need them")

    def fit(self, likelihood: Likelihood) -> Fit:
        """Choose for every group, and estimate with the choice."""
        if self.criterion == "bootstrap":
            return self.each(likelihood, self._simulated)
        size = self.splits * (likelihood.operator.inputs + likelihood.operator.outputs)
        return self.each(likelihood, self._chosen, max(1, CELLS // size))

    def _chosen(self, part: Likelihood) -> Fit:
        texts = candidates(part)
        equal = part.operator.votes is not None and len(texts) == 1 and not part.variables
        if texts == (SHRUNK,):
            fit = uncompared(part, "there is no other candidate")
            return replace(fit, theta=towards_equal(part, fit.theta)) if equal else fit
        parts = split(part, self.splits, certain_parts(part) if lift(part) >= NAMED[1][0] else None)
        kinds = [[registry().estimator(text) for text in kind] for kind in texts]
        outcome = compared(part, parts, kinds, self.margin)
        if not outcome.trials:
            return uncompared(part, "there was no time to compare it with others").out_of_time()
        theta, steps = outcome.fitted(part)
        theta = towards_equal(part, theta) if equal else theta
        status = (Status.OUT_OF_TIME if outcome.untried else Status.REGULARISED,) * len(theta)
        return Fit(theta, steps, status, outcome.names(), outcome.reasons())

    def _simulated(self, one: Likelihood) -> Fit:
        """Return the fit by the candidate with the least error in simulations, or the mean if there is no time for them."""
        if self.metric in OF_PLACES and len(one.layout) != 1:
            raise NotApplicable(f"the error '{self.metric}' needs values in order", "use metric := 'mae'")
        mean, error = self._chosen(one), metric_named(self.metric, np.arange(one.operator.inputs, dtype=np.float64))
        names = dict.fromkeys(["best", *(text for kind in candidates(one) for text in kind), "em_mr"])
        simulation = Simulation(tuple(map(registry().estimator, names)), self.metric)
        with within_part(COMPARING):
            ranked = compare_simulated(one, mean.theta, simulation, error)
            errors = [(np.inf if row.error is None else row.error, row.estimator) for row in ranked]
            text = ", ".join(f"{name} {size:.2g}" for size, name in sorted(errors) if np.isfinite(size))
            name = min(errors)[1]
            fit = mean if name == "best" else registry().estimator(name).fit(one)
            return replace(fit, chosen=(name,), reasons=(f"{self.metric} in simulations: {text}",))
        return replace(mean, reasons=("there was no time for simulations",))


def uncompared(part: Likelihood, reason: str) -> Fit:
    """Return the estimates by the first candidate, and why it is not compared with others."""
    text, groups = candidates(part)[0][0], len(part.counts)
    fit = registry().estimator(text).fit(part)
    return fit if fit.chosen else replace(fit, chosen=(text,) * groups, reasons=(reason,) * groups)


def lift(part: Likelihood) -> float:
    """Return by how much a value makes its own report more likely; 0 if reports do not name values, or have no votes."""
    votes = part.operator.votes
    return votes[1] - votes[0] if votes and part.operator.exchangeable else 0.0


def towards_equal(part: Likelihood, theta: Floats) -> Floats:
    """Return shares between equal ones and those of theta, (groups, values): equal ones if the reports do not exclude these."""
    v = part.operator.invert(part.shares)
    error = part.operator.inverted_interval(part.shares, part.n, simplex_projection(v), 1.0)[0]
    weight = np.clip((unlike_equal(v, error) - DOUBTFUL) / (CERTAIN - DOUBTFUL), 0.0, 1.0)[:, None]
    return weight * theta + (1.0 - weight) / theta.shape[1]


def candidates(part: Likelihood) -> tuple[tuple[str, ...], ...]:
    """Return the estimators that may predict best, in kinds of which each has to predict clearly better than those before."""
    columns, work = len(part.variables), part.operator.inputs * part.operator.outputs
    if columns > 1 and (part.operator.complete or work <= TABLE_WORK):
        first, *second = of_values(part) if part.operator.votes else (STOPPED[1:],)
        return (first + TABLES[: 2 if columns == 2 else 3], *second)
    return of_values(part)


def of_values(part: Likelihood) -> tuple[tuple[str, ...], ...]:
    """Return the estimators of values without columns that may predict best."""
    line = len(part.layout) == 1
    if part.operator.votes:  # shrinking does what early stops do, in a hundredth of the time
        few = part.operator.inputs <= FEW_VALUES
        first = FEW if few else next(names for least, names in NAMED if lift(part) >= least)
        smooth = in_steps(part, SMOOTH if line else SMOOTHED) if part.layout and not part.operator.isotropic else ()
        return (first, smooth) if smooth else (first,)
    if not part.layout and (part.operator.isotropic or part.operator.large):  # the others take too long
        return (STOPPED[1:],)
    if not part.operator.complete:
        return (("ibu", "uniform", *POOLED),)
    if line:
        return tuple(in_steps(part, kind) for kind in (SMOOTH, *FINER, ROUGH))
    return (in_steps(part, SMOOTHED),) if part.layout else (STOPPED + POOLED,)


def in_steps(part: Likelihood, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the candidates for values with neighbours; with fewer steps, or none, if these would take minutes."""
    op = part.operator
    steps = STEPS if op.complete else min(STEPS, SET_CELLS // (op.inputs * op.outputs))
    return tuple(text.format(steps) for text in texts) if steps >= FEWEST_STEPS else ()


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer the choice by held-out reports."""
    return [Best]
