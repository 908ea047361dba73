"""Geometric noise, the discrete form of Laplace noise: on a wider range, truncated, and over the bins of an interval.

Ghosh, Roughgarden, Sundararajan, "Universally utility-maximizing privacy mechanisms", STOC 2009 (geometric). Dwork, McSherry,
Nissim, Smith, "Calibrating noise to sensitivity in private data analysis", TCC 2006 (Laplace); Mironov, "On significance of the
least significant bits for differential privacy", CCS 2012, for why not in doubles: no bit of a double reveals the value.
"""

from typing import Annotated

from pydantic import Field

from ldpsql.mechanisms import (
    MAX_VALUES,
    Channel,
    Convolution,
    Domain,
    IntervalMechanism,
    Mechanism,
    RangeMechanism,
    Whole,
    WholeField,
    exp_below,
    hookimpl,
)


class Geometric(RangeMechanism):
    """Geometric mechanism: add noise z with P(z) ~ e^(-epsilon |z|), on a range wider than that of the values by a margin.

    Numbers d apart keep d * epsilon. Reports are whole numbers low - margin .. high + margin; noise beyond them goes to the
    nearer end. If e^(-epsilon * margin) is small, sums of reports are nearly unbiased.

    >>> mechanism = Geometric(epsilon=1, low=0, high=1, margin=1)
    >>> mechanism.alphabet().texts, mechanism.channel().probabilities().round(3)[0].tolist()
    (['-1', '0', '1', '2'], [0.269, 0.462, 0.17, 0.099])
    """

    name = "geometric"
    sql_reports = Whole.sql("low", "high", "margin")
    margin: Annotated[WholeField, Field(ge=0, le=MAX_VALUES)] = Field(
        100, description="how far reports reach beyond the values"
    )

    def alphabet(self) -> Domain:
        """Return the wider range."""
        return Whole(self.low - self.margin, self.high + self.margin)

    def channel(self) -> Channel:
        """Return the noise; each weight is rounded up, relative to the one before."""
        return Convolution.geometric(self.epsilon.exp_below(), len(self.values()), self.margin)


class TruncatedGeometric(RangeMechanism):
    """Truncated geometric mechanism: add noise z with P(z) ~ e^(-epsilon |z|); sums beyond low .. high go to the nearer end.

    Numbers d apart keep d * epsilon. Reports are whole numbers low .. high.

    >>> channel = TruncatedGeometric(epsilon=1, low=0, high=2).channel()
    >>> channel.probabilities().round(3)[0].tolist()
    [0.731, 0.17, 0.099]
    """

    name = "truncated_geometric"

    def channel(self) -> Channel:
        """Return the noise; each weight is rounded up, relative to the one before."""
        return Convolution.geometric(self.epsilon.exp_below(), len(self.values()))


class Laplace(IntervalMechanism):
    """Laplace mechanism: round the value to its bin, then add noise z with P(z) ~ e^(-epsilon |z| / (bins - 1)).

    Epsilon holds over the whole interval. Reports are bin numbers 0 .. bins-1; noise beyond them goes to the nearer end. Shares
    of ranges and quantiles are what `hierarchy` is made for.

    >>> Laplace(epsilon=1, low=0, high=1, bins=3).channel().probabilities().round(3)[0].tolist()
    [0.622, 0.149, 0.229]
    """

    name = "laplace"

    def channel(self) -> Channel:
        """Return geometric noise with epsilon split evenly over the bins - 1 steps from end to end."""
        return Convolution.geometric(exp_below(self.epsilon.value / (self.bins - 1)), self.bins)


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer the geometric, the truncated geometric and the Laplace mechanism."""
    return [Geometric, TruncatedGeometric, Laplace]
