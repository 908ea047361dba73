"""Tests of whether draws follow their channel, by bounds that hold for any number of draws."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, Drawn, Floats, KeyValue, Letters, Levels, OrthogonalHash, Prefixes, Sets

_CELLS = 1 << 22  # pairs of sets, or symbols, that are drawn at a time

Counts = NDArray[np.int64]


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


def levels_follow(channel: Levels, draws: int, alarm: float) -> bool:
    """Return whether level, seed and support of two values have their distribution, for the first and the last value."""
    ends = (0, channel.inputs - 1)
    for own, other in (ends, ends[::-1]):
        expected = np.concatenate(
            [_level_shares(channel), _support_shares(channel, own, own), _support_shares(channel, own, other)]
        )
        parts = blocks(draws, len(channel.blocks))
        drawn = (channel.draw(np.full(part, own, dtype=np.int32)) for part in parts)
        counts = np.sum([_tally_levels(channel, (own, other), part) for part in drawn], axis=0)
        if not plausible(counts, draws, expected, alarm / 2):
            return False
    return True


def _tally_levels(channel: Levels, values: tuple[int, int], drawn: Drawn) -> Counts:
    """Return how often each level occurs, in both halves of its reports, and support of each value by level."""
    tallied = np.zeros((4, len(channel.blocks)), dtype=np.int64)
    for level, rows in channel.by_level(drawn):
        within = drawn[rows] - channel.starts[level]
        tallied[:2, level] = np.bincount(within < _half(channel, level), minlength=2)
    for place, value in enumerate(values):
        for level, rows in channel.by_level(drawn[channel.supporting(drawn, value)]):
            tallied[2 + place, level] = len(rows)
    return tallied.ravel()


def _half(channel: Levels, level: int) -> int:
    """Return the first report of the second half of the seeds of a level; all reports if it has none."""
    response = channel.responses[level]
    return response.seeds // 2 * response.response.size if isinstance(response, OrthogonalHash) else response.outputs


def _level_shares(channel: Levels) -> Floats:
    """Return the probabilities of the second and of the first half of the reports of each level."""
    shares = np.array([float(share) for share in channel.shares()])
    ends = [response.outputs for response in channel.responses]
    first = np.array([_half(channel, level) / end for level, end in enumerate(ends)])  # seeds are even
    return np.concatenate([shares * (1 - first), shares * first])


def _support_shares(channel: Levels, own: int, value: int) -> Floats:
    """Return the probability that a report of one value supports another, by level."""
    same = [
        bool(np.ptp(channel.nodes(np.array([own, value], dtype=np.int32), level)) == 0) for level in range(len(channel.blocks))
    ]
    chances = zip(channel.shares(), channel.responses, same, strict=True)
    return np.array([float(share * (one.hit if near else one.miss)) for share, one, near in chances])


def blocks(draws: int, width: int) -> Iterator[int]:
    """Yield the parts of a number of draws, each with a bounded number of cells, ``width`` a draw."""
    step = max(1, min(1 << 16, _CELLS // width))
    for start in range(0, draws, step):
        yield min(step, draws - start)
