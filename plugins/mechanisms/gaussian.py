"""The Gaussian mechanism on a grid, with its exact delta.

Balle, Wang, "Improving the Gaussian mechanism for differential privacy: analytical calibration and optimal denoising", ICML
2018.
"""

from itertools import pairwise
from math import erfc, sqrt
from typing import Annotated

from pydantic import Field

from ldpsql.mechanisms import (
    ApproximateLdp,
    Channel,
    Convolution,
    IntervalMechanism,
    Mechanism,
    ShareField,
    WholeField,
    hookimpl,
)


class Gaussian(IntervalMechanism):
    """Gaussian mechanism: round the value to its bin, then add normal noise: (epsilon, delta)-LDP over the whole interval.

    Reports are bin numbers 0 .. bins-1; noise beyond them goes to the nearer end. The noise is the smallest that keeps the
    finite channel within delta, which is then computed exactly. Shares of ranges and
    quantiles are what `hierarchy` is made for.

    >>> Gaussian(epsilon=1, delta=1e-3, low=0, high=1, bins=3).channel().probabilities().round(3)[0].tolist()
    [0.601, 0.178, 0.221]
    """

    name = "gaussian"
    delta: ShareField = Field(description="probability that may exceed epsilon, between 0 and 1")
    bins: Annotated[WholeField, Field(ge=2, le=512)] = Field(
        256, description="number of bins, of values and of reports; at most 512"
    )

    def claim(self) -> ApproximateLdp:
        """Return (epsilon, delta)-LDP."""
        return ApproximateLdp(self.epsilon, self.delta)

    def channel(self) -> Channel:
        """Return normal noise between the bins; noise beyond the last bin counts there."""
        tails = _tails(self._deviation(), self.bins)
        return Convolution.shaped([1 - 2 * tails[0], *(a - b for a, b in pairwise(tails)), tails[-1]], self.bins)

    def _deviation(self) -> float:
        """Return the standard deviation of the noise in bins, by bisection.

        The noise is log-concave, so the two ends of the interval are the worst pair and the best test asks whether the
        report is at least t: delta = max over t of P(z >= t - bins + 1) - e^epsilon P(z >= t).
        """
        grown, target = float(self.epsilon.exp_below()), float(self.delta) * (1 - 1e-6)  # whole weights move delta by far less
        low, high = 1e-2, 1e9 * self.bins
        while high / low > 1 + 1e-9:
            middle = sqrt(low * high)
            tails = _tails(middle, self.bins)
            spent = max(1 - far - grown * near for near, far in zip(tails, reversed(tails), strict=True))
            low, high = (middle, high) if spent > target else (low, middle)
        return high


def _tails(deviation: float, bins: int) -> list[float]:
    """Return P(z >= t) for t = 1 .. bins-1, of normal noise rounded to whole bins."""
    return [erfc((t - 0.5) / deviation / sqrt(2)) / 2 for t in range(1, bins)]


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer the Gaussian mechanism."""
    return [Gaussian]
