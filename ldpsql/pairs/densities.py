"""The distribution of the values of every key over bins, from reports of a key and a bin."""

from __future__ import annotations

from typing import cast

import numpy as np

from ldpsql.channels import Bins
from ldpsql.errors import InvalidParameter, NotApplicable
from ldpsql.estimates.fitting import named
from ldpsql.estimators.base import Estimator
from ldpsql.inference.deadline import soonest, until
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import DenseOperator, Floats, KeepOrSpreadOperator, KeepOrWindowOperator
from ldpsql.mechanisms.base import Mechanism
from ldpsql.pairs.shown import Shown, channel_of, over_pairs, shown


def estimate_densities(mechanism: Mechanism, likelihood: Likelihood, estimator: Estimator) -> tuple[Floats, Floats]:
    """Return the centres of the bins in the units of the values, and the shares of each key, shape (groups, keys, bins).

    The estimator is used for the values only; how often keys are drawn is the maximum of the likelihood.

    Raises:
        InvalidParameter: if the mechanism does not report bins.
        NotApplicable, IllConditioned: if the estimator does not suit such reports.

    """
    over_keys = over_pairs(mechanism)
    cells = channel_of(over_keys).symbols
    if not isinstance(cells, Bins):
        raise InvalidParameter(f"the reports of {mechanism.name} determine means only", "use ldp.pckv_pm for distributions")
    keys = by_key(likelihood, shown(over_keys, likelihood), cells.count)
    drawn = np.asarray(keys.operator.maximum(keys.shares))
    with until(soonest(estimator.deadline)):
        shares = densities(likelihood, drawn, estimator)[:, : len(over_keys.keys)]
    return over_keys.low + (over_keys.high - over_keys.low) * (centres(cells.count) + 1) / 2, shares


def densities(likelihood: Likelihood, drawn: Floats, estimator: Estimator) -> Floats:
    """Return the distribution of the values of each key over the bins, shape (groups, keys, bins), from how often it is drawn.

    Of the reports that show a key, a certain share, those of other keys, show any bin. A key that has no reports, is never
    drawn, or for which there is no time, has the uniform distribution. Source: Ye et al., NDSS 2025, section V-C.
    """
    operator = cast("KeepOrWindowOperator", likelihood.operator)
    bins = operator.bins
    counts = likelihood.counts.reshape(len(likelihood.counts), -1, bins)
    out = np.full(counts.shape, 1.0 / bins)
    for group, key in np.argwhere((drawn > 0) & (counts.sum(axis=-1) > 0)):
        table = operator.anything + operator.kept * drawn[group, key] * operator.window
        conditional = DenseOperator(table / table.sum(axis=1, keepdims=True))
        one = Likelihood(conditional, counts[group, key][None], (bins,))
        with named(estimator):
            out[group, key] = estimator.each(one, estimator.fit).theta[0]
    if not np.isfinite(out).all():
        raise NotApplicable(f"{estimator.name} finds no distribution of values this noisy", "use ibu or em_mr")
    return out


def by_key(likelihood: Likelihood, evidence: Shown, cells: int) -> Likelihood:
    """Return the likelihood of the keys alone: k-RR."""
    counts = likelihood.counts.reshape(len(likelihood.counts), -1, cells).sum(axis=-1)
    return Likelihood(KeepOrSpreadOperator(counts.shape[1], evidence.other + evidence.lift, evidence.other), counts)


def centres(bins: int) -> Floats:
    """Return the centres of the bins on [-1, 1]."""
    return (2 * np.arange(bins) + 1) / bins - 1
