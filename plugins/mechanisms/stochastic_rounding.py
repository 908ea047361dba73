"""Stochastic rounding (SR), the one-bit mechanism for means.

Duchi, Jordan, Wainwright, "Minimax optimal procedures for locally private estimation", JASA 2018; also Ding, Kulkarni,
Yekhanin, "Collecting telemetry data privately", NeurIPS 2017.
"""

import numpy as np
from numpy.typing import NDArray

from ldpsql.mechanisms import (
    Channel,
    DenseChannel,
    Domain,
    IntervalMechanism,
    Mechanism,
    hookimpl,
    reduced,
    rounding_readings,
    roundings,
)

_REPORTS = [-1, 1]


class StochasticRounding(IntervalMechanism):
    """Stochastic rounding: report 1 or -1; the probability of 1 rises linearly with the value.

    It rises from 1/(e^epsilon+1) at the lower end to e^epsilon/(e^epsilon+1) at the upper end.

    With the interval scaled to [-1, 1], C times the report is unbiased, C = (e^epsilon + 1)/(e^epsilon - 1). The centre of its
    bin stands for a value. Shares of ranges and quantiles are what `hierarchy` is made for.

    >>> StochasticRounding(epsilon=1, low=0, high=1, bins=2).channel().probabilities().round(3)[0].tolist()
    [0.616, 0.384]
    """

    name = "stochastic_rounding"
    sql_reports = str(_REPORTS)

    def alphabet(self) -> Domain:
        """Return -1 and 1."""
        return Domain.of(_REPORTS)

    def channel(self) -> Channel:
        """Return the two probabilities of every bin."""
        return DenseChannel(roundings(reduced(self.epsilon.value), self.bins))

    def readings(self) -> NDArray[np.float64]:
        """Return -C and C."""
        return rounding_readings(reduced(self.epsilon.value))


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer stochastic rounding."""
    return [StochasticRounding]
