"""The distribution of the values of every key over bins, from reports of a key and a bin."""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from ldpsql.channels import Bins
from ldpsql.errors import InternalError, InvalidParameter, NotApplicable
from ldpsql.estimates.fitting import named
from ldpsql.estimators.base import Estimator
from ldpsql.inference.deadline import soonest, until
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import BinOperator, DenseOperator, Floats, KeepOrSpreadOperator, KeepOrWindowOperator, Operator
from ldpsql.mechanisms.base import Mechanism
from ldpsql.pairs.shown import channel_of, over_pairs

_NEVER = 1e-12  # a share of users
_TOGETHER = 256  # keys in one fit


def estimate_densities(mechanism: Mechanism, likelihood: Likelihood, estimator: Estimator) -> tuple[Floats, Floats]:
    """Return the centres of the bins in the units of the values, and the shares of each key, shape (groups, keys, bins).

    Raises:
        InvalidParameter: if the mechanism does not report bins.
        NotApplicable, IllConditioned: if the estimator does not suit such reports.

    """
    over_keys = over_pairs(mechanism)
    cells = channel_of(over_keys).symbols
    if not isinstance(cells, Bins):
        raise InvalidParameter(f"the reports of {mechanism.name} determine means only", "use ldp.pckv_pm for distributions")
    with until(soonest(estimator.deadline)):
        shares = densities(likelihood.operator, likelihood, estimator)[:, : len(over_keys.keys)]
    return over_keys.low + (over_keys.high - over_keys.low) * (centres(cells.count) + 1) / 2, shares


@singledispatch
def densities(
    operator: Operator,  # noqa: ARG001  # what is registered below reads the arguments
    likelihood: Likelihood,  # noqa: ARG001
    estimator: Estimator,  # noqa: ARG001
    drawn: Floats | None = None,  # noqa: ARG001
) -> Floats:
    """Return the distribution of the values of each key over the bins, shape (groups, keys, bins), by the estimator.

    ``drawn`` is how often each key is drawn, by default the maximum of the likelihood.

    A key that has no reports, is never drawn, or for which there is no time, has the uniform distribution.
    """
    raise InternalError("these reports do not show bins of keys", "register how their values are estimated")


@densities.register
def _(operator: KeepOrWindowOperator, likelihood: Likelihood, estimator: Estimator, drawn: Floats | None = None) -> Floats:
    """Estimate given how often keys are drawn: the other reports of a key show any bin.

    Source: Ye et al., NDSS 2025, section V-C.
    """
    bins = operator.bins
    if drawn is None:
        keys = by_key(operator, likelihood)
        drawn = np.asarray(keys.operator.maximum(keys.shares))
    counts = likelihood.counts.reshape(len(likelihood.counts), -1, bins)
    out = np.full(counts.shape, 1.0 / bins)
    for group, key in np.argwhere((drawn > 0) & (counts.sum(axis=-1) > 0)):
        table = operator.anything + operator.kept * drawn[group, key] * operator.window
        conditional = DenseOperator(table / table.sum(axis=1, keepdims=True))
        one = Likelihood(conditional, counts[group, key][None], (bins,))
        out[group, key] = _fitted(one, estimator)[0]
    return out


@densities.register
def _(operator: BinOperator, likelihood: Likelihood, estimator: Estimator, drawn: Floats | None = None) -> Floats:  # noqa: ARG001
    """Estimate together with how often each key is drawn, from their joint likelihood: other reports show any number.

    Source: Ye et al., NDSS 2025, section V-C.
    """
    groups, one = len(likelihood.counts), operator.of_one
    counts = operator.shown(likelihood.counts).reshape(groups, operator.keys, -1)
    nothing = likelihood.n[:, None, None] - counts.sum(axis=-1, keepdims=True)
    each = np.concatenate([counts, nothing], axis=-1).reshape(groups * operator.keys, -1)
    shares = _fitted(Likelihood(one, each), estimator)[:, :-1]
    total = shares.sum(axis=-1, keepdims=True)
    even = np.full_like(shares, 1.0 / shares.shape[-1])
    return np.divide(shares, total, out=even, where=total > _NEVER).reshape(groups, operator.keys, -1)


def _fitted(likelihood: Likelihood, estimator: Estimator) -> Floats:
    with named(estimator):
        theta = estimator.each(likelihood, estimator.fit, _TOGETHER).theta
    if not np.isfinite(theta).all():
        raise NotApplicable(f"{estimator.name} finds no distribution of values this noisy", "use ibu or em_mr")
    return theta


@singledispatch
def by_key(operator: Operator, likelihood: Likelihood) -> Likelihood:  # noqa: ARG001
    """Return the likelihood of the keys alone."""
    raise InternalError("these reports do not show bins of keys", "register how their keys are estimated")


@by_key.register
def _(operator: KeepOrWindowOperator, likelihood: Likelihood) -> Likelihood:
    """Return k-RR."""
    counts = likelihood.counts.reshape(len(likelihood.counts), -1, operator.bins).sum(axis=-1)
    other = operator.anything * operator.bins
    return Likelihood(KeepOrSpreadOperator(operator.keys, other + operator.kept, other), counts)


@by_key.register
def _(operator: BinOperator, likelihood: Likelihood) -> Likelihood:
    """Return unary encoding; there is one group, as each has an operator of its own."""
    keys, sums = operator.of_keys(likelihood.counts[0])
    return Likelihood(keys, sums[None])


def centres(bins: int) -> Floats:
    """Return the centres of the bins on [-1, 1]."""
    return (2 * np.arange(bins) + 1) / bins - 1
