"""EM with part of its second-order bias removed.

Murakami, Hino, Sakuma, "Toward distribution estimation under local differential privacy with small samples", PoPETs 2018,
algorithm 2 and appendix B; the bias of maximum likelihood is Rilstone, Srivastava, Ullah's, J. Econometrics 1996.
"""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ldpsql.estimators import (
    Estimator,
    Fit,
    Floats,
    Likelihood,
    Status,
    check,
    generator,
    hookimpl,
    maximum_likelihood,
    redrawn,
)

CELLS = 1 << 22  # of a channel, at a time
WEIGHTS = np.array([digit * 10.0**-power for power in range(10, 0, -1) for digit in range(1, 10)])  # the paper's grid of alpha


class CorrectedEm(Estimator):
    """Bias-corrected EM: the maximum of the likelihood less alpha times an estimate of its error, for few reports.

    The estimate of the error is the paper's (28), with ``ridge`` added to the information; alpha is the weight that works best
    on reports simulated from the maximum. ``simulate := 'observed'`` simulates from the shares of the reports, if these are
    values of the domain: they are flatter than any truth, so alpha is larger, at times too large. (24) as printed misses a
    factor 2; ``correction := 'printed'`` leaves it out, and with both options this is the paper's algorithm to the letter. In
    342 simulated problems the squared error was .93 times that of EM by default, .82 with 'printed' and .82 to the letter. It
    was over 1.05 times that of EM in under 1 %, 7 % and 18 % of them, at most 1.2, 1.4 and 3.7 times. Finally, negative shares
    become zero and the rest is scaled to sum to one. Users may have different mechanisms: equal pairs of mechanism and report
    are counted once.

    >>> from ldpsql.inference.operators import KeepOrSpreadOperator
    >>> few = Likelihood(KeepOrSpreadOperator(3, 0.5, 0.25), np.array([[9.0, 4.0, 2.0]]), named=np.arange(3))
    >>> float(CorrectedEm().fit(few).theta.sum().round(6))
    1.0
    """

    name = "corrected_em"
    most_values = 2048  # all pairs of values are compared
    ridge: Annotated[float, Field(gt=0, le=10)] = Field(1e-3, description="lambda, added to the information of a report")
    simulate: Literal["maximum", "observed"] = Field(
        "maximum", description="distribution from which reports are simulated to find alpha: 'maximum' or 'observed'"
    )
    correction: Literal["exact", "printed"] = Field(
        "exact", description="second derivative of the score: 'exact', or 'printed' as in equation (24), half of it"
    )

    def fit(self, likelihood: Likelihood) -> Fit:
        """Correct every group."""
        return self.each(likelihood, self._corrected)

    def _corrected(self, one: Likelihood) -> Fit:
        fitted = maximum_likelihood(one)
        theta, steps = fitted.theta, fitted.iterations
        corrected = normalised(theta - self._alpha(one, theta) * self._error(one, theta))
        return Fit.plain(corrected, Status.REGULARISED, steps)

    def _alpha(self, one: Likelihood, theta: Floats) -> float:
        """Return the weight with which an estimate from simulated reports is closest to the truth they were simulated from."""
        observed = one.named_shares() if self.simulate == "observed" else None
        truth = theta if observed is None else observed
        simulated = redrawn(one, truth, generator(one.counts))
        maximum = maximum_likelihood(simulated).theta
        corrected = normalised(maximum - WEIGHTS[:, None] * self._error(simulated, maximum))
        return float(WEIGHTS[((corrected - truth) ** 2).sum(axis=1).argmin()])

    def _error(self, one: Likelihood, theta: Floats) -> Floats:
        return error(one, theta, self.ridge, 1.0 if self.correction == "exact" else 0.5)


def normalised(theta: Floats) -> Floats:
    """Set negative shares to zero and scale the rest to sum to one."""
    clipped = np.maximum(theta, 0.0)
    return np.asarray(clipped / clipped.sum(axis=-1, keepdims=True))


def error(one: Likelihood, theta: Floats, ridge: float, second: float = 1.0) -> Floats:
    """Return the paper's estimate of theta's error, (28) with (30)-(32): grouped by distinct reports, which have shares q.

    With scores s_z = a_z / P(z), information S = sum q s s' and R = (S + ridge)^-1 it is
    R (sum q s (s' (R S R - R) s) + S R g) / n, where g = sum q s, and S R = 1 - ridge R. The second derivative of s is
    2 s (x) s (x) s: (24) as printed lacks the 2, without which even an interior maximum is moved, and alpha goes astray.
    ``second`` multiplies R S R: 1/2 gives the printed formula.
    """
    op, seen = one.operator, np.flatnonzero(one.shares[0])
    expected, weight = op.forward(theta)[0], np.zeros(op.outputs)
    weight[seen] = one.shares[0, seen] / expected[seen]
    information = op.curvature(np.divide(weight, expected, out=np.zeros_like(weight), where=weight > 0))
    inverse = np.linalg.inv(information + ridge * np.eye(op.inputs)).astype(np.float64)
    form = (second - 1.0) * inverse - second * ridge * (inverse @ inverse)
    gradient = op.adjoint(weight)
    weight[seen] *= quadratic(one, seen, form) / expected[seen] ** 2
    return np.asarray(inverse @ (op.adjoint(weight) + gradient - ridge * (inverse @ gradient)) / float(one.n[0]))


def quadratic(one: Likelihood, reports: NDArray[np.int64], form: Floats) -> Floats:
    """Return a_z' form a_z for some reports, computed for a part of them at a time."""
    op, out = one.operator, np.empty(len(reports))
    step = max(1, CELLS // op.inputs)
    for start in range(0, len(reports), step):
        check()
        table = op.of_reports(reports[start : start + step])
        out[start : start + step] = np.einsum("xz,xz->z", form @ table, table)
    return out


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer bias-corrected EM."""
    return [CorrectedEm]
