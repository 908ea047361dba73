"""The parts of an estimator: the base class, the likelihood, the solver, steps, pooling and resampling.

A plugin that offers estimators imports only from here; the names are stable within one `API_VERSION`. An estimator sees
counts under a channel and does not depend on a mechanism.
"""

from __future__ import annotations

from ldpsql.errors import IllConditioned, InvalidParameter, NotApplicable
from ldpsql.estimators.base import Estimator
from ldpsql.estimators.iteration import IterativeEstimator, StopField
from ldpsql.estimators.pooling import Blocks, absent_error, block_maximum, contrasts, renumbered, spread, with_blocks
from ldpsql.estimators.resampling import folds, generator, redrawn
from ldpsql.hooks import API_VERSION, hookimpl
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Floats
from ldpsql.inference.outcome import Fit, Status, simplex_projection
from ldpsql.inference.solver.mle import em_step, maximum_likelihood, uniform

__all__ = [
    "API_VERSION",
    "Blocks",
    "Estimator",
    "Fit",
    "Floats",
    "IllConditioned",
    "InvalidParameter",
    "IterativeEstimator",
    "Likelihood",
    "NotApplicable",
    "Status",
    "StopField",
    "absent_error",
    "block_maximum",
    "contrasts",
    "em_step",
    "folds",
    "generator",
    "hookimpl",
    "maximum_likelihood",
    "redrawn",
    "renumbered",
    "simplex_projection",
    "spread",
    "uniform",
    "with_blocks",
]
