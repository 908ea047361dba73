"""Unbiased inversion of a channel: v with v A = q, in closed form where the structure has one."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ldpsql.errors import IllConditioned
from ldpsql.likelihood import Floats, KeepOrSpreadOperator, Likelihood, Operator
from ldpsql.supports import SupportOperator

MAX_CONDITION = 1e8


def condition_number(operator: Operator) -> float:
    """Return the 2-norm condition number of the channel: how much inversion can magnify errors."""
    if isinstance(operator, KeepOrSpreadOperator):
        return 1.0 / abs(operator.keep - operator.spread)  # eigenvalues 1 and keep - spread
    if isinstance(operator, SupportOperator):
        # Expected support counts are miss + (hit - miss) theta: eigenvalues hit - miss and hit + (inputs - 1) miss.
        lift = operator.hit - operator.miss
        return (lift + operator.inputs * operator.miss) / abs(lift)
    return _computed_condition(operator)


@lru_cache(maxsize=256)
def _computed_condition(operator: Operator) -> float:
    return float(np.linalg.cond(operator.matrix()))


def invert(likelihood: Likelihood) -> Floats:
    """Return the unbiased estimate for each group; shares may be negative.

    They sum to one, except where reports support sets: there only their expectation does.

    Raises:
        IllConditioned: where the channel has no inverse, or one that drowns the estimate in noise.

    """
    op = likelihood.operator
    if isinstance(op, KeepOrSpreadOperator):
        return (likelihood.shares - op.spread) / (op.keep - op.spread)
    if isinstance(op, SupportOperator):
        return (op.supported(likelihood.shares) - op.miss) / (op.hit - op.miss)
    condition = condition_number(op)
    if not condition <= MAX_CONDITION:
        raise IllConditioned(
            f"the channel has condition number {condition:.3g}, too large to invert", "use ibu", condition=condition
        )
    # With more reports than values the least-squares inverse is still unbiased.
    v = np.asarray(np.linalg.lstsq(op.matrix().T, likelihood.shares.T, rcond=None)[0].T, dtype=np.float64)
    return v / v.sum(axis=-1, keepdims=True)
