"""The votes of reports for values, and how likely they are given the shares of a value among the people of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ldpsql.errors import InternalError
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Floats

_LEAST = 1e-12


@dataclass(frozen=True)
class Votes:
    """Votes for each value in each group, shape (groups, values), of ``n`` reports each.

    A report votes with probability ``high`` for its own value, and with ``low`` for any other.
    """

    numbers: Floats
    n: Floats
    low: float
    high: float

    @classmethod
    def of(cls, likelihood: Likelihood) -> Votes:
        """Return the votes of the reports of a likelihood whose operator has votes.

        Raises:
            InternalError: if it has none.

        """
        if likelihood.operator.votes is None:
            raise InternalError("this channel has no votes", "use pseudo-reports")
        low, high = likelihood.operator.votes
        shares = low + (high - low) * likelihood.operator.invert(likelihood.shares)
        return cls(np.rint(shares * likelihood.n[:, None]), likelihood.n, low, high)

    @classmethod
    def joined(cls, parts: Sequence[Votes]) -> Votes:
        """Return the votes of all groups of several parts, whose mechanism is the same."""
        numbers, n = (np.concatenate(each) for each in zip(*((part.numbers, part.n) for part in parts), strict=True))
        return cls(numbers, n, parts[0].low, parts[0].high)

    def chosen(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Votes:
        """Return the votes of some groups."""
        return Votes(self.numbers[rows], self.n[rows], self.low, self.high)

    def noise(self, n: Floats | float) -> Floats | float:
        """Return the variance of an inverted share of a rare value, of n reports, that the mechanism causes."""
        return self.low * (1.0 - self.low) / (n * (self.high - self.low) ** 2)

    def inverted(self, value: int) -> tuple[Floats, Floats]:
        """Return the inverted share of a value in each group, and the error that the mechanism causes if it is the true one."""
        share = (self.numbers[:, value] / self.n - self.low) / (self.high - self.low)
        return share, np.sqrt(self._spread(np.clip(share, 0.0, 1.0)) / self.n) / (self.high - self.low)

    def _spread(self, shares: Floats) -> Floats:
        """Return the variance of the vote of one of the people of a group who hold a value in these shares."""
        return shares * self.high * (1.0 - self.high) + (1.0 - shares) * self.low * (1.0 - self.low)

    def log_likelihood(self, votes: Floats, n: Floats, shares: Floats) -> Floats:
        """Return ln of how likely votes of n reports are for each share among these n people, (cells, shares), up to a term.

        Given the n people, votes are the sum of two binomial numbers; it is taken to be a binomial number whose variance is
        scaled. Source: Efron, "Double exponential families and their use in generalized linear regression", JASA 1986.
        """
        chance = np.clip(self.low + (self.high - self.low) * shares, _LEAST, 1.0 - _LEAST)
        scale = chance * (1.0 - chance) / np.maximum(self._spread(shares), _LEAST)
        votes, n = votes[:, None], n[:, None]
        divergence = _n_log(votes, n) + _n_log(n - votes, n) - votes * np.log(chance) - (n - votes) * np.log(1.0 - chance)
        return 0.5 * np.log(scale) - scale * divergence

    def table(self, n: int) -> Floats:
        """Return the probability of each number of votes if k of n people hold the value, shape (votes, k), for small n."""
        out = np.zeros((n + 1, n + 1))
        own, other = np.ones(1), [np.ones(1)]
        for _ in range(n):
            other.append(np.convolve(other[-1], [1.0 - self.low, self.low]))
        for k in range(n + 1):
            out[:, k] = np.convolve(own, other[n - k])
            own = np.convolve(own, [1.0 - self.high, self.high])
        return out


def _n_log(votes: Floats, n: Floats) -> Floats:
    """Return votes log(votes / n); 0 for no votes."""
    return votes * np.log(np.maximum(votes, 1.0) / n)
