"""A channel that others drew from, for estimates only."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NoReturn

import numpy as np

from ldpsql.channels.base import TOTAL, Codes
from ldpsql.channels.dense import WeightsChannel, over_one_denominator
from ldpsql.channels.randomness import Words, random_words
from ldpsql.errors import NotPrivate


class UndrawnChannel(WeightsChannel):
    """A channel without privacy, for estimates only; see `WeightsChannel`.

    It is not one of the structures that are certified, and has nothing to draw with.
    """

    @classmethod
    def of(cls, rows: Sequence[Sequence[Fraction]]) -> UndrawnChannel:
        """Return a table of probabilities in whole numbers; zeros stay zeros, and 1 loses 2**-64 to the report after it."""
        return cls(np.array([_whole(row) for row in rows], dtype=np.uint64))

    def widest(self) -> None:
        """Return None: its ratios bound nothing."""

    def draws_its_weights(self) -> bool:
        """Return False: nothing is drawn."""
        return False

    def draw(self, values: Codes, words: Words = random_words) -> NoReturn:  # noqa: ARG002
        """Refuse to draw.

        Raises:
            NotPrivate: always.

        """
        raise estimates_only()


def estimates_only() -> NotPrivate:
    """Return the refusal to do anything but estimate with a mechanism that has no claim of privacy."""
    return NotPrivate(
        "this mechanism has no claim of privacy: it is for estimates only, and nothing is drawn with it",
        "to perturb, take a mechanism with an epsilon, such as ldp.matrix or ldp.krr",
    )


def _whole(row: Sequence[Fraction]) -> list[int]:
    parts, whole = over_one_denominator(row)
    weights = [part * TOTAL // whole for part in parts]
    largest = max(range(len(row)), key=parts.__getitem__)
    weights[largest] += TOTAL - sum(weights)
    if weights[largest] == TOTAL:  # which 64 bits cannot hold
        weights[largest] -= 1
        weights[(largest + 1) % len(row)] += 1
    return weights
