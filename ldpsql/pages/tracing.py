"""The path of the iterative Bayesian update to the maximum of the likelihood."""

from __future__ import annotations

import polars as pl

from ldpsql.estimates.estimate import Estimate
from ldpsql.estimates.uncertainty import best_fit
from ldpsql.inference.solver.mle import em_step, uniform

STEPS, STEPS_OF_LARGE = 200, 30


def trace(one: Estimate, steps: int = STEPS) -> pl.DataFrame:
    """Return for the first steps of IBU how much log-likelihood is missing to the maximum, and the certified gap."""
    model = one.likelihood
    best = float(model.log_likelihood(best_fit(model))[0])
    theta, rows = uniform(model), []
    for step in range(1, (min(steps, STEPS_OF_LARGE) if model.operator.large else steps) + 1):
        theta = em_step(model, theta)
        missing = best - float(model.log_likelihood(theta)[0])
        rows.append({"step": step, "missing": max(missing, 1e-9), "gap": max(float(model.gap(theta)[0]), 1e-12)})
    return pl.DataFrame(rows)
