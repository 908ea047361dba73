"""Estimates of many groups that learn from each other, as far as their reports are alike.

Fay, Herriot, "Estimates of income for small places", JASA 1979; Morris, "Parametric empirical Bayes inference", JASA 1983.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ldpsql.estimators import Estimator, Fit, Floats, Likelihood, Status, hookimpl, sharing, within_part
from ldpsql.functions import registry

HALF = 0.5  # of the time that is left, for what neighbours have in common
MOST_CELLS = 1 << 19  # groups x values, up to which their means are compared
ALONE, ALIKE = 0.1, 0.9  # parts that are borrowed, below and above which a group is said to be estimated alone or like all


class Shared(Estimator):
    """Empirical Bayes over groups: each is shrunk towards the shares of all of them, as far as groups are alike.

    It learns from the reports of all groups how far their shares lie from the common ones. Each group belongs to one of 17
    classes, from 'nothing in common' to 'more alike than samples of one population', and the classes are as common as makes
    the reports of all groups most likely. The estimate of a group is the posterior median of its shares, at the level at which
    they sum to one. If values are numbers whose reports can be listed, it is then moved to a mean between its own and that of
    the group alone: the one that best predicts the means of held-out reports of all groups. If reports are not votes for
    values, as those of mechanisms for numbers and maps, groups differ from the common shares along the directions that reports
    determine, the smoother the more; the estimate of each group alone counts as far as it predicts held-out reports better.
    ``ldp.diagnose`` returns as ``borrowed`` which part of it comes from other groups.

    If groups are in order, as those of days or ages, and the groups around a group predict its reports clearly better than all
    groups do, it is shrunk towards these instead: as many on each side as predict best. Reports must be votes for values.

    ``prior`` is what ``ldp.prior`` learns from the counts of all groups; ``FROM ldp.estimate`` and ``ldpsql.estimate_groups``
    learn it themselves. With ``errors`` 'own', the interval of a share is that of the reports of its group alone. With 'shared'
    it is narrower and covers on average over groups: 95 % of all intervals hold the share among the people who reported, but
    those of unusual groups do so less often.

    >>> from ldpsql.inference.operators import KeepOrSpreadOperator
    >>> alike = Likelihood(KeepOrSpreadOperator(2, 0.75, 0.25), np.array([[60.0, 40.0], [55.0, 45.0], [65.0, 35.0]] * 9))
    >>> Shared().fit(alike).theta[:3].round(1).tolist()
    [[0.7, 0.3], [0.7, 0.3], [0.7, 0.3]]
    """

    name = "shared"
    borrows = True
    prior: sharing.PriorField = Field(None, description="what all groups have in common: the result of ldp.prior")
    errors: Literal["own", "shared"] = Field(
        "own", description="intervals of a group's 'own' reports, or 'shared' ones that cover on average over groups"
    )
    neighbours: Literal["use", "ignore"] = Field(
        "use", description="'use' the order of groups if neighbours predict better, or 'ignore' it"
    )

    @property
    def needs_groups(self) -> bool:
        """Whether it has no prior."""
        return self.prior is None

    @property
    def over_all_values(self) -> bool:
        """Whether it has a prior."""
        return self.prior is not None

    def learnt(self, pooled: Likelihood, groups: Iterable[Likelihood]) -> Estimator:
        """Return the estimator with the prior that makes the reports of all groups most likely."""
        if self.prior is not None:
            return self
        mean, kept = alone(pooled), list[Likelihood]()
        prior = sharing.learnt(mean[0], error_of(pooled, mean), keeping(groups, kept), alone)
        if kept and sum(part.counts.size for part in kept) <= MOST_CELLS and all(map(sharing.of_numbers, kept)):
            with within_part(HALF):
                own = sharing.own_part(kept, lambda some: self._with(prior).fit(some).theta)
                return self._with(replace(prior, own_mean=(own,)))
        return self._with(prior)

    def learnt_in_order(self, pooled: Likelihood, groups: Sequence[Likelihood]) -> tuple[NDArray[np.int64], list[Estimator]]:
        """Return the estimator of each run of neighbouring groups, if these predict a group better than all groups do."""
        runs, (learned,) = super().learnt_in_order(pooled, groups)
        if self.prior is not None or self.neighbours == "ignore" or not isinstance(learned, Shared) or learned.prior is None:
            return runs, [learned]
        with within_part(HALF):  # if time runs out, the common mean has to do
            near = sharing.with_neighbours(learned.prior, groups)
            return (near[0], [self._with(prior) for prior in near[1]]) if near else (runs, [learned])
        return runs, [learned]

    def _with(self, prior: sharing.Prior) -> Shared:
        return type(self)(**dict(self) | {"prior": prior})

    def fit(self, likelihood: Likelihood) -> Fit:
        """Estimate every group; without a prior, the groups of this likelihood are all there are."""
        if self.prior is None:
            pooled = likelihood.with_counts(likelihood.counts.sum(axis=0, keepdims=True))
            return self.learnt(pooled, [likelihood]).fit(likelihood)
        prior, mean = self.prior, np.array(self.prior.mean)
        classes, of_intervals = prior.classes(likelihood, alone)
        borrowed = prior.borrowed(likelihood, classes)
        errors = None
        if sharing.directed(likelihood):
            theta, errors = sharing.by_direction(likelihood, (mean, np.array(prior.error)), classes, alone)
        elif likelihood.operator.votes is None:
            theta = sharing.by_class(likelihood, mean, classes, alone)
        else:
            votes = sharing.Votes.of(likelihood)
            theta = sharing.medians(votes, mean, np.array(prior.weights), classes)
            if any(prior.own_mean):
                theta = sharing.moved(likelihood, theta, prior.own_mean[0])
            if self.errors == "shared":
                added = prior.borrowed(likelihood, of_intervals)[:, None] * np.array(prior.error)
                errors = sharing.credible(votes, mean, of_intervals, added)
        groups = len(theta)
        steps, status = np.zeros(groups, dtype=np.int64), (Status.REGULARISED,) * groups
        own = errors if self.errors == "shared" else None
        return Fit(theta, steps, status, (self.name,) * groups, reasons(borrowed), tuple(borrowed.tolist()), own)


def keeping(groups: Iterable[Likelihood], kept: list[Likelihood]) -> Iterator[Likelihood]:
    """Yield groups, and add those that come first to ``kept``, until these are too many to be compared."""
    cells = 0
    for some in groups:
        if cells <= MOST_CELLS:
            kept.append(some)
            cells += some.counts.size
        yield some


def alone(likelihood: Likelihood) -> Floats:
    """Return the estimates of groups by the reports of each group alone."""
    return registry().estimator("best").fit(likelihood).theta


def error_of(pooled: Likelihood, mean: Floats) -> Floats:
    """Return the standard error of the shares of all groups together; zero for channels too large for that."""
    if sharing.directed(pooled):
        return sharing.error_of_mean(pooled, mean[0])
    if pooled.operator.votes is None:
        return np.zeros_like(mean[0])
    return np.asarray(pooled.operator.inverted_interval(pooled.shares, pooled.n, mean, 1.0)[0][0])


def reasons(borrowed: Floats) -> tuple[str, ...]:
    """Return how much of each estimate comes from other groups, in words."""
    words = ("alone", "partly like all groups", "like all groups")
    parts, kinds = np.rint(100.0 * borrowed).astype(np.int64), np.digitize(borrowed, [ALONE, ALIKE])
    codes, which = np.unique(parts * len(words) + kinds, return_inverse=True)
    texts = [
        f"estimated {words[code % len(words)]}: {code // len(words)}% comes from the reports of other groups"
        for code in codes.tolist()
    ]
    return tuple(np.array(texts, dtype=object)[which].tolist())


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer the estimator that groups share."""
    return [Shared]
