"""The coin: heads, tell the truth; tails, answer at random.

Warner, "Randomized response: a survey technique for eliminating evasive answer bias", JASA 1965.
"""

from collections.abc import Callable

import ldpsql
from ldpsql.mechanisms import CategoricalMechanism, Channel, InvalidParameter, KeepOrSpread, Mechanism, hookimpl


class Coin(CategoricalMechanism):
    """A biased coin for a question with two answers: keep with probability e^epsilon/(e^epsilon+1), else the other answer.

    >>> Coin(epsilon=1, domain=["no", "yes"]).channel().probabilities().round(3).tolist()
    [[0.731, 0.269], [0.269, 0.731]]
    """

    name = "coin"

    def channel(self) -> Channel:
        """Return the channel; a question with more answers needs krr."""
        if len(self.domain) != 2:
            raise InvalidParameter("a coin has two sides, so the domain must hold two values", "use krr for more")
        return KeepOrSpread.within(2, self.epsilon.exp_below())


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer the coin."""
    return [Coin]


def toss(answer: str, epsilon: str = "1") -> None:
    """Answer yes or no through the coin.

    Example: ldpsql toss yes --epsilon 0.5
    """
    print(ldpsql.perturb([answer], Coin(epsilon=epsilon, domain=["no", "yes"]))[0])


@hookimpl
def ldpsql_commands() -> list[Callable[..., None]]:
    """Offer ``ldpsql toss``."""
    return [toss]
