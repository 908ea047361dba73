"""The mean of the estimators that predict held-out reports best."""

from typing import Annotated

import numpy as np
from pydantic import Field

from ldpsql.estimators import (
    Estimator,
    Fit,
    Floats,
    IllConditioned,
    IterativeEstimator,
    Likelihood,
    NotApplicable,
    Split,
    Status,
    hookimpl,
    split,
)
from ldpsql.functions import registry

SHRUNK = ("empirical_bayes(loss='both')", "pool")
STOPPED = ("ibu(stop='paper', tolerance=0.001)", "ibu(stop='held_out')")
# The paper's stop is late for channels that blur neighbours; a smoothed estimate hardly moves after a thousand steps.
SMOOTHED = ("ibu(stop='held_out', max_iterations=1000)", "ems(stop='held_out', max_iterations=1000)")
ALIKE = 2.0  # in log-likelihood; Edwards, "Likelihood", 1972: two units of support


class Best(Estimator):
    """The mean of the estimators that predict held-out reports best; it states which, and by how much.

    Those are the best one and all whose log-likelihood of the held-out reports is lower by at most 2 or ``margin`` standard
    errors of the difference: estimators that cannot be distinguished are averaged, because choosing among them would follow the
    noise. Candidates are empirical Bayes for both losses and pooling if reports are votes for values; ibu and smoothing, both
    stopped early, if values have neighbours; all of these if both hold; and empirical Bayes, pooling and ibu otherwise.
    ``ldp.diagnose`` returns the estimators used as ``chosen``, and the differences as ``reason``. Every candidate is fitted
    once for each of ``splits`` folds: from ten milliseconds to a few seconds a group. After Hansen, Lunde, Nason, "The model
    confidence set", Econometrica 2011.

    >>> from ldpsql.inference.operators import KeepOrSpreadOperator
    >>> few = Likelihood(KeepOrSpreadOperator(2, 0.75, 0.25), np.array([[60.0, 40.0]]))
    >>> Best().fit(few).theta.round(1).tolist()
    [[0.7, 0.3]]
    """

    name = "best"
    margin: Annotated[float, Field(ge=0, le=10)] = Field(1.0, description="what counts as alike, in standard errors")
    splits: Annotated[int, Field(ge=2, le=20)] = Field(3, description="folds that the reports are split into")

    def fit(self, likelihood: Likelihood) -> Fit:
        """Choose for every group, and estimate with the choice."""
        return self.each(likelihood, self._chosen)

    def _chosen(self, one: Likelihood) -> Fit:
        parts = split(one, self.splits)
        held_out = parts.held_out
        fitted: list[tuple[Estimator, Floats]] = []
        for text in candidates(one):
            try:
                fitted.append(predicted(registry().estimator(text), one, parts))
            except (NotApplicable, IllConditioned):
                continue
        top = int(np.argmax([gained(held_out, fitted[0][1], chances)[0] for _, chances in fitted]))
        behind = [gained(held_out, chances, fitted[top][1]) for _, chances in fitted]
        alike = [gain <= max(ALIKE, self.margin * error) for gain, error in behind]
        fits = [estimator.fit(one) for (estimator, _), near in zip(fitted, alike, strict=True) if near]
        names = " + ".join(str(estimator) for (estimator, _), near in zip(fitted, alike, strict=True) if near)
        others = [f"{e} {-gain:.1f} +- {error:.1f}" for (e, _), (gain, error) in zip(fitted, behind, strict=True)]
        del others[top]
        reason = f"log-likelihood of held-out reports, relative to {fitted[top][0]}: {', '.join(others)}"
        theta, steps = np.mean([fit.theta for fit in fits], axis=0), np.sum([fit.iterations for fit in fits], axis=0)
        return Fit(theta, steps, (Status.REGULARISED,), (names,), (reason,))


def candidates(one: Likelihood) -> tuple[str, ...]:
    """Return the estimators that may predict best."""
    if one.operator.votes:  # shrinking does what early stops do, in a hundredth of the time
        return SHRUNK + (SMOOTHED if one.layout and not one.operator.isotropic else ())
    if not one.operator.complete:
        return ("ibu", "uniform", *SHRUNK)
    return SMOOTHED if one.layout else STOPPED + SHRUNK


def predicted(estimator: Estimator, one: Likelihood, parts: Split) -> tuple[Estimator, Floats]:
    """Return the estimator, with a stop chosen on the same folds, and the probabilities it gives to the held-out reports."""
    if isinstance(estimator, IterativeEstimator) and estimator.stop == "held_out":
        steps = int(estimator.held_out_steps(parts, estimator.started(one), estimator.limits())[0])
        estimator = registry().estimator({"estimator": estimator.name, "stop": steps})
    return estimator, one.operator.forward(estimator.fit(parts.learnt).theta)


def gained(held_out: Likelihood, before: Floats, after: Floats) -> tuple[float, float]:
    """Return the gain in log-likelihood of the held-out reports, and its standard error."""
    seen = held_out.counts > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        rise = np.where(seen, np.log(np.where(seen, after, 1.0)) - np.log(np.where(seen, before, 1.0)), 0.0)
    rise = np.nan_to_num(rise, nan=0.0, posinf=50.0, neginf=-50.0)  # a probability of zero counts as e^-50
    total, n = float((held_out.counts * rise).sum()), max(1.0, float(held_out.n.sum()))
    return total, float(np.sqrt(max((held_out.counts * rise**2).sum() - total**2 / n, 0.0)))


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer the choice by held-out reports."""
    return [Best]
