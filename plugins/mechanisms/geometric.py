"""The geometric mechanism, the discrete form of Laplace noise.

Ghosh, Roughgarden, Sundararajan, "Universally utility-maximizing privacy mechanisms", STOC 2009.
"""

from typing import Annotated

from pydantic import Field

from ldpsql.mechanisms import MAX_VALUES, Channel, Convolution, Domain, Mechanism, RangeMechanism, Whole, WholeField, hookimpl


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


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer the geometric mechanism."""
    return [Geometric]
