"""What is drawn from an estimate: rows, for tools that need rows, and reports, on which estimators are compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.channels.randomness import Words, random_words
from ldpsql.domains.columns import family
from ldpsql.errors import IllConditioned, InvalidParameter, NotApplicable
from ldpsql.errors.boundary import withheld
from ldpsql.estimates.conditions import check_ordered, scale_of
from ldpsql.estimates.estimate import Estimate, fitted
from ldpsql.estimators.base import Estimator, generator, redrawn
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.limits import check
from ldpsql.inference.operators import Floats
from ldpsql.inference.outcome import simplex_projection
from ldpsql.inference.solver.mle import maximum_likelihood
from ldpsql.mechanisms.base import Mechanism

MOST_ROWS = 100_000_000
OF_ESTIMATES = ("estimate", "std_error", "low", "high", "n")  # columns of an estimate that are not values
_EXAMPLE = "FROM ldp.synthesize(shares, 1000), where shares is a table or a CTE: FROM ldp.margin(reports, report, m)"


@withheld
def synthesize(estimate: Estimate | pa.Table, rows: int) -> pa.Table:
    """Return rows that are drawn from an estimate, in random order: a column for each variable, in its own type.

    A value that has a share s occurs in s times ``rows`` of them, rounded up or down at random; negative shares count as zero.
    Nothing but the estimate is read, so the rows spend no epsilon. They are not reports: do not estimate from them again.

    Args:
        estimate: an estimate, or a table of one or several groups as SQL returns it, with the column ``estimate``. If it has a
            column ``n``, groups occur as often as they have reports.
        rows: how many, at most 100,000,000.

    Raises:
        InvalidParameter: unless it is an estimate, and ``rows`` such a number.

    """
    table = _flat(estimate.to_arrow()) if isinstance(estimate, Estimate) else estimate
    if not isinstance(table, pa.Table):
        raise InvalidParameter("synthetic rows are drawn from an estimate, or from a table of one", "ldpsql.estimate(...)")
    drawn = drawn_cells(weights(table.to_struct_array().combine_chunks()), rows)
    kept = [name for name in table.column_names if name.lower() not in OF_ESTIMATES]
    return table.select(kept).take(pa.array(drawn))


def _flat(table: pa.Table) -> pa.Table:
    """Return a table with a column for each variable."""
    if not pa.types.is_struct(table.schema.field("value").type):
        return table
    values = table.column("value").combine_chunks()
    columns = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
    return pa.table({**columns, "estimate": table.column("estimate")})


def weights(rows: pa.StructArray) -> Floats:
    """Return how many reports each row of an estimate stands for, up to a factor."""
    names = {field.name: place for place, field in enumerate(rows.type)}
    if "estimate" not in names:
        raise InvalidParameter("synthetic rows are drawn from an estimate: a table with a column estimate", _EXAMPLE)
    if any(names.get(name, len(names)) < names["estimate"] for name in OF_ESTIMATES[1:]):
        raise InvalidParameter(
            f"a variable has the name of a column of estimates: one of {', '.join(OF_ESTIMATES)}",
            "rename it: SELECT * RENAME (n AS number) FROM shares",
        )
    factors = [rows.field(name) for name in ("estimate", "n") if name in names]
    if any(family(factor.type) != "number" for factor in factors):
        raise InvalidParameter("the columns estimate and n of an estimate must be numbers", _EXAMPLE)
    each = reduce(pc.multiply, [factor.cast(pa.float64()) for factor in factors])
    out = np.maximum(each.to_numpy(zero_copy_only=False), 0.0)
    if not np.isfinite(out).all() or not out.sum() > 0:
        raise InvalidParameter("there are no rows to draw if a share is NULL, or if none is above zero", _EXAMPLE)
    return out


def drawn_cells(of: Floats, rows: int, words: Words = random_words) -> NDArray[np.int64]:
    """Return positions, each in proportion to its weight up to one, in random order.

    Source: Madow, "On the theory of systematic sampling, II", Annals of Mathematical Statistics 1949: cells in random order
    are laid on a line, and one offset decides where all of the evenly spaced draws fall.

    Raises:
        InvalidParameter: unless ``rows`` is a whole number up to the limit.

    """
    if type(rows) is not int or not 0 <= rows <= MOST_ROWS:
        raise InvalidParameter(f"rows must be a whole number from 0 to {MOST_ROWS:,}", _EXAMPLE)
    order = np.argsort(words(len(of)), kind="stable")
    ends = of[order].cumsum() / of.sum() * rows
    ends[-1] = rows
    offset = float(words(1)[0] >> np.uint64(40)) / 2**24  # below 1, and exact when it is added to the largest end
    counts = np.diff(np.floor(np.minimum(ends, rows) + offset), prepend=0.0).astype(np.int64)
    drawn = np.repeat(order, counts)
    return drawn[np.argsort(words(len(drawn)), kind="stable")]


# Which estimator suits a question best, by simulation: each is tried on reports that are drawn from an estimate.
#
# Ye, Wang, Zhang, Feng, "Revisiting EM-based estimation for locally differentially private protocols", NDSS 2025, section
# VII. The method is the parametric bootstrap of Efron, Tibshirani, "An introduction to the bootstrap", 1993, section 6.5.
# Simulated reports protect nobody and are never stored: they are counts that a generator keyed by the real counts draws.

RUNS, MOST_RUNS = 20, 10_000
OF_PLACES = ("wasserstein", "mean", "variance")  # errors that depend on the positions of the values
CLEAR = 2.0  # standard errors of a difference, from which on one estimator is better than another
MetricName: TypeAlias = Literal["mae", "mse", "total_variation", "wasserstein", "mean", "variance"]
Metric: TypeAlias = Callable[[Floats, Floats], float]


@dataclass(frozen=True)
class SimulatedError:
    """The error of one estimator in simulations: its mean, its standard error, and whether no other is clearly lower.

    Both are None if the estimator does not suit the reports.
    """

    estimator: str
    error: float | None
    std_error: float | None
    best: bool


@dataclass(frozen=True)
class Simulation:
    """What to compare: estimators, by the mean of a named error over so many runs.

    Raises:
        InvalidParameter: if there are no estimators, too few or too many runs, or no such error.

    """

    estimators: tuple[Estimator, ...]
    metric: str = "mae"
    runs: int = RUNS

    def __post_init__(self) -> None:
        if not self.estimators:
            raise InvalidParameter("the list of estimators is empty", "estimators := ['ibu', 'em_mr', 'best']")
        if not 2 <= self.runs <= MOST_RUNS:
            raise InvalidParameter("the number of simulations is out of range", f"from 2 to {MOST_RUNS}")
        if self.metric not in get_args(MetricName):
            raise InvalidParameter("there is no such error of an estimate", f"one of {', '.join(get_args(MetricName))}")


def simulated_errors(estimate: Estimate, simulation: Simulation, metric: Metric | None = None) -> list[SimulatedError]:
    """Return the error of each estimator in simulations, as if this estimate were the truth.

    Args:
        estimate: what reports are simulated from.
        simulation: the estimators and the number of runs.
        metric: an error that is not listed, from the true shares and the estimated ones.

    Raises:
        InvalidDomain: if the error needs positions, and the values have no order.

    """
    one, at = estimate.likelihood, np.arange(len(estimate.estimate), dtype=np.float64)
    if metric is None and simulation.metric in OF_PLACES:
        source = estimate.of.source
        if isinstance(source, Mechanism):
            check_ordered(source)
        at = scale_of(estimate.values)
    return compare_simulated(one, estimate.estimate[None], simulation, metric or metric_named(simulation.metric, at))


def compare_simulated(one: Likelihood, theta: Floats, simulation: Simulation, metric: Metric) -> list[SimulatedError]:
    """Return the error of each estimator in simulations, as if theta, shape (1, values), were the truth of one group."""
    truth, simulated = simulations(one, theta, simulation.runs)
    errors = np.array([_errors(estimator, truth, simulated, metric) for estimator in simulation.estimators])
    return [
        SimulatedError(str(estimator).removesuffix("()"), mean, std_error, near)
        for estimator, (mean, std_error), near in zip(
            simulation.estimators, map(_finite_mean, errors), _unbeaten(errors), strict=True
        )
    ]


def simulations(one: Likelihood, theta: Floats, runs: int) -> tuple[Floats, Likelihood]:
    """Return the shares that stand for the truth, shape (values,), and the counts of as many simulated reports, a group a run.

    If the likelihood holds only the reports that were observed, these are drawn again, and the truth is their maximum.
    """
    truth = simplex_projection(theta) if one.operator.complete else maximum_likelihood(one).theta
    draw = generator(one.counts)
    counts = [redrawn(one, truth, draw).counts for _ in range(runs)]
    return truth[0], one.with_counts(np.concatenate(counts))


def _errors(estimator: Estimator, truth: Floats, simulated: Likelihood, metric: Metric) -> Floats:
    """Return the error of each run; NaN if the estimator does not suit the reports."""
    try:
        theta = fitted(estimator, simulated).theta
    except (NotApplicable, IllConditioned):
        return np.full(len(simulated.counts), np.nan)
    check()  # an estimator that was cut short is not compared
    return np.array([metric(truth, shares) for shares in theta], dtype=np.float64)


def _finite_mean(errors: Floats) -> tuple[float, float] | tuple[None, None]:
    """Return the mean and its standard error; None for both if the estimator does not suit the reports."""
    return (None, None) if np.isnan(errors).any() else _mean(errors)


def _mean(errors: Floats) -> tuple[float, float]:
    return float(errors.mean()), float(errors.std(ddof=1) / np.sqrt(len(errors)))


def _unbeaten(errors: Floats) -> list[bool]:
    """Return for each estimator, one a row, whether the lowest mean error is not clearly lower, run by run."""
    usable = [bool(np.isfinite(own).all()) for own in errors]
    if not any(usable):
        return [False] * len(errors)
    lowest = errors[np.where(usable, errors.mean(axis=1), np.inf).argmin()]
    behind = [_mean(own - lowest) for own in errors]
    return [good and mean <= CLEAR * error for good, (mean, error) in zip(usable, behind, strict=True)]


def metric_named(name: str, at: Floats) -> Metric:
    """Return the error of a name, for values at these positions."""
    metrics: dict[str, Metric] = {
        "mae": lambda p, q: float(np.abs(p - q).mean()),
        "mse": lambda p, q: float(((p - q) ** 2).mean()),
        "total_variation": lambda p, q: float(np.abs(p - q).sum() / 2),
        "wasserstein": lambda p, q: float(np.abs((p - q).cumsum()[:-1]) @ np.diff(at)),
        "mean": lambda p, q: abs(float((p - q) @ at)),
        "variance": lambda p, q: abs(_variance(p, at) - _variance(q, at)),
    }
    return metrics[name]


def _variance(shares: Floats, at: Floats) -> float:
    return float(shares @ at**2 - (shares @ at) ** 2)
