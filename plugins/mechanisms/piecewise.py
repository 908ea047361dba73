"""The piecewise mechanism (PM).

Wang, Xiao, Yang, Zhao, Hui, Shin, Shin, Yu, "Collecting and analyzing multidimensional data with local differential privacy",
ICDE 2019, algorithm 2.
"""

import numpy as np
from numpy.typing import NDArray

from ldpsql.mechanisms import Channel, IntervalMechanism, Mechanism, from_doubles, hookimpl, reduced, window


class Piecewise(IntervalMechanism):
    """Piecewise mechanism: a high density on a window around the value, e^epsilon times lower elsewhere on [-C, C].

    With the interval scaled to [-1, 1] and z = e^(epsilon/2): C = (z+1)/(z-1), the window starts at (C+1)x/2 - (C-1)/2, is C-1
    wide and holds z/(z+1) of the mass. The report is the number of a bin of [-C, C]; the centres of these bins are unbiased.

    >>> Piecewise(epsilon=1, low=0, high=1, bins=4).channel().probabilities().round(3)[0].tolist()
    [0.331, 0.366, 0.152, 0.152]
    """

    name = "piecewise"

    def channel(self) -> Channel:
        """Return the channel of windows around the centres of the bins, as shares of the bins of [-C, C]."""
        epsilon = reduced(self.epsilon.value)
        at = (2 * np.arange(self.bins) + 1) / self.bins - 1
        reach = 1 / np.tanh(epsilon / 4)
        left = (reach + 1) / 2 * at - (reach - 1) / 2
        covered = window((left + reach) / (2 * reach), (reach - 1) / (2 * reach), self.bins)
        return from_doubles(1 + np.expm1(epsilon) * covered, self.epsilon.value)

    def readings(self) -> NDArray[np.float64]:
        """Return the centres of the bins of [-C, C]."""
        return centres(reduced(self.epsilon.value), self.bins)


def centres(epsilon: float, bins: int) -> NDArray[np.float64]:
    """Return the centres of the bins of [-C, C], where -1 counts as 0 and 1 as 1."""
    return np.asarray(((2 * np.arange(bins) + 1) / bins - 1) / np.tanh(epsilon / 4) / 2 + 0.5)


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer the piecewise mechanism."""
    return [Piecewise]
