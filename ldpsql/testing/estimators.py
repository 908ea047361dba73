"""The checks of an estimator."""

from __future__ import annotations

import warnings

import numpy as np

from ldpsql.errors import IllConditioned, NotApplicable, UsageError
from ldpsql.estimates.functionals import intervals
from ldpsql.estimators.base import Estimator
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import DenseOperator, KeepOrSpreadOperator
from ldpsql.inference.outcome import Fit, Status


def check_estimator(cls: type[Estimator]) -> None:
    """Check one estimator on problems with known answers and on degenerate ones.

    A likelihood that the estimator refuses with `NotApplicable` or `IllConditioned` is skipped.

    Raises:
        AssertionError: naming the claim that does not hold.

    """
    estimator = cls()
    for name, likelihood in _problems().items():
        fit = _fitted(estimator, likelihood)
        if fit is not None:
            _check_fit(estimator, likelihood, fit, name)
            _check_groups(estimator, likelihood, fit, name)
    _check_status(estimator)
    _check_consistent(estimator)
    _check_permuted(estimator)
    _check_options(cls)


def _problems() -> dict[str, Likelihood]:
    """Return likelihoods, two groups each: hand-solved, on the border, not unique, with empty, zero and equal columns, tiny."""
    coin, k = KeepOrSpreadOperator(2, 0.75, 0.25), np.arange(2)
    flat = np.array([[1 / 2, 1 / 3, 1 / 6], [1 / 3, 1 / 3, 1 / 3], [1 / 6, 1 / 3, 1 / 2]])
    steep = np.array([[0.6, 0.3, 0.1], [0.3, 0.4, 0.3], [0.1, 0.3, 0.6]])
    zero = np.hstack([steep, np.zeros((3, 1))])
    twice = np.array([[0.6, 0.4], [0.6, 0.4], [0.1, 0.9]])
    tables = {
        "channel 7 of ElSalamouny and Palamidessi": (flat, [[1, 1, 1], [3, 4, 3]]),
        "a border optimum": (steep, [[90, 8, 2], [5, 5, 90]]),
        "a column that no value reports": (zero, [[30, 30, 40, 0], [10, 80, 10, 0]]),
        "two values that are alike": (twice, [[50, 50], [30, 70]]),
        "a report that nobody sent": (steep, [[50, 50, 0], [0, 0, 7]]),
        "one report": (steep, [[1, 0, 0], [0, 1, 0]]),
    }
    problems = {
        name: Likelihood(DenseOperator(table), np.array(counts, dtype=np.float64)) for name, (table, counts) in tables.items()
    }
    ordered = np.array([[30.0, 50.0, 20.0], [10.0, 20.0, 70.0]])
    problems["values in order"] = Likelihood(DenseOperator(steep), ordered, layout=(3,))
    problems["a coin"] = Likelihood(coin, np.array([[60.0, 40.0], [90.0, 10.0]]), named=k)
    return problems | {"one report of a coin": Likelihood(coin, np.array([[1.0, 0.0], [0.0, 1.0]]), named=k)}


def _fitted(estimator: Estimator, likelihood: Likelihood) -> Fit | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return estimator.fit(likelihood)
    except (NotApplicable, IllConditioned):
        return None


def _check_fit(estimator: Estimator, likelihood: Likelihood, fit: Fit, problem: str) -> None:
    """Check shape, finiteness, errors, and that shares are a distribution if the estimator claims so."""
    groups = len(likelihood.counts)
    assert fit.theta.shape == (groups, likelihood.operator.inputs), f"{problem}: one share for each value and group is missing"
    assert len(fit.iterations) == len(fit.status) == groups, f"{problem}: steps or status of a group are missing"
    assert np.isfinite(fit.theta).all(), f"{problem}: a share is not finite"
    if estimator.distribution:
        assert (fit.theta >= 0).all(), f"{problem}: a share is negative"
        assert np.allclose(fit.theta.sum(axis=1), 1.0, atol=1e-9), f"{problem}: the shares do not sum to one"
    errors = intervals(likelihood, fit, estimator.confidence)
    assert (errors.std_error >= 0).all(), f"{problem}: a standard error is negative or not a number"
    assert (errors.low <= errors.high).all(), f"{problem}: an interval ends before it begins"
    inside = (errors.low <= fit.theta) & (fit.theta <= errors.high)
    assert (inside | fit.regularised[:, None]).all(), f"{problem}: an interval does not hold its estimate"


def _check_groups(estimator: Estimator, likelihood: Likelihood, fit: Fit, problem: str) -> None:
    """Check that groups do not influence each other, once it has learned, and that the same counts give the same estimate."""
    if estimator.needs_groups:
        pooled = likelihood.with_counts(likelihood.counts.sum(axis=0, keepdims=True))
        estimator = estimator.learnt(pooled, [likelihood])
    for i in range(len(likelihood.counts)):
        alone = estimator.fit(likelihood.group(i)).theta[0]
        assert np.allclose(fit.theta[i], alone, atol=1e-9), f"{problem}: a group is estimated otherwise alone than together"


def _check_status(estimator: Estimator) -> None:
    """Check that only a maximum of the likelihood is called certified."""
    coin = Likelihood(KeepOrSpreadOperator(2, 0.75, 0.25), np.array([[60.0, 40.0], [90.0, 10.0]]), named=np.arange(2))
    fit = _fitted(estimator, coin)
    for i, status in enumerate(fit.status if fit else ()):
        if status is Status.CERTIFIED and fit is not None:
            gap = float(coin.group(i).gap(fit.theta[i : i + 1])[0])
            assert gap <= 1e-6, f"an estimate with a gap of {gap:.1e} is called certified"
            assert np.allclose(fit.theta[i], [[0.7, 0.3], [1.0, 0.0]][i], atol=1e-6), "the hand-solved coin comes out otherwise"


def _check_consistent(estimator: Estimator) -> None:
    """Check that the estimate from expected counts of a known distribution converges to that distribution."""
    truth = np.array([[0.45, 0.3, 0.15, 0.1]])
    op = KeepOrSpreadOperator(4, 0.55, 0.15)
    fits = [_fitted(estimator, Likelihood(op, np.rint(op.forward(truth) * n), named=np.arange(4))) for n in (1e5, 1e8)]
    if any(fit is None or Status.BASELINE in fit.status for fit in fits):
        return
    small, large = (float(np.abs(fit.theta - truth).max()) for fit in fits if fit is not None)
    assert large <= max(1e-3, small), "with a thousand times as many reports the estimate does not come closer to the truth"
    assert large <= 0.01, "even 10^8 reports do not give the shares back"


def _check_permuted(estimator: Estimator) -> None:
    """Check that the order in which a domain without order is declared does not matter."""
    counts = np.array([[403.0, 171.0, 152.0, 149.0, 125.0]])
    order = np.array([3, 1, 4, 0, 2])
    op = KeepOrSpreadOperator(5, 0.4, 0.15)
    one, other = (_fitted(estimator, Likelihood(op, c, named=np.arange(5))) for c in (counts, counts[:, order]))
    if one is not None and other is not None and not estimator.ordered:
        assert np.allclose(one.theta[:, order], other.theta, atol=1e-6), "the order of the values changes the estimate"


def _check_options(cls: type[Estimator]) -> None:
    """Check that unknown options and options outside their range are refused."""
    for options in ({"no_such_option": 1}, {"confidence": 1.5}, {"misfit": "perhaps"}):
        try:
            cls(**options)
        except UsageError:
            continue
        raise AssertionError(f"an option that means nothing is accepted: {next(iter(options))}")
