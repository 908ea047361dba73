"""The coin: heads, tell the truth; tails, answer at random. One of each thing that a plugin can add to ldpsql.

Warner, "Randomized response: a survey technique for eliminating evasive answer bias", JASA 1965.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
import typer

from ldpsql.estimators import Estimator, Fit, Likelihood, Status, uniform
from ldpsql.functions import Macros, Scalar, guarded, plain
from ldpsql.mechanisms import CategoricalMechanism, Channel, InvalidParameter, KeepOrSpread, Mechanism, certify, hookimpl
from ldpsql.questions import Domain, Question, Share, condition


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


class Steps(Estimator):
    """Expectation maximisation: 200 steps from equal shares."""

    name = "steps"

    def fit(self, likelihood: Likelihood) -> Fit:
        """Multiply the shares by the gradient of the likelihood in each step."""
        theta = uniform(likelihood)
        for _ in range(200):
            theta = theta * likelihood.gradient(theta)
        return Fit.plain(theta, Status.STOPPED)


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer the steps."""
    return [Steps]


@dataclass(frozen=True)
class Yes(Question):
    """The share of the last value, such as yes of no and yes."""

    name = "yes"
    summary = "the share of the last value of the domain, with its error and interval"

    def about(self, values: Domain) -> Share:
        """Return the share of the last value."""
        return Share(condition(values, values.values[-1]))


@hookimpl
def ldpsql_questions() -> list[type[Question]]:
    """Offer ``ldp.yes``, and ``estimate.ask("yes")``."""
    return [Yes]


@guarded
def answers(epsilons: pa.ChunkedArray, errors: pa.ChunkedArray) -> pa.Array:
    """Return how many answers through a coin give a share with this standard error; NULL for NULL."""
    epsilon, error = plain(epsilons), plain(errors)
    if pc.any(pc.or_(pc.less_equal(epsilon, 0), pc.less_equal(error, 0))).as_py():
        raise InvalidParameter("epsilon and the error must be above 0", "for example ldp.coin_answers(1, 0.01)")
    return pc.ceil(pc.power(pc.multiply(pc.multiply(pc.tanh(pc.divide(epsilon, 2)), error), 2), -2))


SQL = """
CREATE OR REPLACE MACRO ldp.coin_answers(epsilon, error) AS __ldp_coin_answers(epsilon::DOUBLE, error::DOUBLE)::BIGINT;
COMMENT ON MACRO ldp.coin_answers IS 'how many answers through a coin give a share with this standard error';
"""


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.coin_answers``."""
    return [Scalar("__ldp_coin_answers", answers, "DOUBLE"), Macros(SQL)]


def toss(answer: str, epsilon: Annotated[str, typer.Option(help="how much an answer may reveal")] = "1") -> None:
    """Answer yes or no through the coin.

    Example: ldpsql toss yes --epsilon 0.5
    """
    coin = certify(Coin(epsilon=epsilon, domain=["no", "yes"]))
    typer.echo(coin.perturb(pa.array([answer]))[0])


@hookimpl
def ldpsql_commands() -> list[Callable[..., None]]:
    """Offer ``ldpsql toss``."""
    return [toss]
