"""What groups have in common: the shares of all of them together, and how far those of a group lie from these."""

from __future__ import annotations

from ldpsql.estimators.sharing.cells import Votes
from ldpsql.estimators.sharing.directions import by_direction, directed, error_of_mean
from ldpsql.estimators.sharing.means import moved, of_numbers, own_part
from ldpsql.estimators.sharing.prior import Prior, PriorField, credible, learnt, medians, with_neighbours
from ldpsql.estimators.sharing.pseudo import by_class

__all__ = [
    "Prior", "PriorField", "Votes", "by_class", "by_direction", "credible", "directed", "error_of_mean", "learnt", "medians",
    "moved", "of_numbers", "own_part", "with_neighbours",
]  # fmt: skip
