"""Tests of whether draws follow their channel, by bounds that hold for any number of draws."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, Drawn, KeyValue, Letters, Prefixes, Sets

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


def prefixes_follow(channel: Prefixes, draws: int, alarm: float) -> bool:
    """Return whether level, seed and support of two strings have their distribution."""
    strings, expected = [channel.extreme(place) for place in (0, 1)], _prefix_shares(channel)
    for own, other in (strings, strings[::-1]):
        drawn = (channel.draw(np.tile(own, (part, 1))) for part in blocks(draws, channel.length))
        counts = np.sum([_tally_prefixes(channel, own, other, part) for part in drawn], axis=0)
        if not plausible(counts, draws, expected, alarm / 2):
            return False
    return True


def _tally_prefixes(channel: Prefixes, own: Letters, other: Letters, drawn: Drawn) -> Counts:
    """Return how often each level occurs, each first and last byte of a seed, and support of two strings by level."""
    levels, seeds, symbols = drawn[:, 0].astype(np.int64), drawn[:, 1], drawn[:, 2]
    parts = [np.bincount(levels, minlength=channel.levels)]
    octets = (seeds >> np.uint64(24), seeds & np.uint64(255))
    parts += [np.bincount(octet.astype(np.int64), minlength=256) for octet in octets]
    for letters in (own, other):
        supported = channel.hashes(np.tile(letters, (len(drawn), 1)), levels, seeds) == symbols
        parts.append(np.bincount(levels[supported], minlength=channel.levels))
    return np.concatenate(parts)


def _prefix_shares(channel: Prefixes) -> Floats:
    """Return the probabilities of what `_tally_prefixes` counts, for strings that differ in their first letter."""
    levels = np.array([float(share) for share in channel.shares()])
    octets = np.full(512, 1 / 256)
    return np.concatenate([levels, octets, levels * float(channel.hit), levels * float(channel.miss)])


def blocks(draws: int, width: int) -> Iterator[int]:
    """Yield the parts of a number of draws, each with a bounded number of cells, ``width`` a draw."""
    step = max(1, min(1 << 16, _CELLS // width))
    for start in range(0, draws, step):
        yield min(step, draws - start)
