"""What a raw column is by the values of a perturbed one: its mean, sum and variance, and regressions that these explain.

With the corrected sums N of weights and S of weighted outcomes, the mean of the value k is S_k / N_k. All are ratios of sums
over independent rows, so their errors are those of the sums of w Q(z, k)(y - mean_k), and intervals are Fieller's: they also
hold for rare values, whose N_k may be zero. They are about the population that the rows are a sample of.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from ldpsql.channels import Floats
from ldpsql.domains.columns import distinct
from ldpsql.domains.composite import Product
from ldpsql.domains.domain import Domain
from ldpsql.errors import InvalidParameter, NoReports, NotApplicable
from ldpsql.estimates.conditions import named_place, scale_of
from ldpsql.estimates.functionals import Measure, Pair, Two, differences_within, fieller
from ldpsql.estimates.question import NULL, Argument, Asked, Lines, Question, Source
from ldpsql.estimators.base import Estimator
from ldpsql.inference.operators import Ints
from ldpsql.inference.score_intervals import deviations
from ldpsql.mechanisms.base import Mechanism
from ldpsql.names import BEST, EMPIRICAL_BAYES, INV
from ldpsql.outcomes.corrected import columns_of, contributions
from ldpsql.outcomes.moments import Moments, RawRows, products

KINDS = ("mean", "sum", "variance", "share")
METHODS = (BEST, INV, EMPIRICAL_BAYES)
_BLOCK = 1 << 22  # numbers of contributions at a time
_ROUNDS, _FEWEST = 8, 3  # of the prior and the means; and values from which shrinking to a known centre has less error (Stein)


@dataclass(frozen=True)
class Corrected:
    """The corrected sums of one group with one raw column y.

    Args:
        sums: the sums of w, wy and wy^2 for each value, shape (values, 3).
        both: the sums of w^2 Q(., k) Q(., l) times 1, y and y^2, shape (3, values, values).
        own: the sums of w^2 Q(., k)^2 times 1 to y^4, shape (values, 5).
        single: the sums of w^2 Q(., k), shape (values,).
        centre: the mean of all outcomes.
        weight: the sums of w, of w^2 and of rows.
        ends: the least and the largest outcome.

    """

    sums: Floats
    both: Floats
    own: Floats
    single: Floats
    centre: float
    weight: tuple[float, float, float]
    ends: tuple[float, float]

    @classmethod
    def of(cls, mechanism: Mechanism, places: tuple[int, ...], moments: Moments) -> Corrected | None:
        """Return the corrected sums of one group; None if its rows have no weight."""
        sums: Floats = np.zeros((0, 3))
        totals, ends = np.zeros(4), np.array([np.inf, -np.inf])
        both = own = single = np.zeros(())
        edges = [*range(0, len(moments.n), max(1, _BLOCK // 64)), len(moments.n)]
        for start, end in pairwise(edges):
            part = moments.reports.slice(start, end - start)
            there, q = contributions(mechanism, places, part)
            at = there + start
            first, second = moments.first[at], moments.second[at]
            sums = q.T @ first + (sums if len(sums) else 0.0)
            both = both + np.stack([(q.T * second[:, power]) @ q for power in range(3)])
            own, single = own + (q**2).T @ second, single + q.T @ second[:, 0]
            totals += first[:, 0].sum(), second[:, 0].sum(), moments.n[at].sum(), first[:, 1].sum()
            ends = np.array([min(ends[0], *moments.ends[at, 0]), max(ends[1], *moments.ends[at, 1])])
        if not totals[0] > 0:
            return None
        weight, squares, rows, outcome = totals.tolist()
        return cls(sums, both, own, single, outcome / weight, (weight, squares, rows), (float(ends[0]), float(ends[1])))

    @property
    def effective(self) -> float:
        """How many rows of equal weight would have this variance of the total weight (Kish, "Survey sampling", 1965)."""
        return self.weight[0] ** 2 / self.weight[1]

    def scatter(self, about: Floats) -> Floats:
        """Return the covariance of the sums of w Q(., k)(y - about_k) for all values, shape (values, values)."""
        one, y, squares = self.both
        return np.asarray(squares - (about[:, None] + about) * y + about[:, None] * about * one)

    @cached_property
    def means(self) -> Floats:
        """The means by inversion; NaN if no weight is estimated for a value."""
        n = self.sums[:, 0]
        return np.where(n > 0, self.sums[:, 1] / np.where(n > 0, n, 1.0), np.nan)

    @property
    def of_means(self) -> Pair:
        """The means as ratios."""
        return Pair(self.sums[:, 1], self.sums[:, 0], *(self.both[power].diagonal() for power in (2, 1, 0)))

    @property
    def of_shares(self) -> Pair:
        """The shares of the total weight as ratios."""
        n, (total, squares, _) = self.sums[:, 0], self.weight
        return Pair(n, np.full_like(n, total), self.both[0].diagonal(), self.single, np.full_like(n, squares))

    @property
    def of_variances(self) -> Pair:
        """The variances as ratios, about the estimated means, whose errors matter in second order only."""
        m = np.nan_to_num(self.means)
        about = np.stack([m**2, -2 * m, np.ones_like(m)], axis=1)  # of 1, y and y^2
        square = np.stack([m**4, -4 * m**3, 6 * m**2, -4 * m, np.ones_like(m)], axis=1)  # of the fourth power
        return Pair(
            (self.sums * about).sum(axis=1),
            self.sums[:, 0],
            np.maximum((self.own * square).sum(axis=1), 0.0),
            (self.own[:, :3] * about).sum(axis=1),
            self.own[:, 0],
        )


def by_value(corrected: Corrected, kind: str, versus: int | None, estimator: Estimator) -> Measure:
    """Return the number for each value, with its standard error and interval, each field of shape (values,).

    If the weight of a value is not clearly above zero, its mean has an infinite error, and the interval may be all outcomes.

    Args:
        corrected: the sums.
        kind: the mean, sum, variance or share.
        versus: the place of the value that each mean is compared with; None for the means themselves.
        estimator: ``inv``, the unbiased inversion; ``empirical_bayes``, which for means learns from all values how much they
            differ, and draws uncertain ones towards the others, as far as the interval of the unbiased mean goes; ``best``,
            which is that for the means of three or more values. Errors and intervals are those of the inversion.
            Source: Efron, Morris, "Limiting the risk of Bayes and empirical Bayes estimators", JASA 1972.

    Raises:
        InvalidParameter: if it is another estimator, or there is no such number.

    """
    if kind not in KINDS:
        raise InvalidParameter(f"measure must be one of {', '.join(KINDS)}", "measure := 'mean'")
    if versus is not None and kind != "mean":
        raise InvalidParameter("only means are compared with that of a value", "leave out versus, or measure")
    if estimator.name not in METHODS:
        raise InvalidParameter(f"this takes the estimators {', '.join(METHODS)}", f"estimator := '{INV}'")
    z, (least, most) = deviations(estimator.pointwise(len(corrected.sums))), corrected.ends
    if kind == "sum":
        total = corrected.sums[:, 1]
        error = np.sqrt(np.maximum(corrected.both[2].diagonal() - total**2 / corrected.weight[2], 0.0))
        return Measure(total, error, total - z * error, total + z * error)
    if kind == "share":
        return _ratio(corrected.of_shares, z, 0.0, 1.0)
    if kind == "variance":
        return _ratio(corrected.of_variances, z, 0.0, (most - least) ** 2 / 4)
    plain = _ratio(corrected.of_means, z, least, most)
    if estimator.name != INV and len(corrected.sums) >= _FEWEST:
        plain = replace(plain, estimate=np.clip(posterior(corrected), plain.low, plain.high))
    return plain if versus is None else _compared(corrected, plain, versus, z)


def _ratio(pair: Pair, z: float, least: float, most: float) -> Measure:
    known = pair.bottom > z * np.sqrt(pair.bottoms)  # otherwise the interval of the ratio is not bounded
    estimate = np.where(pair.bottom > 0, pair.top / np.where(pair.bottom > 0, pair.bottom, 1.0), np.nan)
    r = np.nan_to_num(estimate)
    error = np.sqrt(np.maximum(pair.tops - 2 * r * pair.both + r**2 * pair.bottoms, 0.0)) / np.where(known, pair.bottom, 1.0)
    low, high = (np.clip(end, least, most) for end in fieller(pair, z, least, most))
    return Measure(np.clip(estimate, least, most), np.where(known, error, np.inf), low, high)


def _compared(corrected: Corrected, means: Measure, versus: int, z: float) -> Measure:
    """Return the differences of all means from that of one value."""
    k, (one, y, squares) = np.arange(len(corrected.sums)), corrected.both
    v = np.empty((len(k), 4, 4))
    for i, here in enumerate((k, np.full_like(k, versus))):
        for j, there in enumerate((k, np.full_like(k, versus))):
            block = [[squares[here, there], y[here, there]], [y[here, there], one[here, there]]]
            v[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2] = np.moveaxis(np.array(block), -1, 0)
    own = corrected.sums[:, [1, 0]]
    two = Two(np.concatenate([own, np.broadcast_to(own[versus], own.shape)], axis=1), v)
    _, low, high = differences_within(two, z, corrected.ends[1] - corrected.ends[0])
    error = (high - low) / (2 * z)
    known = np.isfinite(means.std_error) & np.isfinite(means.std_error[versus])
    same = k == versus
    error, apart = np.where(known, error, np.inf), means.estimate - means.estimate[versus]
    apart, error, low, high = (np.where(same, 0.0, column) for column in (apart, error, low, high))
    return Measure(apart, error, low, high)


def posterior(corrected: Corrected) -> Floats:
    """Return the means of the posterior of all means, under a normal prior learned from them.

    The prior is centred at the mean of all rows, which has no noise of the reports, and its variance has the largest marginal
    likelihood. The sums S_k - c N_k, which are linear, are what is known of the means: so values whose N_k is near zero are
    drawn to the centre, and their ratios are not used.
    Source: Efron, Morris, "Data analysis using Stein's estimator and its generalizations", JASA 1975.
    """
    n, centre, width = np.maximum(corrected.sums[:, 0], 0.0), corrected.centre, corrected.ends[1] - corrected.ends[0]
    if not width > 0:
        return np.full(len(n), centre)
    raised = corrected.sums[:, 1] - centre * corrected.sums[:, 0]
    means = np.full(len(n), centre)
    variances = width**2 * np.geomspace(1e-8, 0.25, 60)
    for _ in range(_ROUNDS):
        noise = corrected.scatter(means)
        noise = noise + np.eye(len(n)) * 1e-12 * max(float(noise.trace()), 1e-300)
        step = max(1, _BLOCK // noise.size)
        parts = (variances[start : start + step, None, None] for start in range(0, len(variances), step))
        fits = np.concatenate([_log_likelihood(raised, noise + part * np.diag(n**2)) for part in parts])
        spread = variances[int(np.argmax(fits))]
        gain = spread * n[:, None] * np.linalg.inv(noise + spread * np.diag(n**2))
        before, means = means, np.clip(centre + gain @ raised, *corrected.ends)
        if np.abs(means - before).max() <= 1e-3 * np.sqrt(spread):
            break
    return means


def _log_likelihood(x: Floats, covariances: Floats) -> Floats:
    """Return the log-density of a normal vector for each of several covariances, up to a constant."""
    roots = np.linalg.cholesky(covariances)
    scaled = np.linalg.solve(roots, x[:, None])[..., 0]
    return np.asarray(-0.5 * (scaled**2).sum(axis=1) - np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1))


# Questions about raw columns next to a perturbed one: their rows, or the sums of these, are read instead of counts.

OUTCOME = "outcome"


@dataclass(frozen=True, kw_only=True)
class QuestionOfOutcome(Question):
    """A question about a raw column by the values of a perturbed one, the only one or ``of``, which is answered from sums."""

    raw: ClassVar[Mapping[str, str | None]] = {OUTCOME: None}
    typed_by = "of"
    of: Argument = NULL

    @abstractmethod
    def of_sums(self, sums: Corrected, asked: Asked) -> Lines:
        """Return the answer for one group from its sums of weights and outcomes by value; ``asked.unit`` holds the values."""

    def about(self, values: Domain) -> tuple[QuestionOfOutcome, tuple[int, ...]]:
        """Return the question, and the place of its column in a table."""
        return self, self._places(values)

    def unit(self, values: Domain) -> Domain:
        return values.parts[self._places(values)[0]] if isinstance(values, Product) else values

    def _places(self, values: Domain) -> tuple[int, ...]:
        place = named_place(values, self.of)
        return () if place is None else (place,)

    def check(self, source: Source) -> None:
        """Refuse reports of mechanisms by level, and values that are not listed or too many."""
        columns_of(one_mechanism(source), self._places(self.values(source)))

    @classmethod
    def estimator(cls, source: Source) -> str:  # noqa: ARG003
        """Return the one with the smallest errors."""
        return BEST

    @classmethod
    def estimated(cls, asked: Asked, counts: Any) -> Iterator[tuple[Ints, Lines]]:
        """Yield the answer for each group whose rows have weight; ``counts`` are rows or their sums."""
        question, places = asked.functional
        for each in counts.sums().each():
            sums = Corrected.of(asked.source, places, each)
            if sums is not None:
                yield each.groups, question.of_sums(sums, asked)


def one_mechanism(source: Source) -> Mechanism:
    """Return what drew reports if it is one mechanism.

    Raises:
        InvalidParameter: if there is one for each level.

    """
    if not isinstance(source, Mechanism):
        raise InvalidParameter("raw columns are asked of the reports of one mechanism", "ask about the reports of each level")
    return source


# Regressions in which a perturbed column explains a raw one: unbiased estimating equations, with sandwich errors.
#
# A row with report z, raw columns u = (1, y, x_1, ...) and weight w contributes w sum_k Q(z, k) v_k(y - h(v_k'b)) to the
# score of the coefficients b, where v_k is the row of the design if the value is k. Its expectation is the score of the true
# values, for every channel and without a model of the values, so the root is consistent. h is the identity, or the logistic
# function. Sources: Nakamura, "Corrected score function for errors-in-variables models", Biometrika 1990; van den Hout,
# Kooiman, "Estimating the linear regression model with categorical covariates subject to randomized response", Computational
# Statistics & Data Analysis 2006, for krr.

_STEPS = 100
_MOST_TERMS = 200


@dataclass(frozen=True)
class Design:
    """The columns of a regression, as maps from u = (1, y, x_1, ...) to a row of the design for each value.

    Args:
        places: the places of the perturbed columns if the reports are rows.
        terms: the names of the coefficients.
        maps: the matrices D_k with v_k = D_k u, shape (values, terms, 2 + raw regressors).
        smooth: whether all perturbed columns enter as numbers.

    """

    places: tuple[int, ...]
    terms: tuple[str, ...]
    maps: Floats
    smooth: bool

    @classmethod
    def of(
        cls,
        mechanism: Mechanism,
        names: Sequence[str],
        places: tuple[int, ...],
        raw: Sequence[str],
        *,
        numbers: bool = False,
        interactions: bool = False,
    ) -> Design:
        """Return an intercept, the perturbed columns and the raw ones.

        Args:
            mechanism: what drew the reports.
            names: the names of the perturbed columns.
            places: their places if the reports are rows.
            raw: the names of the raw regressors.
            numbers: whether the values enter as numbers; otherwise as indicators of all but the first.
            interactions: whether the products of perturbed and raw columns enter, too.

        """
        columns = columns_of(mechanism, places)
        sizes = list(map(len, columns))
        at = np.indices(sizes).reshape(len(sizes), -1)
        terms, of_value = ["intercept"], [np.ones(at.shape[1])]
        for name, values, place in zip(names, columns, at, strict=True):
            if numbers:
                terms.append(name)
                of_value.append(scale_of(values)[place])
            else:
                terms += [f"{name}: {text}" for text in values.written.to_pylist()[1:]]
                of_value += [(place == k).astype(np.float64) for k in range(1, len(values))]
        perturbed = len(terms)
        pairs = [(term, 0) for term in range(perturbed)] + [(0, i + 2) for i in range(len(raw))]
        terms += raw
        if interactions:
            pairs += [(term, i + 2) for i in range(len(raw)) for term in range(1, perturbed)]
            terms += [f"{terms[term]} x {name}" for name in raw for term in range(1, perturbed)]
        if len(terms) > _MOST_TERMS:
            raise InvalidParameter(f"there are {len(terms)} coefficients, and at most {_MOST_TERMS}", "use fewer values")
        maps = np.zeros((at.shape[1], len(terms), 2 + len(raw)))
        for row, (term, column) in enumerate(pairs):
            maps[:, row, column] = of_value[term]
        return cls(places, tuple(terms), maps, numbers)


def named_columns(values: Domain, of: pa.Scalar) -> tuple[list[str], tuple[int, ...]]:
    """Return the names and the places of the columns of a table that are named, all if none is; of one column no place.

    Args:
        values: the cells of a table, or the values of one column.
        of: a name, a list of names, or NULL.

    Raises:
        InvalidParameter: if one is not the name of a column.

    """
    several = list(of.values) if isinstance(of, pa.ListScalar | pa.LargeListScalar) and of.is_valid else [of]
    named = [place for place in (named_place(values, name) for name in several) if place is not None]
    if not isinstance(values, Product):
        return ["value"], ()
    places = tuple(dict.fromkeys(named)) or tuple(range(len(values.parts)))
    return [values.names[place] for place in places], places


class Coefficients(NamedTuple):
    """The coefficients of a regression, with sandwich errors, intervals and p-values, each of shape (terms,)."""

    estimate: Floats
    std_error: Floats
    low: Floats
    high: Floats
    p_value: Floats

    @classmethod
    def of(cls, b: Floats, covariance: Floats, confidence: float, effective: float) -> Coefficients:
        """Return coefficients with the errors of a sandwich, enlarged for the fitted coefficients (HC1)."""
        from scipy.special import erfc  # noqa: PLC0415  # slow to import

        z, spare = deviations(confidence), effective / max(effective - len(b), 1.0)
        error = np.sqrt(np.maximum(covariance.diagonal(), 0.0) * spare)
        p = erfc(np.abs(b) / np.where(error > 0, error, np.inf) / np.sqrt(2))
        return cls(b, error, b - z * error, b + z * error, p)


def linear(mechanism: Mechanism, moments: Moments, design: Design, confidence: float) -> Coefficients:
    """Return the linear regression of the first raw column, from the sums of one group.

    Raises:
        NotApplicable: if the coefficients are not determined.

    """
    there, q = contributions(mechanism, design.places, moments.reports, strict=not design.smooth)
    if not len(there) or not moments.first[there, 0].sum() > 0:
        raise NoReports()
    size, d = design.maps.shape[2], design.maps
    second = _expanded(q.T @ moments.first[there], size, 2)
    gram = np.einsum("kqa,kab,krb->qr", d, second, d)
    inverse = _inverse(gram)
    b = inverse @ np.einsum("kqa,ka->q", d, second[:, :, 1])
    residual = -np.einsum("kqa,q->ka", d, b)
    residual[:, 1] += 1.0
    own = np.einsum("kqa,kb->kqab", d, residual).reshape(len(d), -1)
    meat = np.zeros_like(gram)
    step = max(1, _BLOCK // own.shape[1])
    for start in range(0, len(there), step):
        part = slice(start, start + step)
        score = (q[part] @ own).reshape(-1, len(gram), size**2)
        fourth = _expanded(moments.second[there[part]], size, 4).reshape(-1, size**2, size**2)
        meat += np.einsum("zqm,zmn,zrn->qr", score, fourth, score, optimize=True)
    effective = moments.first[there, 0].sum() ** 2 / moments.second[there, 0].sum()
    return Coefficients.of(b, inverse @ meat @ inverse.T, confidence, effective)


def logistic(mechanism: Mechanism, rows: RawRows, design: Design, confidence: float) -> Coefficients:
    """Return the logistic regression of the first raw column, whose outcomes are between 0 and 1.

    Or they are two numbers, the unbiased ones of the reports of a 0 or a 1: the score is linear in the outcome.

    Args:
        mechanism: what drew the reports.
        rows: the rows of one group.
        design: the columns.
        confidence: of the intervals.

    Raises:
        InvalidParameter: if the outcomes are others.
        NotApplicable: if the corrected score has no root, as the reports are too few or too noisy.

    """
    reports, raw, weight, squares = _distinct(rows)
    outcomes = np.unique(raw[:, 0])
    outside = len(outcomes) > 0 and (outcomes[0] < 0 or outcomes[-1] > 1)
    if outside and not (len(outcomes) == 2 and outcomes[0] < 0 and outcomes[1] > 1):
        raise InvalidParameter("a logistic regression needs outcomes between 0 and 1", "such as (income > 50)::INTEGER")
    there, q = contributions(mechanism, design.places, reports, strict=not design.smooth)
    if not len(there) or not weight[there].sum() > 0:
        raise NoReports()
    u = np.column_stack([np.ones(len(there)), raw[there]])
    w, ww = weight[there], squares[there]
    b, (total, slope, meat) = _root(partial(_scores, design.maps, u, q, (w, ww)), len(design.terms))
    if np.linalg.norm(total) > 1e-6 * w.sum() or np.linalg.eigvalsh((slope + slope.T) / 2)[0] <= 0:
        raise _undetermined()
    inverse = _inverse(slope)
    return Coefficients.of(b, inverse @ meat @ inverse.T, confidence, w.sum() ** 2 / ww.sum())


Scores: TypeAlias = tuple[Floats, Floats, Floats]


def _scores(maps: Floats, u: Floats, q: Floats, weights: tuple[Floats, Floats], b: Floats) -> Scores:
    """Return the total score at coefficients b, its derivative, and the middle of the sandwich.

    Args:
        maps: the regressors of each value, as `Design.maps`.
        u: a row of 1, the outcome and the raw columns for each distinct row.
        q: what the report of each row contributes to each value.
        weights: the sum of the weights of each distinct row, and that of their squares.
        b: the coefficients.

    """
    total, slope, meat = np.zeros(len(b)), np.zeros((len(b), len(b))), np.zeros((len(b), len(b)))
    w, ww = weights
    step = max(1, _BLOCK // (maps.shape[0] * maps.shape[2]))
    for start in range(0, len(u), step):
        part = slice(start, start + step)
        fitted = 1.0 / (1.0 + np.exp(-np.clip(u[part] @ np.einsum("kqa,q->ak", maps, b), -500, 500)))
        away = q[part] * (u[part, 1, None] - fitted)
        each = np.einsum("kqa,ia,ik->iq", maps, u[part], away, optimize=True)
        total += w[part] @ each
        meat += (each.T * ww[part]) @ each
        bend = q[part] * (w[part, None] * fitted * (1.0 - fitted))
        slope += np.einsum("kqa,kab,krb->qr", maps, np.einsum("ik,ia,ib->kab", bend, u[part], u[part], optimize=True), maps)
    return total, slope, meat


def _root(scores: Callable[[Floats], Scores], size: int) -> tuple[Floats, Scores]:
    """Return the coefficients at which the total score is zero, by Newton's steps from zero, and the scores there.

    Raises:
        NotApplicable: if the steps do not end.

    """
    b = np.zeros(size)
    here = scores(b)
    for _ in range(_STEPS):
        move = _inverse(here[1]) @ here[0]
        length, further = 1.0, scores(b + move)
        while not np.linalg.norm(further[0]) < np.linalg.norm(here[0]) and length > 1e-4:
            length /= 2
            further = scores(b + length * move)
        b, here = b + length * move, further
        if np.abs(length * move).max() < 1e-9 * (1 + np.abs(b).max()):
            return b, here
    raise _undetermined()


def _distinct(rows: RawRows) -> tuple[pa.Array, Floats, Floats, Floats]:
    """Return distinct rows: reports, raw columns, sums of weights and of their squares."""
    _, number = distinct(rows.reports)
    keys = np.column_stack([number, rows.raw])
    _, first, place = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    added, squares = (np.bincount(place.ravel(), rows.weights**power, len(first)).astype(np.float64) for power in (1, 2))
    return rows.reports.take(pa.array(first)), rows.raw[first], added, squares


def _expanded(sums: Floats, size: int, degree: int) -> Floats:
    """Return sums of products as symmetric tensors: (rows, products) -> (rows, size, ..., size)."""
    places = {combination: i for i, combination in enumerate(products(size - 1, degree))}
    index = np.indices((size,) * degree).reshape(degree, -1).T
    order = [places[tuple(sorted(one))] for one in index.tolist()]
    return sums[:, order].reshape(len(sums), *(size,) * degree)


def _inverse(gram: Floats) -> Floats:
    scale = np.sqrt(np.abs(gram.diagonal()))
    if not (np.isfinite(gram).all() and (scale > 0).all()):
        raise _undetermined()
    scaled = gram / np.outer(scale, scale)
    if np.linalg.cond(scaled) > 1e12:
        raise _undetermined()
    return np.asarray(np.linalg.inv(scaled) / np.outer(scale, scale))


def _undetermined() -> NotApplicable:
    return NotApplicable(
        "the reports do not determine these coefficients", "use fewer values or regressors, more rows, or a larger epsilon"
    )
