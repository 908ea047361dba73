"""The truncated geometric mechanism.

Ghosh, Roughgarden, Sundararajan, "Universally utility-maximizing privacy mechanisms", STOC 2009.
"""

from ldpsql.mechanisms import Channel, Convolution, Mechanism, RangeMechanism, hookimpl


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


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer the truncated geometric mechanism."""
    return [TruncatedGeometric]
