"""The files of a google/rappor collection, as rows: read into parameters, counts and candidates, and the shares of these."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels.costs import Cost
from ldpsql.domains.columns import finite_or_null
from ldpsql.errors import BadCounts, InvalidParameter
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import DenseOperator, Floats
from ldpsql.inference.outcome import Fit
from ldpsql.inference.score_intervals import deviations
from ldpsql.inference.solver.mle import maximum_likelihood

# Collections of google/rappor: shares of candidate strings from the counts of Bloom bits in each cohort.
#
# Erlingsson, Pihur, Korolova, "RAPPOR: randomized aggregatable privacy-preserving ordinal response", CCS 2014.


_SMALLEST = 1e-12  # an eigenvalue of the information, relative to the largest, below which shares are not determined
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class BloomParameters:
    """The parameters of a collection, with the names of google/rappor.

    Args:
        k: bits of a Bloom filter.
        h: hash functions.
        m: cohorts.
        p: probability that an instantaneous response reports a 0 as 1.
        q: probability that it reports a 1 as 1.
        f: share of the bits that the permanent response replaces by a coin.

    Raises:
        InvalidParameter: if the numbers are out of range, or the reports do not depend on the strings.

    """

    k: int
    h: int
    m: int
    p: float
    q: float
    f: float

    def __post_init__(self) -> None:
        if min(self.k, self.h, self.m) < 1 or not all(0 <= share <= 1 for share in (self.p, self.q, self.f)):
            raise InvalidParameter("k, h and m must be at least 1, and p, q and f between 0 and 1", "see params.csv")
        if np.isclose(self.one, self.zero):
            raise InvalidParameter("with these p, q and f, the reports do not depend on the strings", "f < 1 and p <> q")

    @property
    def zero(self) -> float:
        """Probability that a bit that the string does not set is reported as 1."""
        return (1 - self.f / 2) * self.p + self.f / 2 * self.q

    @property
    def one(self) -> float:
        """Probability that a bit that the string sets is reported as 1."""
        return (1 - self.f / 2) * self.q + self.f / 2 * self.p


@dataclass(frozen=True)
class BloomShares:
    """The shares of all candidates and, last, of all other strings; the fit certifies the maximum of the likelihood.

    Args:
        shares: the maximum of the likelihood.
        debiased: the estimates to which the errors belong, which may be negative.
        std_error: their standard errors; infinite where the counts do not determine a share.
        p_value: of the hypothesis that nobody has the string.
        gap: how much higher the log-likelihood of any other distribution can be.

    """

    shares: Floats
    debiased: Floats
    std_error: Floats
    p_value: Floats
    gap: float

    def intervals(self) -> tuple[Floats, Floats]:
        """Return the ends of the intervals with 95 % confidence, each within [0, 1]."""
        reach = np.where(np.isfinite(self.std_error), deviations(_CONFIDENCE) * self.std_error, 2.0)
        low, high = np.clip(self.debiased - reach, 0, 1), np.clip(self.debiased + reach, 0, 1)
        return np.minimum(low, self.shares), np.maximum(high, self.shares)

    def detected(self, rate: float) -> NDArray[np.bool_]:
        """Return which candidates occur, if at most a share ``rate`` of these may be false (Benjamini and Hochberg)."""
        order = np.argsort(self.p_value[:-1], kind="stable")
        count = len(order)
        below = np.flatnonzero(self.p_value[order] <= rate * np.arange(1, count + 1) / count)
        out = np.zeros(count, dtype=np.bool_)
        out[order[: below[-1] + 1 if len(below) else 0]] = True
        return out


def bloom_shares(parameters: BloomParameters, sizes: Floats, ones: Floats, members: NDArray[np.bool_]) -> BloomShares:
    """Return the shares of candidates from the counts of bits.

    Given the string, the bits of a report are independent. The likelihood is that of every bit by itself; the errors take
    into account that the bits of one report belong to one string.

    Args:
        parameters: of the collection.
        sizes: number of reports of each cohort, shape (m,).
        ones: how many of these report each bit as 1, shape (m, k).
        members: which bits each candidate sets, shape (candidates, m, k).
    """
    if sizes.shape != (parameters.m,) or ones.shape != (parameters.m, parameters.k):
        raise BadCounts("the counts need a row for each cohort: its reports, and then a count for each bit")
    if not sizes.sum() or (ones < 0).any() or (ones > sizes[:, None]).any():
        raise BadCounts("a count of a bit is negative or above the reports of its cohort, or there are no reports")
    return _Fitted(parameters, sizes, ones, members).result()


@dataclass(frozen=True)
class _Fitted:
    """One collection, and what its estimate needs; the last column stands for all other strings."""

    parameters: BloomParameters
    sizes: Floats
    ones: Floats
    members: NDArray[np.bool_]

    @cached_property
    def chances(self) -> Floats:
        """P(bit is 1 | string), shape (m, k, strings); any other string sets each bit with the same probability."""
        own = self.parameters
        other = np.full((own.m, own.k, 1), 1 - (1 - 1 / own.k) ** own.h)
        held = np.concatenate([np.moveaxis(self.members, 0, -1), other], axis=2)
        return np.asarray(own.zero + (own.one - own.zero) * held)

    def result(self) -> BloomShares:
        """Return the maximum, and around it one step of scoring without bounds."""
        flat = self.chances.reshape(-1, self.chances.shape[2])
        table = np.concatenate([flat, 1 - flat]).T
        counts = np.concatenate([self.ones.ravel(), (self.sizes[:, None] - self.ones).ravel()])[None]
        likelihood = Likelihood(DenseOperator(table), counts)
        fit = maximum_likelihood(likelihood)
        debiased, error = self._debiased(fit)
        p_value = np.array([0.5 * math.erfc(z / math.sqrt(2)) for z in debiased / error])
        p_value[np.isinf(error)] = 1.0
        gap = float(likelihood.n[0] * np.log1p(max(0.0, float(likelihood.gap(fit.theta)[0]))))
        return BloomShares(fit.theta[0], debiased, error, p_value, gap)

    def _debiased(self, fit: Fit) -> tuple[Floats, Floats]:
        """Return estimates and standard errors without the bounds of shares, which sum to 1.

        The counts of bits in a cohort have the covariance n (P(both are 1) - P P'), where both depend on one string.
        """
        theta, slopes = fit.theta[0], self.chances - self.chances[:, :, -1:]  # of all but the last share, which follows
        expected = np.clip(self.chances @ theta, 1e-12, 1 - 1e-12)
        weights = slopes[:, :, :-1] / (expected * (1 - expected))[:, :, None]
        information, noise = np.zeros((2, len(theta) - 1, len(theta) - 1))
        for size, slope, weight, chance, mean in zip(self.sizes, slopes, weights, self.chances, expected, strict=True):
            together = (chance * theta) @ chance.T - np.outer(mean, mean)
            np.fill_diagonal(together, mean * (1 - mean))
            information += size * weight.T @ slope[:, :-1]
            noise += size * weight.T @ together @ weight
        score = np.einsum("mks,mk->s", weights, self.ones - self.sizes[:, None] * expected)
        return _step(theta, information, noise, score)


def _step(theta: Floats, information: Floats, noise: Floats, score: Floats) -> tuple[Floats, Floats]:
    """Return the estimates after a step of scoring and their standard errors, for all strings."""
    values, vectors = np.linalg.eigh(information)
    strong = values > _SMALLEST * values[-1]
    inverse = (vectors[:, strong] / values[strong]) @ vectors[:, strong].T
    covariance = inverse @ noise @ inverse
    moved, variance = theta[:-1] + inverse @ score, np.diag(covariance)
    unknown = (vectors[:, ~strong] ** 2).sum(axis=1) > np.sqrt(_SMALLEST)
    error = np.where(unknown, np.inf, np.sqrt(variance))
    rest = np.inf if unknown.any() else float(np.sqrt(covariance.sum()))
    return np.append(moved, 1 - moved.sum()), np.append(error, rest)


Rows: TypeAlias = Sequence[Mapping[str, Any]]  # of a file; only params need the names of their columns
_PARAMETERS = ("k", "h", "m", "p", "q", "f")


def collection_shares(params: Rows, counts: Rows, candidates: Rows, rate: object) -> pa.Table:
    """Return a row for each candidate, and a last one, of which the candidate is NULL, for all other strings.

    Args:
        params: one row with the parameters.
        counts: for each cohort the number of reports, then a count for each bit.
        candidates: strings, then the bits that each sets; bits are numbered from 1 through all cohorts.
        rate: the expected share of the detected candidates that nobody has.

    Raises:
        InvalidParameter: if the parameters, the rate or the candidates do not make a collection.
        BadCounts: if the counts do not fit the parameters.

    """
    if not isinstance(rate, int | float | Decimal) or not 0 < rate < 1:
        raise InvalidParameter("the false discovery rate must lie between 0 and 1", "for example rate := 0.05")
    parameters, table = _parameters(params), _counts(counts)
    names, members = _members(parameters, [list(row.values()) for row in candidates])
    estimated = bloom_shares(parameters, table[:, 0], table[:, 1:], members)
    return _columns(names, estimated, float(rate))


def _parameters(rows: Rows) -> BloomParameters:
    fields = rows[0] if len(rows) == 1 else {}
    numbers: list[Any] = [fields.get(name) for name in _PARAMETERS]
    if not all(isinstance(number, int | float) for number in numbers) or not all(isinstance(n, int) for n in numbers[:3]):
        raise InvalidParameter("params needs one row with whole numbers k, h and m, and with p, q and f", "see google/rappor")
    return BloomParameters(*numbers)


def _counts(rows: Rows) -> Floats:
    numbers = [list(row.values()) for row in rows]
    if len({len(row) for row in numbers}) != 1 or not all(type(number) is int for row in numbers for number in row):
        raise BadCounts("the counts need whole numbers: the reports of a cohort, and then a count for each bit")
    return np.array(numbers, dtype=np.float64)


def _members(parameters: BloomParameters, candidates: list[list[Any]]) -> tuple[list[str], NDArray[np.bool_]]:
    """Return the distinct candidates and the bits that each sets; bits are numbered from 1 through all cohorts."""
    listed = {str(row[0]): row[1:] for row in candidates if row[0] is not None}
    bits = parameters.m * parameters.k
    if not listed:
        raise InvalidParameter("the map needs at least one candidate", "a first column of strings, then their bits")
    Cost(bytes=64 * bits * len(listed)).check("the table of candidates and bits", "list fewer candidates")
    members = np.zeros((len(listed), bits), dtype=np.bool_)
    for place, row in enumerate(listed.values()):
        members[place, _positions(row, bits)] = True
    return list(listed), members.reshape(-1, parameters.m, parameters.k)


def _positions(row: Sequence[Any], bits: int) -> list[int]:
    """Return the bits of a candidate, counted from 0; the CSV of google/rappor may end with an empty field."""
    texts = [str(number).strip() for number in row if number is not None]
    if not all(text.isdecimal() and 1 <= int(text) <= bits for text in filter(None, texts)):
        raise InvalidParameter(
            f"the map has a bit that is not a number from 1 to {bits}", "bits are counted through all cohorts"
        )
    return [int(text) - 1 for text in filter(None, texts)]


def _columns(names: list[str], estimated: BloomShares, rate: float) -> pa.Table:
    low, high = estimated.intervals()
    columns = {
        "candidate": pa.array([*names, None], pa.string()),
        "estimate": pa.array(estimated.shares),
        "std_error": finite_or_null(estimated.std_error),
        "low": pa.array(low),
        "high": pa.array(high),
        "p_value": pa.array(estimated.p_value),
        "detected": pa.array([*estimated.detected(rate).tolist(), None]),
        "gap": pa.array(np.full(len(low), estimated.gap)),
    }
    return pa.table(columns)
