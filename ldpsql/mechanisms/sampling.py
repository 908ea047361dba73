"""Tests of whether draws follow their channel, by bounds that hold for any number of draws."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, Drawn, KeyValue, Sets

_CELLS = 1 << 22  # pairs of sets, or symbols, that are drawn at a time

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


def plausible(counts: Counts, draws: int, expected: Floats, alarm: float) -> bool:
    """Return whether events happened as often as expected, by Bernstein's inequality.

    Args:
        counts: how often each event happened.
        draws: the number of draws.
        expected: the probability of each event.
        alarm: at most this is the probability of False although the events have these probabilities.

    """
    limit = np.log(2 * len(expected) / alarm)
    room = limit / 3 + np.sqrt(limit**2 / 9 + 2 * limit * draws * expected * (1 - expected))
    return bool((np.abs(counts - draws * expected) <= room).all())


def chosen_sets(channel: KeyValue) -> list[Sets]:
    """Return sets of no pair, one pair, as many pairs as the padding, and all keys, with values over the whole range."""
    sizes = {0, 1, min(channel.padding, channel.keys), channel.keys}
    return [Sets.one(np.linspace(1.0, 0.0, size)) for size in sorted(sizes)]


def expected_shares(channel: KeyValue, held: Sets) -> Floats:
    """Return for each symbol the probability that a report of this set shows it, from the exact chances of the symbols."""
    chances = np.array([float(Fraction(weight, TOTAL**2)) for weight in channel.chances(held)])
    return channel.response.shown(chances)


def reports_of(channel: KeyValue, held: Sets, draws: int) -> Iterator[Drawn]:
    """Draw reports of one set, block by block."""
    width = max(len(held.keys), channel.response.inputs // 64, 1)
    return (channel.draw(held.repeated(part)) for part in blocks(draws, width))


def blocks(draws: int, width: int) -> Iterator[int]:
    """Yield the parts of a number of draws, each with a bounded number of cells, ``width`` a draw."""
    step = max(1, min(1 << 16, _CELLS // width))
    for start in range(0, draws, step):
        yield min(step, draws - start)
