"""Exact epsilon, rigorous bounds of its exponential, and the claims that a mechanism can make.

No decision here depends on a float: an epsilon is a decimal number stored as a fraction, e^epsilon is bounded by a fraction,
and whole numbers compare a claim with a channel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, TypeAlias

from ldpsql.channels.exact import exp_below
from ldpsql.errors import InvalidEpsilon
from ldpsql.privacy.metric import Metric

_DECIMAL = re.compile(r"(0|[1-9][0-9]{0,2})(\.[0-9]{1,12})?", re.ASCII)


@dataclass(frozen=True, order=True)
class Epsilon:
    """An exact privacy parameter: a decimal number above 0 and at most 32.

    >>> Epsilon.parse("0.1").value
    Fraction(1, 10)
    """

    value: Fraction
    maximum: ClassVar[int] = 32

    @classmethod
    def parse(cls, given: object) -> Epsilon:
        """Return the epsilon of a string, an int, a Decimal or a float (by its shortest decimal text).

        Raises:
            InvalidEpsilon: unless it is a plain decimal number in (0, 32] with at most 12 decimals.

        """
        if isinstance(given, Epsilon):
            return given
        plain = isinstance(given, str | int | float | Decimal) and not isinstance(given, bool)
        text = str(given) if plain else ""
        if not _DECIMAL.fullmatch(text):
            raise InvalidEpsilon(
                "epsilon must be a plain decimal number such as 1 or 0.5",
                f"above 0, at most {cls.maximum}, no exponent, at most 12 decimals: in SQL round(ln(3), 12)",
            )
        value = Fraction(text)
        if not 0 < value <= cls.maximum:
            raise InvalidEpsilon(f"epsilon must be above 0 and at most {cls.maximum}", "1 is a common choice")
        return cls(value)

    def exp_below(self) -> Fraction:
        """Return a rational lower bound of e^epsilon."""
        return exp_below(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __str__(self) -> str:
        whole, decimals = divmod(self.value, 1)
        digits = str(int(decimals * 10**12)).rjust(12, "0").rstrip("0")
        return f"{whole}.{digits}" if digits else str(whole)


@dataclass(frozen=True)
class PureLdp:
    """Epsilon-LDP: P(y|x) <= e^epsilon P(y|x') for all values x, x' and all reports y.

    Source: Kasiviswanathan, Lee, Nissim, Raskhodnikova, Smith, "What can we learn privately?", 2008.
    """

    epsilon: Epsilon

    @property
    def limit(self) -> Fraction:
        """The largest admissible ratio, rounded down."""
        return self.epsilon.exp_below()

    def __str__(self) -> str:
        return f"{self.epsilon}-LDP"


@dataclass(frozen=True)
class MetricLdp:
    """Metric (d_X) privacy: P(y|x) <= e^(epsilon d(x, x')) P(y|x'), epsilon per unit of distance.

    Source: Chatzikokolakis, Andres, Bordenabe, Palamidessi, "Broadening the scope of differential privacy using metrics",
    PETS 2013; on the plane it is geo-indistinguishability.
    """

    epsilon: Epsilon
    metric: Metric

    def limit(self, x: int, other: int) -> Fraction:
        """Return the largest admissible ratio of two values, rounded down."""
        return exp_below(self.epsilon.value * self.metric.below(x, other))

    def __str__(self) -> str:
        return f"{self.epsilon} per unit of distance"


@dataclass(frozen=True)
class ApproximateLdp:
    """(epsilon, delta)-LDP: P(Y in S|x) <= e^epsilon P(Y in S|x') + delta for all values and all sets S of reports."""

    epsilon: Epsilon
    delta: Fraction

    @property
    def limit(self) -> Fraction:
        """The ratio beyond which probability counts towards delta, rounded down."""
        return self.epsilon.exp_below()

    def __str__(self) -> str:
        return f"({self.epsilon}, {float(self.delta):g})-LDP"


Claim: TypeAlias = PureLdp | MetricLdp | ApproximateLdp
