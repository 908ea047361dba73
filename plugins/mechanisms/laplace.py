"""The Laplace mechanism on a grid: discrete Laplace noise after rounding, so that no bit of a double reveals the value.

Dwork, McSherry, Nissim, Smith, "Calibrating noise to sensitivity in private data analysis", TCC 2006; Mironov, "On significance
of the least significant bits for differential privacy", CCS 2012, for why not in doubles.
"""

from ldpsql.mechanisms import Channel, Convolution, IntervalMechanism, Mechanism, exp_below, hookimpl


class Laplace(IntervalMechanism):
    """Laplace mechanism: round the value to its bin, then add noise z with P(z) ~ e^(-epsilon |z| / (bins - 1)).

    Epsilon holds over the whole interval. Reports are bin numbers 0 .. bins-1; noise beyond them goes to the nearer end.

    >>> Laplace(epsilon=1, low=0, high=1, bins=3).channel().probabilities().round(3)[0].tolist()
    [0.622, 0.149, 0.229]
    """

    name = "laplace"

    def channel(self) -> Channel:
        """Return geometric noise with epsilon split evenly over the bins - 1 steps from end to end."""
        return Convolution.geometric(exp_below(self.epsilon.value / (self.bins - 1)), self.bins)


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer the Laplace mechanism."""
    return [Laplace]
