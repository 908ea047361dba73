"""k-ary randomised response, also known as k-RR, GRR or direct encoding.

Warner, "Randomized response", JASA 1965, for two values; Kairouz, Bonawitz, Ramage, "Discrete distribution estimation under
local privacy", ICML 2016, for k.
"""

from ldpsql.mechanisms import CategoricalMechanism, Channel, KeepOrSpread, Mechanism, hookimpl


class Krr(CategoricalMechanism):
    """k-ary randomised response: keep the value with probability e^epsilon/(e^epsilon+k-1), else report any other evenly.

    Reports are values of the domain. Best for few values or a large epsilon.

    >>> channel = Krr(epsilon=1, domain=["Lima", "Oslo", "Rome"]).channel()
    >>> channel.probabilities().round(3)[0].tolist()
    [0.576, 0.212, 0.212]
    """

    name = "krr"

    def channel(self) -> Channel:
        """Return the channel that keeps the value as often as epsilon allows."""
        return KeepOrSpread.within(len(self.domain), self.epsilon.exp_below())


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer k-RR."""
    return [Krr]
