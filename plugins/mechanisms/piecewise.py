"""The piecewise mechanism (PM).

Wang, Xiao, Yang, Zhao, Hui, Shin, Shin, Yu, "Collecting and analyzing multidimensional data with local differential privacy",
ICDE 2019, algorithm 2.
"""

import numpy as np
from numpy.typing import NDArray

from ldpsql.mechanisms import (
    Channel,
    DenseChannel,
    IntervalMechanism,
    Mechanism,
    hookimpl,
    piece_readings,
    pieces,
    reduced,
)


class Piecewise(IntervalMechanism):
    """Piecewise mechanism: a high density on a window around the value, e^epsilon times lower elsewhere on [-C, C].

    With the interval scaled to [-1, 1] and z = e^(epsilon/2): C = (z+1)/(z-1), the window starts at (C+1)x/2 - (C-1)/2, is C-1
    wide and holds z/(z+1) of the mass. The report is the number of a bin of [-C, C]; the centres of these bins are unbiased.
    Shares of ranges and quantiles are what `hierarchy` is made for.

    >>> Piecewise(epsilon=1, low=0, high=1, bins=4).channel().probabilities().round(3)[0].tolist()
    [0.331, 0.366, 0.152, 0.152]
    """

    name = "piecewise"

    def channel(self) -> Channel:
        """Return the channel of windows around the centres of the bins, as shares of the bins of [-C, C]."""
        return DenseChannel(pieces(reduced(self.epsilon.value), self.bins))

    def readings(self) -> NDArray[np.float64]:
        """Return the centres of the bins of [-C, C]."""
        return piece_readings(reduced(self.epsilon.value), self.bins)


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer the piecewise mechanism."""
    return [Piecewise]
