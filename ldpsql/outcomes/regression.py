"""Regressions in which a perturbed column explains a raw one: unbiased estimating equations, with sandwich errors.

A row with report z, raw columns u = (1, y, x_1, ...) and weight w contributes w sum_k Q(z, k) v_k(y - h(v_k'b)) to the score of
the coefficients b, where v_k is the row of the design if the value is k. Its expectation is the score of the true values, for
every channel and without a model of the values, so the root is consistent. h is the identity, or the logistic function.
Sources: Nakamura, "Corrected score function for errors-in-variables models", Biometrika 1990; van den Hout, Kooiman,
"Estimating the linear regression model with categorical covariates subject to randomized response", Computational Statistics &
Data Analysis 2006, for krr.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from ldpsql.channels import Floats
from ldpsql.domains.columns import distinct
from ldpsql.domains.domain import Domain
from ldpsql.domains.product import Product
from ldpsql.errors import InvalidParameter, NoReports, NotApplicable
from ldpsql.estimates.conditions import named_place, scale_of
from ldpsql.inference.score_intervals import deviations
from ldpsql.mechanisms.base import Mechanism
from ldpsql.outcomes.corrected import columns_of, contributions
from ldpsql.outcomes.moments import Moments, RawRows, products

_STEPS, _BLOCK = 100, 1 << 22
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
