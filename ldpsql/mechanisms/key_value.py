"""The base classes of mechanisms over sets of key-value pairs: an implementation only defines the response to one symbol."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from typing import Annotated, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ldpsql.channels import TOTAL, KeyValue, Weights
from ldpsql.channels.dense import Window, two_reports
from ldpsql.channels.key_value import Response
from ldpsql.domains.domain import Domain, DomainField
from ldpsql.domains.pair_sets import PairSets
from ldpsql.errors import InvalidParameter
from ldpsql.mechanisms.base import Mechanism
from ldpsql.mechanisms.spec import EpsilonField, NumberField, WholeField
from ldpsql.reports import Alphabet

MAX_SYMBOLS = 1 << 22
DropRule: TypeAlias = Literal["drop"]


class KeyValueMechanism(Mechanism):
    """An epsilon-LDP mechanism over sets of pairs of a declared key and a number: an implementation adds `name`, `response`.

    It also sets `alphabet` and ``sql_reports``. Privacy covers the whole set: its keys, their number and their values.
    """

    sql_domain = Domain.sql_given("keys")
    epsilon: EpsilonField = Field(
        description="privacy parameter: no set makes a report more than e^epsilon times likelier than another set does"
    )
    keys: DomainField = Field(description="the keys that may occur, in a fixed order")
    padding: Annotated[WholeField, Field(ge=1, le=10_000)] = Field(
        1, description="smaller sets are padded to this many pairs; keys of larger ones are underestimated"
    )
    low: NumberField = Field(-1.0, description="smallest value")
    high: NumberField = Field(1.0, description="largest value")
    clip: bool = Field(
        default=False, description="whether the nearer end stands for a value outside the range; else it is refused"
    )
    nulls: DropRule | None = Field(
        None, description="'drop': a NULL set counts as empty, a pair with a NULL is left out; else NULL is refused"
    )
    outside: DropRule | None = Field(None, description="'drop': pairs with other keys are left out; else they are refused")

    @abstractmethod
    def response(self) -> Response:
        """Return the response to a symbol; its ratio is at most `ratio` if it shows one symbol, e^epsilon if it shows many."""

    @abstractmethod
    def alphabet(self) -> Alphabet:
        """Return the reports of the response."""

    def values(self) -> PairSets:
        drop_missing, drop_unknown = self.nulls == "drop", self.outside == "drop"
        return PairSets(self.keys, self.low, self.high, self.clip, drop_missing, drop_unknown)

    def layout(self) -> tuple[int, ...]:
        """Return (): symbols have no neighbours, even if the keys have."""
        return ()

    def channel(self) -> KeyValue:
        """Return padding, sampling and response as one channel."""
        return KeyValue(len(self.keys), self.padding, self.response())

    def scores(self) -> NDArray[np.float64]:
        """Return the score of every symbol of a kept key: its expectation is the value, on [-1, 1]."""
        return np.array([1.0, -1.0])

    def rounding(self) -> float:
        """Return how far a value may lie from the one that stands for it, on [-1, 1]."""
        return 0.0

    def symbol_keys(self, cells: int) -> int:
        """Return the number of keys and dummies.

        Raises:
            InvalidParameter: if they have too many symbols, ``cells`` each.

        """
        total = len(self.keys) + self.padding
        if total * cells > MAX_SYMBOLS:
            raise InvalidParameter("there are too many keys, bins or dummies", f"together at most {MAX_SYMBOLS} symbols")
        return total

    def ratio(self, cells: int) -> Fraction:
        """Return the largest ratio of a response that shows one symbol: sampling divides its excess over 1 by the padding.

        1 + (ratio - 1)/padding <= e^epsilon, with the chance of a key rounded as the sampler rounds it.
        """
        return 1 + (self.epsilon.exp_below() - 1) / KeyValue.most(self.padding, cells)


class SignMechanism(KeyValueMechanism):
    """A key-value mechanism that rounds each value to + or - at random; + is likelier the nearer the value is to ``high``."""

    steps: Annotated[WholeField, Field(ge=1, lt=1 << 31)] = Field(
        1 << 20, description="number of equal steps from low to high; a value counts as the nearest"
    )

    def channel(self) -> KeyValue:
        """Return padding, sampling, rounding and response as one channel."""
        return KeyValue(len(self.keys), self.padding, self.response(), self.steps)

    def rounding(self) -> float:
        """Return half a step."""
        return 1.0 / self.steps


# Responses of the mechanisms for means, on an interval scaled to [-1, 1], and the numbers that their reports stand for.


def pieces(epsilon: float, bins: int, share: int = TOTAL, *, outside: bool = True) -> Weights:
    """Return the weights of the piecewise mechanism: a row for the centre of each bin, a column for each bin of [-C, C].

    With z = e^(epsilon/2): C = (z+1)/(z-1), and the high density covers [(C+1)x/2 - (C-1)/2, (C+1)x/2 + (C-1)/2]. Each row sums
    to ``share``. Without ``outside``, there is no low density: bins that are not covered have the weight 1.
    """
    reach = 1 / np.tanh(epsilon / 4)
    width, first = (reach - 1) / (2 * reach) * bins, (reach + 1) / (4 * reach)
    return Window.of(bins, float(np.expm1(epsilon)) if outside else 2.0**64, float(width), float(first), share).weights()


def piece_readings(epsilon: float, bins: int) -> NDArray[np.float64]:
    """Return the centres of the bins of [-C, C], where -1 counts as 0 and 1 as 1."""
    return np.asarray(_centres(bins) / np.tanh(epsilon / 4) / 2 + 0.5)


def roundings(epsilon: float, bins: int, share: int = TOTAL) -> Weights:
    """Return the weights of the lower and the upper report of stochastic rounding for the centre of each bin.

    Each row sums to ``share``.
    """
    return two_reports(bins, int(share * (0.5 + (1 - 1 / bins) * np.tanh(epsilon / 2) / 2)), share)


def rounding_readings(epsilon: float) -> NDArray[np.float64]:
    """Return -C and C, C = (e^epsilon + 1)/(e^epsilon - 1), where -1 counts as 0 and 1 as 1."""
    return np.asarray(np.array([-1.0, 1.0]) / np.tanh(epsilon / 2) / 2 + 0.5)


def _centres(bins: int) -> NDArray[np.float64]:
    return np.asarray((2 * np.arange(bins) + 1) / bins - 1)
