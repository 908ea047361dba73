"""The parts of an estimator: the base class, the likelihood, the solver, steps, pooling and resampling.

A plugin that offers estimators imports only from here; the names are stable within one `API_VERSION`. An estimator sees
counts under a channel and does not depend on a mechanism.
"""

from __future__ import annotations

from ldpsql.errors import IllConditioned, InvalidParameter, NotApplicable, OutOfTime
from ldpsql.estimators import sharing
from ldpsql.estimators.base import (
    ALIKE,
    Estimator,
    IterativeEstimator,
    Split,
    StopField,
    certain_parts,
    clear,
    folds,
    gained,
    generator,
    redrawn,
    smoothed,
    split,
)
from ldpsql.estimators.held_out import COMPARING, TableEstimator, compared, mutual_information, outer, shares_of
from ldpsql.estimators.pooling import (
    Blocks,
    absent_error,
    block_maximum,
    block_sizes,
    contrasts,
    maximum_in_blocks,
    mean_of_blocks,
    renumbered,
    sibling_contrasts,
    spread,
    unlike_equal,
    until_still_in_blocks,
    with_blocks,
)
from ldpsql.hooks import API_VERSION, hookimpl
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.limits import Limits, check, within_part
from ldpsql.inference.operators import Floats
from ldpsql.inference.outcome import Fit, Status, simplex_projection, sum_to_one
from ldpsql.inference.solver.mle import em_step, maximum_likelihood, uniform
from ldpsql.inference.solver.together import Ascent, until_still

__all__ = [
    "ALIKE", "API_VERSION", "COMPARING", "Ascent", "Blocks", "Estimator", "Fit", "Floats", "IllConditioned", "InvalidParameter",
    "IterativeEstimator", "Likelihood", "Limits", "NotApplicable", "OutOfTime", "Split", "Status", "StopField",
    "TableEstimator", "absent_error", "block_maximum", "block_sizes", "certain_parts", "check", "clear", "compared",
    "contrasts", "em_step", "folds", "gained", "generator", "hookimpl", "maximum_in_blocks", "maximum_likelihood",
    "mean_of_blocks", "mutual_information", "outer", "redrawn", "renumbered", "shares_of", "sharing", "sibling_contrasts",
    "simplex_projection", "smoothed", "split", "spread", "sum_to_one", "uniform", "unlike_equal", "until_still",
    "until_still_in_blocks", "with_blocks", "within_part",
]  # fmt: skip
