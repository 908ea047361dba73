"""Distances between two distributions over the same values, and errors of one estimate against another."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ldpsql.errors import InvalidParameter
from ldpsql.estimates.conditions import check_ordered, scale_of, values_of
from ldpsql.inference.counting import ReportSource
from ldpsql.inference.operators import Floats
from ldpsql.mechanisms.base import Mechanism, certify
from ldpsql.privacy.claims import Line, Metric, MetricLdp

DISTANCES = ("total_variation", "js_divergence", "mse", "mae", "emd", "wasserstein")
TOLERANCE = 1e-6  # by which shares may miss 0 and their sum 1


def distance(
    name: str, p: ArrayLike, q: ArrayLike, source: Mechanism | ReportSource | None = None, power: float = 1.0
) -> float:
    """Return the distance of a name among `DISTANCES`.

    Args:
        name: the name.
        p: a distribution; ``mse`` and ``mae`` take any finite numbers.
        q: the other one.
        source: what drew the reports, whose values are as far apart as `emd` and `wasserstein` say; without it, one unit.
        power: the power of `wasserstein`.

    Raises:
        InvalidParameter: if there is no such distance, or these have none.

    """
    plain = {"total_variation": total_variation, "js_divergence": js_divergence, "mse": mse, "mae": mae}
    if name not in DISTANCES:
        raise InvalidParameter("there is no such distance", f"one of {', '.join(DISTANCES)}")
    if name in plain:
        return plain[name](p, q)
    claim = certify(source).certificate.claimed if isinstance(source, Mechanism) else None
    if name == "emd" and isinstance(claim, MetricLdp) and not isinstance(claim.metric, Line):
        return emd(p, q, claim.metric)
    if source is not None:
        check_ordered(source)
    at = None if source is None else scale_of(values_of(source))
    return wasserstein(p, q, power if name == "wasserstein" else 1.0, at)


def total_variation(p: ArrayLike, q: ArrayLike) -> float:
    """Return the largest difference between the probabilities of any event: half the sum of |p - q|.

    Raises:
        InvalidParameter: unless both are distributions over equally many values.

    """
    a, b = _distributions(p, q)
    return float(np.abs(a - b).sum()) / 2


def js_divergence(p: ArrayLike, q: ArrayLike) -> float:
    """Return the Jensen-Shannon divergence in nats, from 0 to ln 2: the mean relative entropy to (p + q)/2.

    Raises:
        InvalidParameter: unless both are distributions over equally many values.

    """
    a, b = _distributions(p, q)
    middle = (a + b) / 2
    return max(0.0, (_relative_entropy(a, middle) + _relative_entropy(b, middle)) / 2)


def emd(p: ArrayLike, q: ArrayLike, metric: Metric | None = None) -> float:
    """Return the earth mover's distance: the least mean distance that mass must be moved to turn p into q.

    By default values are one unit apart on a line. On a line the distance is a sum; under another metric it is a linear
    programme over the values where p is larger and those where q is, solved by HiGHS: .2 s for a grid of 400 cells.

    Raises:
        InvalidParameter: unless both are distributions over the values of the metric.

    """
    a, b = _distributions(p, q)
    metric = Line(len(a)) if metric is None else metric
    if len(metric) != len(a):
        raise InvalidParameter("the lists do not have one share for each value of the mechanism", "pass its own estimates")
    if isinstance(metric, Line):
        return wasserstein(a, b)
    return _transport(a - b, metric.matrix())


def wasserstein(p: ArrayLike, q: ArrayLike, power: float = 1.0, at: ArrayLike | None = None) -> float:
    """Return the Wasserstein distance on the line, (least mean of distance^power)^(1/power); with power 1 it is the EMD there.

    ``at`` holds the positions of the values, by default one unit apart. Mass moves in order, quantile to quantile.

    Raises:
        InvalidParameter: unless both are distributions over the values, and power is at least 1 and finite.

    """
    a, b = _distributions(p, q)
    if not 1 <= power < np.inf:
        raise InvalidParameter("power must be a number of at least 1", "1 gives the earth mover's distance")
    scale = np.arange(len(a), dtype=np.float64) if at is None else np.asarray(at, dtype=np.float64)
    if scale.shape != a.shape:
        raise InvalidParameter("the lists do not have one share for each value of the mechanism", "pass its own estimates")
    order = np.argsort(scale, kind="stable")
    scale, up, other = scale[order], a[order].cumsum(), b[order].cumsum()
    levels = np.union1d(up, other).clip(0.0, 1.0)
    last = len(scale) - 1
    # Between two levels both quantile functions are constant.
    middle = (levels + np.concatenate([[0.0], levels[:-1]])) / 2
    from_, to = (scale[np.minimum(np.searchsorted(rising, middle), last)] for rising in (up, other))
    mass = np.diff(levels, prepend=0.0)
    return float((mass @ np.abs(from_ - to) ** power) ** (1 / power))


def mse(p: ArrayLike, q: ArrayLike) -> float:
    """Return the mean squared difference of two lists of numbers.

    Raises:
        InvalidParameter: unless they are equally long and finite.

    """
    a, b = _numbers(p, q)
    return float(((a - b) ** 2).mean())


def mae(p: ArrayLike, q: ArrayLike) -> float:
    """Return the mean absolute difference of two lists of numbers.

    Raises:
        InvalidParameter: unless they are equally long and finite.

    """
    a, b = _numbers(p, q)
    return float(np.abs(a - b).mean())


def _transport(excess: Floats, distances: Floats) -> float:
    """Return the cost of moving the positive part of the excess to its negative part."""
    from scipy.optimize import linprog  # noqa: PLC0415  # slow to import, needed only off the line
    from scipy.sparse import csr_matrix  # noqa: PLC0415

    sources, sinks = np.flatnonzero(excess > 0), np.flatnonzero(excess < 0)
    if not len(sources) or not len(sinks):
        return 0.0
    supply, demand = excess[sources], -excess[sinks]
    demand = demand * (supply.sum() / demand.sum())
    pairs = np.arange(len(sources) * len(sinks))
    rows = np.concatenate([pairs // len(sinks), len(sources) + pairs % len(sinks)])
    table = csr_matrix((np.ones(len(rows)), (rows, np.tile(pairs, 2))))
    cost = distances[np.ix_(sources, sinks)].ravel()
    total = supply.sum()  # scaled, so that the tolerances of the solver are small compared with the mass
    moved = np.concatenate([supply, demand])[:-1] / total
    exact = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    solved = linprog(cost, A_eq=table[:-1], b_eq=moved, bounds=(0, None), method="highs-ds", options=exact)
    if solved.status != 0:
        raise InvalidParameter("the earth mover's distance could not be computed", "use coarser cells")
    return float(solved.fun * total)


def _relative_entropy(p: Floats, q: Floats) -> float:
    seen = p > 0
    return float(p[seen] @ np.log(p[seen] / q[seen]))


def _distributions(p: ArrayLike, q: ArrayLike) -> tuple[Floats, Floats]:
    a, b = _numbers(p, q)
    for shares in (a, b):
        if (shares < -TOLERANCE).any() or abs(shares.sum() - 1.0) > TOLERANCE:
            raise InvalidParameter(
                "this distance is between distributions: shares that are not negative and sum to 1",
                "ibu, inv_n and inv_p return distributions; inv does not",
            )
    return np.maximum(a, 0.0), np.maximum(b, 0.0)


def _numbers(p: ArrayLike, q: ArrayLike) -> tuple[Floats, Floats]:
    try:
        a, b = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    except (TypeError, ValueError):
        a, b = np.empty(0), np.empty(1)
    if a.ndim != 1 or a.shape != b.shape or not len(a) or not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise InvalidParameter("a distance needs two lists of equally many finite numbers", "pass the estimates, without NULL")
    return a, b
