"""The square wave mechanism (SW).

Li, Wang, Lopuhaa-Zwakenberg, Li, Skoric, "Estimating numerical distributions under local differential privacy", SIGMOD 2020.
"""

import numpy as np

from ldpsql.mechanisms import Channel, DenseChannel, IntervalMechanism, Mechanism, Window, hookimpl, reduced


class SquareWave(IntervalMechanism):
    """Square wave mechanism: a high density within b of the value, e^epsilon times lower elsewhere on [-b, 1+b].

    With the interval scaled to [0, 1]: b = (epsilon e^epsilon - e^epsilon + 1) / (2 e^epsilon (e^epsilon - 1 - epsilon)). The
    report is the number of a bin of [-b, 1+b]. Shares of ranges and quantiles are what `hierarchy` is made for.

    >>> SquareWave(epsilon=1, low=0, high=1, bins=4).channel().probabilities().round(3)[0].tolist()
    [0.34, 0.344, 0.158, 0.158]
    """

    name = "square_wave"

    def channel(self) -> Channel:
        """Return the channel of windows around the centres of the bins, as shares of the bins of [-b, 1+b]."""
        epsilon = reduced(self.epsilon.value)
        b = half_width(epsilon)
        width, first = 2 * b / (1 + 2 * b) * self.bins, 0.5 / (1 + 2 * b)
        return DenseChannel(Window.of(self.bins, float(np.expm1(epsilon)), width, first).weights())


def half_width(epsilon: float) -> float:
    """Return b; the formula cancels for small epsilon, where its series is 1/2 - epsilon/6 + epsilon^2/72 + ..."""
    if epsilon < 1e-3:
        return 0.5 - epsilon / 6 + epsilon**2 / 72
    grown = float(np.exp(epsilon))
    return (epsilon * grown - grown + 1) / (2 * grown * (grown - 1 - epsilon))


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer the square wave mechanism."""
    return [SquareWave]
