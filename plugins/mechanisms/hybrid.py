"""The hybrid mechanism (HM) for means.

Wang, Xiao, Yang, Zhao, Hui, Shin, Shin, Yu, "Collecting and analyzing multidimensional data with local differential privacy",
ICDE 2019, section III.C.
"""

import numpy as np
from numpy.typing import NDArray

from ldpsql.mechanisms import (
    TOTAL,
    Channel,
    DenseChannel,
    Domain,
    IntervalMechanism,
    Mechanism,
    after,
    hookimpl,
    piece_readings,
    pieces,
    reduced,
    rounding_readings,
    roundings,
)

_ONLY_ROUNDING = 0.61  # up to this epsilon rounding alone has the smaller worst-case variance
_LOW, _HIGH = -2, -1  # reports of stochastic rounding


class Hybrid(IntervalMechanism):
    """Hybrid mechanism: piecewise with probability 1 - e^(-epsilon/2), else stochastic rounding, alone up to epsilon 0.61.

    Of these three mechanisms it has the smallest worst-case variance of a mean. The report is the number of a bin of
    [-C, C], as of `piecewise`, or -2 or -1 for the lower and the higher report of `stochastic_rounding`. Shares of ranges and
    quantiles are what `hierarchy` is made for.

    >>> Hybrid(epsilon=1, low=0, high=1, bins=2).channel().probabilities().round(3)[0].tolist()
    [0.373, 0.233, 0.261, 0.133]
    """

    name = "hybrid"
    sql_reports = after([_LOW, _HIGH], IntervalMechanism.sql_reports)

    def alphabet(self) -> Domain:
        """Return -2, -1 and the numbers of the bins, from 0."""
        return Domain.of([_LOW, _HIGH, *range(self.bins)])

    def channel(self) -> Channel:
        """Return the two mechanisms next to each other."""
        epsilon = reduced(self.epsilon.value)
        share = int(-np.expm1(-epsilon / 2) * TOTAL) if epsilon > _ONLY_ROUNDING else 0
        near = pieces(epsilon, self.bins, share) if share else np.zeros((self.bins, self.bins), dtype=np.uint64)
        return DenseChannel(np.concatenate([roundings(epsilon, self.bins, TOTAL - share), near], axis=1))

    def readings(self) -> NDArray[np.float64]:
        """Return the readings of stochastic rounding, then those of the piecewise mechanism."""
        epsilon = reduced(self.epsilon.value)
        return np.concatenate([rounding_readings(epsilon), piece_readings(epsilon, self.bins)])


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer the hybrid mechanism."""
    return [Hybrid]
