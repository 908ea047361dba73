"""Frequency and mean of every key, from the reports of key-value mechanisms.

An estimator of the registry estimates how often each symbol is drawn. A key is in ``padding`` times as many sets as it is
drawn from, as long as no set is larger than the padding. Standard errors and intervals are those of the unbiased estimate:
they hold for the truth, whichever estimator is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, singledispatch
from typing import cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Bins, KeyCells, KeyValue, Signs
from ldpsql.domains.columns import finite_or_null
from ldpsql.errors import InternalError, InvalidParameter, NotApplicable
from ldpsql.estimates.diagnosis import Diagnosis, Learnt, judged
from ldpsql.estimates.estimate import Estimates, estimate_likelihood, named
from ldpsql.estimates.functionals import Pair, fieller
from ldpsql.estimates.shown import Tabular
from ldpsql.estimators.base import Estimator
from ldpsql.estimators.sharing.means import Ratios
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.limits import late, soonest, until
from ldpsql.inference.operators import (
    BinOperator,
    DenseOperator,
    Floats,
    KeepOrSpreadOperator,
    KeepOrWindowOperator,
    Operator,
    PairOperator,
)
from ldpsql.inference.outcome import Status
from ldpsql.inference.score_intervals import cut, deviations, wilson
from ldpsql.mechanisms.base import CertifiedPairs, Mechanism, certify
from ldpsql.mechanisms.families import KeyValueMechanism

# What reports of key-value mechanisms show about every key, before any estimator: unbiased estimates and their errors.


@dataclass(frozen=True)
class Shown:
    """What the reports show about every key and dummy, each of shape (groups, keys).

    ``share`` is the share of reports that show the key; ``score`` and ``square`` are the means over all reports of the score
    that a report gives to its value, and of the square of the score. The expectations of ``share`` and ``score`` are
    other + lift * drawn and apart * drawn * value: ``drawn`` is the share of users from whom this key was drawn, ``value``
    their mean value on [-1, 1].
    """

    share: Floats
    score: Floats
    square: Floats
    other: float
    lift: float
    apart: float
    typical: float = 1.0  # square of a score

    @property
    def drawn(self) -> Floats:
        """The unbiased estimate of how often each key is drawn."""
        return (self.share - self.other) / self.lift

    @property
    def total(self) -> Floats:
        """The unbiased estimate of the sum of its values, over all users."""
        return self.score / self.apart

    def drawn_error(self, n: Floats, drawn: Floats) -> Floats:
        """Return the standard error of the unbiased estimate, if each key is drawn this often."""
        expected = np.clip(self.other + self.lift * drawn, 0.0, 1.0)
        return np.sqrt(expected * (1.0 - expected) / n) / self.lift

    def drawn_interval(self, n: Floats, z: float) -> tuple[Floats, Floats]:
        """Return Wilson's interval of the share, inverted."""
        low, high = ((end - self.other) / self.lift for end in wilson(self.share, n, z))
        return low, high

    def moments(self, n: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the variances of ``drawn`` and ``total`` and their covariance.

        As if two more reports had shown the key, one with each sign: so few reports that agree do not seem certain.
        Source: Agresti, Coull, "Approximate is better than exact for interval estimation of binomial proportions", 1998.
        """
        share, square = np.minimum(self.share + 2 / n, 1.0), self.square + 2 * self.typical / n
        drawn = share * (1.0 - share) / n / self.lift**2
        total = (square - self.score**2) / n / self.apart**2
        both = self.score * (1.0 - share) / n / (self.lift * self.apart)
        return drawn, total, both

    def mean_error(self, n: Floats, drawn: Floats, mean: Floats) -> Floats:
        """Return the standard error of the mean, by the delta method; infinite if the key seems never to be drawn."""
        of_drawn, of_total, both = self.moments(n)
        variance = of_total - 2 * mean * both + mean**2 * of_drawn
        error = np.sqrt(np.maximum(variance, 0.0))
        return np.divide(error, drawn, out=np.full_like(error, np.inf), where=drawn > 0)

    @property
    def mean(self) -> Floats:
        """The unbiased sum over the unbiased frequency, cut to [-1, 1]; 0 if the key seems never to be drawn."""
        ratio = np.divide(self.total, self.drawn, out=np.zeros_like(self.total), where=self.drawn > 0)
        return np.clip(ratio, -1.0, 1.0)

    def likely_mean(self, n: Floats, keys: int) -> Floats:
        """Return the means of the first ``keys`` of each group, shrunk to each other by `Ratios`, and `mean` of dummies."""
        out, (of_drawn, of_total, both) = self.mean.copy(), self.moments(n)
        parts = np.stack([self.total, self.drawn, of_total, of_drawn, both])[:, :, :keys]
        for group in range(len(out)):
            out[group, :keys] = Ratios(*parts[:, group]).shrunk()
        return out

    def mean_interval(self, n: Floats, z: float) -> tuple[Floats, Floats]:
        """Return the ends of the means m for which total - m drawn is within z errors of 0, cut to [-1, 1]; see `fieller`."""
        of_drawn, of_total, both = self.moments(n)
        low, high = fieller(Pair(self.total, self.drawn, of_total, both, of_drawn), z, -1.0, 1.0)
        return cut(low, high, (high - low) / 2, -1.0, 1.0)


def shown(mechanism: KeyValueMechanism, likelihood: Likelihood) -> Shown:
    """Return what the reports of each group show about every key."""
    channel, scores = channel_of(mechanism), mechanism.scores()
    symbols = cast("PairOperator", likelihood.operator).shown(likelihood.shares)
    by_key = symbols.reshape(len(symbols), -1, len(scores))
    share, score, square = (by_key @ scores**power for power in range(3))
    law = channel.response.key_law()
    return Shown(share, score, square, float(law.other), float(law.lift), float(law.apart), float((scores**2).mean()))


def over_pairs(mechanism: Mechanism) -> KeyValueMechanism:
    """Return the mechanism, which must be a key-value mechanism.

    Raises:
        InvalidParameter: if it is another one.

    """
    certified = certify(mechanism)
    if not isinstance(certified, CertifiedPairs) or not isinstance(mechanism, KeyValueMechanism):
        raise InvalidParameter(f"{mechanism.name} does not perturb sets of key-value pairs", certified.remedy)
    return mechanism


def channel_of(mechanism: KeyValueMechanism) -> KeyValue:
    """Return the certified channel of a key-value mechanism."""
    return cast("KeyValue", certify(mechanism).channel)


# The distribution of the values of every key over bins, from reports of a key and a bin.

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


ROW = ("frequency", "frequency_error", "low", "high", "mean", "mean_error", "mean_low", "mean_high")
MOST_LOST = 0.5
MOST_SHIFTED = 0.5  # standard errors
_CLEAR, _ENOUGH = 4.0, 5  # standard errors that a frequent key is from 0, and how many such keys show that a shift is not noise


@dataclass(frozen=True)
class KeyValueEstimates:
    """The estimates of several groups: how often keys are drawn, (groups, keys and dummies), and their means on [-1, 1]."""

    mechanism: KeyValueMechanism
    symbols: Estimates
    evidence: Shown
    drawn: Floats
    means: Floats

    def rows(self) -> Floats:
        """Return the numbers of `ROW` for each group and key, in the units of the values: shape (groups, keys, 8)."""
        z = deviations(self.symbols.estimator.confidence)
        n = self.symbols.likelihood.n[:, None]
        padding, middle = self.mechanism.padding, (self.mechanism.low + self.mechanism.high) / 2
        half = (self.mechanism.high - self.mechanism.low) / 2
        frequency, frequency_error = padding * self.drawn, padding * self.evidence.drawn_error(n, self.drawn)
        least, most = self.evidence.drawn_interval(n, z)
        low, high = cut(padding * least, padding * most, z * frequency_error)
        mean_low, mean_high = self.evidence.mean_interval(n, z)
        off = self.mechanism.rounding()
        shares = [frequency, frequency_error, np.minimum(low, frequency), np.maximum(high, frequency)]
        error = self.evidence.mean_error(n, self.drawn, self.means)
        ends = np.minimum(mean_low, self.means) - off, np.maximum(mean_high, self.means) + off
        values = [middle + half * self.means, half * error, *(middle + half * np.clip(end, -1.0, 1.0) for end in ends)]
        return np.stack([*shares, *values], axis=-1)[:, : len(self.mechanism.keys)]

    def present(self) -> NDArray[np.bool_]:
        """Return which keys somebody has, with the confidence of the estimator for all keys of a group together."""
        keys = len(self.mechanism.keys)
        least, _ = self.evidence.drawn_interval(
            self.symbols.likelihood.n[:, None], deviations(self.symbols.estimator.confidence ** (1 / keys))
        )
        return np.asarray(least[:, :keys] > 0)

    def __getitem__(self, group: int) -> KeyValueEstimate:
        return KeyValueEstimate(self, group)


@dataclass(frozen=True)
class SetDiagnosis:
    """What the reports show about the sets, and about the estimate: see `KeyValueEstimate.sets` and `Diagnosis`.

    ``dummies`` is the share of users from whom a dummy was drawn; ``mean_set_size`` is the mean number of pairs, where no set
    counts for more than the padding. ``lost_if_geometric`` is by how much frequencies are too low, if the sizes are geometric
    numbers. ``warning`` is empty, or says that this is large, or that the estimator makes frequent keys too rare.
    """

    verdict: str
    enough_reports: int | None
    reports: int
    dummies: float
    dummies_error: float
    mean_set_size: float
    lost_if_geometric: float
    warning: str
    status: str
    remedy: str
    gap: float
    fit_p_value: float
    realised_epsilon: float


@dataclass(frozen=True, repr=False)
class KeyValueEstimate(Tabular):
    """The estimate of one group: for every key the share of users who have it, and the mean of its values."""

    of: KeyValueEstimates
    group: int

    def to_arrow(self) -> pa.Table:
        """Return the estimate as a table: key, and the columns of `ROW`; infinite errors are NULL."""
        keys = self.of.mechanism.keys.values
        return pa.table([keys, *map(finite_or_null, self.of.rows()[self.group].T)], ["key", *ROW])

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """How far the estimated shares of the symbols can be trusted, and how much was learnt about the frequencies."""
        return self.of.symbols[self.group].judged(self.learnt)

    @cached_property
    def learnt(self) -> Learnt:
        """How much the reports say about the frequencies of the keys, and how many reports would be enough."""
        frequency, error, *_ = self.of.rows()[self.group].T
        total = max(float(frequency.sum()), float(error.max()))
        return judged(frequency / total, error / total, float(self.of.symbols.likelihood.n[self.group]))

    @property
    def sets(self) -> SetDiagnosis:
        """What the reports show about the size of the sets.

        A set larger than the padding looks like one of that size, and its keys are counted too rarely, by padding/size. No
        report shows this. But the fewer dummies are drawn, the larger the sets: there is a warning if `lost_if_geometric` is
        above a half even with two standard errors more dummies. A few very large sets among small ones remain unnoticed.
        """
        mechanism, evidence = self.of.mechanism, self.of.evidence
        keys, n = len(mechanism.keys), self.of.symbols.likelihood.n[self.group]
        drawn, share = evidence.drawn[self.group, keys:].sum(), evidence.share[self.group, keys:]
        single = channel_of(mechanism).response.single  # then at most one dummy is shown
        variance = share.sum() * (1 - share.sum()) if single else (share * (1 - share)).sum()
        error = float(np.sqrt(max(variance, 0.0) / n)) / evidence.lift
        diagnosis = self.diagnosis
        return SetDiagnosis(
            verdict=diagnosis.verdict,
            enough_reports=diagnosis.enough_reports,
            reports=diagnosis.reports,
            dummies=float(drawn),
            dummies_error=error,
            mean_set_size=mechanism.padding * (1 - float(drawn)),
            lost_if_geometric=lost_if_geometric(float(drawn), mechanism.padding),
            warning="; ".join(self._warnings(float(drawn) + 2 * error)),
            status=diagnosis.status,
            remedy=diagnosis.remedy,
            gap=diagnosis.gap,
            fit_p_value=diagnosis.fit_p_value,
            realised_epsilon=diagnosis.realised_epsilon,
        )

    def _warnings(self, most_dummies: float) -> Iterator[str]:
        if lost_if_geometric(most_dummies, self.of.mechanism.padding) > MOST_LOST:
            yield _TOO_SHORT
        if self._shift() < -MOST_SHIFTED:
            yield _TOO_LOW

    def _shift(self) -> float:
        """Return by how many standard errors frequent keys differ from their unbiased estimates, on average; 0 for few keys."""
        keys, evidence = len(self.of.mechanism.keys), self.of.evidence
        unbiased, n = evidence.drawn[self.group, :keys], self.of.symbols.likelihood.n[self.group]
        error = evidence.drawn_error(n, unbiased)
        clear = unbiased > _CLEAR * error
        shift = self.of.drawn[self.group, :keys] - unbiased
        return float((shift[clear] / error[clear]).mean()) if clear.sum() >= _ENOUGH else 0.0

    @property
    def heading(self) -> str:
        return f"{self.of.symbols.estimator.name} of {int(self.of.symbols.likelihood.n[self.group])} key-value reports"


_TOO_SHORT = (
    "if the sizes of sets are geometric numbers, such a small share of dummies means that frequencies are less than half of "
    "the truth, because sets are larger than the padding: use a longer padding, unless you know that no set is larger"
)
_TOO_LOW = (
    "the frequencies of frequent keys are too low, because those of rare keys cannot be negative and all add up to one: "
    "estimator 'inv' has smaller errors for frequent keys"
)


def estimate_key_value(mechanism: Mechanism, likelihood: Likelihood, estimator: Estimator) -> KeyValueEstimates:
    """Estimate frequency and mean of every key in every group.

    Means are cut to the range. The estimator is used for frequencies only: dividing by those of the maximum likelihood, which
    are never below 0 and add up to 1, would make means worse. Means are `Shown.mean` for an inversion and `Shown.likely_mean`
    otherwise. With bins, the reports of a key are a mixture of its own values and uniform bins, see `densities`.

    Raises:
        InvalidParameter: if the mechanism is not over sets of pairs.
        NoReports, ImpossibleReport, NotReports: see `estimate_likelihood`.

    """
    with until(soonest(estimator.deadline)):
        over_keys = over_pairs(mechanism)
        return _estimated(channel_of(over_keys).symbols, over_keys, likelihood, estimator)


@singledispatch
def _estimated(
    cells: KeyCells,  # noqa: ARG001  # what is registered below reads the arguments
    mechanism: KeyValueMechanism,  # noqa: ARG001
    likelihood: Likelihood,  # noqa: ARG001
    estimator: Estimator,  # noqa: ARG001
) -> KeyValueEstimates:
    """Return the estimates, by what the values of a pair become: a sign or a bin."""
    raise InternalError("the cells of these pairs are neither signs nor bins", "register how they are estimated")


@_estimated.register
def _(cells: Signs, mechanism: KeyValueMechanism, likelihood: Likelihood, estimator: Estimator) -> KeyValueEstimates:
    symbols = estimate_likelihood(mechanism, likelihood, estimator)
    evidence = shown(mechanism, likelihood)
    drawn = symbols.fit.theta.reshape(len(symbols.fit.theta), -1, cells.count).sum(axis=-1)
    means = (
        evidence.mean
        if Status.INVERSION in symbols.fit.status
        else evidence.likely_mean(likelihood.n[:, None], len(mechanism.keys))
    )
    return _result(mechanism, symbols, evidence, drawn, means)


@_estimated.register
def _(cells: Bins, mechanism: KeyValueMechanism, likelihood: Likelihood, estimator: Estimator) -> KeyValueEstimates:
    evidence = shown(mechanism, likelihood)
    keys = estimate_likelihood(mechanism, by_key(likelihood.operator, likelihood), estimator)
    drawn = keys.fit.theta
    if Status.INVERSION in keys.fit.status:
        return _result(mechanism, keys, evidence, drawn, evidence.mean)
    means = densities(likelihood.operator, likelihood, estimator, drawn) @ centres(cells.count)
    if late():
        keys = replace(keys, fit=keys.fit.out_of_time())
    return _result(mechanism, keys, evidence, drawn, means)


def _result(
    mechanism: KeyValueMechanism, symbols: Estimates, evidence: Shown, drawn: Floats, means: Floats
) -> KeyValueEstimates:
    """Return the estimates, with frequencies of at most 1 unless they are unbiased: nobody has a key more than once."""
    if Status.INVERSION not in symbols.fit.status:
        drawn = np.minimum(drawn, 1.0 / mechanism.padding)
    return KeyValueEstimates(mechanism, symbols, evidence, drawn, means)


# The number of pairs that people have, from the share of dummies.


_HALVINGS = 60


def lost_if_geometric(dummies: float, padding: int) -> float:
    """Return by how much frequencies are too low on the whole, if the sizes of the sets are geometric numbers.

    With sizes S for which P(S >= s) = q^s, a pair is drawn with probability E min(S, padding)/padding, the mean of q^s over
    s = 1 .. padding; the share of dummies is the rest and determines q. Frequencies add up to E min(S, padding) instead of E S,
    which is q^padding too low. Sizes that vary less lose less, and nothing is lost if no set is larger than the padding.

    >>> round(lost_if_geometric(0.5, 1), 2), round(lost_if_geometric(0.5, 4), 2)
    (0.5, 0.3)
    """
    sizes, low, high = np.arange(1, padding + 1), 0.0, 1.0
    for _ in range(_HALVINGS):
        q = (low + high) / 2
        low, high = (q, high) if (q**sizes).mean() < 1.0 - dummies else (low, q)
    return float(low**padding)
