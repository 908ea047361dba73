"""The Blahut-Arimoto mechanism: the least mutual information for its average distortion.

Blahut, "Computation of channel capacity and rate-distortion functions", IEEE Trans. Inf. Theory 1972; as a mechanism: Biswas,
Palamidessi, "PRIVIC: a privacy-preserving method for incremental collection of location data", PETS 2024, algorithm 2.
"""

from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ldpsql.mechanisms import (
    MARGIN,
    Channel,
    DomainField,
    Epsilon,
    EpsilonField,
    InvalidParameter,
    Mechanism,
    MetricLdp,
    NumberField,
    PriorField,
    PriorMechanism,
    WholeField,
    from_doubles,
    highest_log_ratios,
    hookimpl,
)

_RARE = 2.0**-40
_MOST_WORK = 10**12  # some minutes
_TINY = 1e-300


class BlahutArimoto(PriorMechanism):
    """Blahut-Arimoto mechanism: C(y|x) ~ c(y) e^(-beta d(x,y)), where c is iterated towards the distribution of the reports.

    It protects isolated values more (elastic privacy). In theory values at distance d keep 2 * beta * d; the claim is the
    epsilon that this channel keeps, computed after reports rarer than 2^-40 are dropped.

    >>> mechanism = BlahutArimoto(beta=1, domain=["a", "b"], prior=[3, 1], distances=[[0, 1], [1, 0]], iterations=1)
    >>> mechanism.channel().probabilities().round(3)[0].tolist()
    [0.731, 0.269]
    """

    name = "blahut_arimoto"
    beta: EpsilonField = Field(description="loss parameter per unit of distance: the slope of the rate-distortion curve")
    domain: DomainField = Field(description="the values that may occur, in a fixed order; on a grid, its cells row by row")
    prior: PriorField = Field(description="shares or counts of the values, public: for example an earlier estimate")
    iterations: Annotated[WholeField, Field(ge=1, le=1_000_000)] = Field(
        100, description="largest number of iterations, from the uniform start"
    )
    tolerance: Annotated[NumberField, Field(ge=0, lt=1)] = Field(
        0.0, description="stop this close to the rate-distortion curve"
    )
    mixing: Annotated[NumberField, Field(ge=0, lt=1)] = Field(
        0.0, description="share of the uniform distribution in the final c, so that no report dies out"
    )

    def _logs(self) -> NDArray[np.float64]:
        """Return the logarithms of the channel (equations 1 and 2); -inf in the columns of rare reports."""
        if self.iterations * len(self.domain) ** 2 > _MOST_WORK:
            raise InvalidParameter(
                "iterations times the square of the number of values may be at most 10^12",
                "use fewer iterations, or larger cells",
            )
        far = -float(self.beta) * self.metric().matrix()
        near, c = np.exp(far), np.full(len(self.shares), 1.0 / len(self.shares))
        for _ in range(self.iterations - 1):
            ratio = (self.shares / np.maximum(near @ c, _TINY)) @ near
            following = c * ratio
            # Blahut's bounds: the rate-distortion curve lies between these two, up to the same constant.
            if np.log(ratio.max()) - following @ np.log(np.where(ratio > 0, ratio, 1.0)) <= self.tolerance:
                break
            c = following
        c = (1.0 - self.mixing) * c + self.mixing / len(c)
        logs = np.where(c >= _RARE, far + np.log(np.maximum(c, _TINY)), -np.inf)
        return np.asarray(logs - np.logaddexp.reduce(logs, axis=1, keepdims=True), dtype=np.float64)

    @cached_property
    def _tight(self) -> float:
        logs = self._logs()
        return tight_epsilon(logs[:, np.isfinite(logs[0])], self.metric().matrix())

    def tight(self) -> float:
        """Return the epsilon per unit of distance that the channel keeps before it is rounded to whole numbers."""
        return self._tight

    def claim(self) -> MetricLdp:
        """Return metric privacy with the epsilon of the channel itself, rounded up."""
        metric = self.metric()
        room = 4 * float(MARGIN / metric.nearest()) + 1e-12  # for the rounding of doubles, and the last decimal
        return MetricLdp(Epsilon.parse(f"{self.tight() + room:.12f}"), metric)

    def channel(self) -> Channel:
        """Return the channel in whole numbers."""
        claim = self.claim()
        return from_doubles(np.exp(self._logs()), claim.epsilon.value * claim.metric.nearest())


def tight_epsilon(logs: NDArray[np.float64], distances: NDArray[np.float64]) -> float:
    """Return the largest ln(P(y|x)/P(y|x')) per unit of distance of a channel given by its logarithms."""
    apart = np.where(distances > 0, distances, np.inf)
    return float((highest_log_ratios(logs) / apart).max())


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer the Blahut-Arimoto mechanism."""
    return [BlahutArimoto]
