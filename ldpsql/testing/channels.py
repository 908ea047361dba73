"""The checks of a channel: its rows sum to one, and draws follow it."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from ldpsql.channels import (
    TOTAL,
    AnyChannel,
    KeyValue,
    Levels,
    OneOfRows,
    Prefixes,
    PrivateHash,
    Rows,
    SetChannel,
    Sets,
    TableChannel,
)
from ldpsql.inference.operators import Floats, Ints
from ldpsql.inference.score_intervals import log_fit_p_value
from ldpsql.mechanisms.audit import chosen_sets, expected_shares, levels_follow, plausible, prefixes_follow, reports_of

FALSE_ALARM = 1e-9  # probability that a correct sampler is refused, for each value
_CELLS = 1 << 24  # supports that are unpacked at a time


def check_rows(channel: AnyChannel) -> None:
    """Check that every row of weights sums to 2**64, and that alias tables give the weights back."""
    for part in channel.parts if isinstance(channel, Rows) else ():
        check_rows(part)
    if not isinstance(channel, TableChannel):
        return
    weights = channel.weights().tolist()
    assert all(sum(row) == TOTAL for row in weights), "a row of the channel does not sum to one"
    assert channel.draws_its_weights(), "the alias tables do not give the weights back"


def check_sampler(channel: AnyChannel, draws: int) -> None:
    """Check for up to 20 values that draws follow the channel."""
    if isinstance(channel, KeyValue):
        for held in chosen_sets(channel):
            _check_set(channel, held, draws // 10)
        return
    if isinstance(channel, Levels):
        assert levels_follow(channel, draws, FALSE_ALARM), "draws for a value do not follow the channel"
        return
    if isinstance(channel, Rows):
        for part in channel.parts:
            check_sampler(part, draws)
        if isinstance(channel, OneOfRows):
            columns = channel.draw(np.zeros((draws, len(channel.parts)), dtype=np.int32))[:, 0].astype(np.int64)
            _check_frequencies(np.bincount(columns), np.full(len(channel.parts), 1 / len(channel.parts)), "the columns")
        else:
            _check_independence(channel, draws)
        return
    if isinstance(channel, Prefixes):
        assert prefixes_follow(channel, draws, FALSE_ALARM), "draws for a string do not follow the channel"
        return
    for value in np.unique(np.linspace(0, channel.inputs - 1, 20).astype(np.int32)):
        if isinstance(channel, TableChannel):
            _check_reports(channel, int(value), draws)
        elif isinstance(channel, SetChannel):
            _check_supports(channel, int(value), draws)


def _check_independence(channel: Rows, draws: int) -> None:
    """Check for each pair of columns that their reports of one row agree with none beyond chance, by a likelihood-ratio test.

    A report counts as large or small, whichever words it has.
    """
    halves = channel.draw(np.zeros((draws, len(channel.parts)), dtype=np.int32))[:, : len(channel.parts)]
    sides = [column > np.median(column) for column in halves.T]
    for i, j in combinations(range(len(sides)), 2):
        counts = np.bincount(2 * sides[i] + sides[j], minlength=4).reshape(2, 2)
        expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / draws
        seen = counts > 0
        statistic = 2 * np.sum(counts[seen] * np.log(counts[seen] / expected[seen]))
        log_p = log_fit_p_value(np.array([statistic]), 4)[0]
        assert log_p > np.log(FALSE_ALARM), f"reports of the columns {i} and {j} are not independent (ln p < {log_p:.0f})"


def _check_reports(channel: TableChannel, value: int, draws: int) -> None:
    """Check the frequencies of the reports by a likelihood-ratio test."""
    drawn = np.bincount(channel.draw(np.full(draws, value, dtype=np.int32)), minlength=channel.outputs)
    assert len(drawn) == channel.outputs, "a report outside the alphabet was drawn"
    expected = channel.rows(np.array([value], dtype=np.int32))[0] / float(TOTAL)
    assert not drawn[expected == 0].any(), "a report of probability zero was drawn"
    _check_frequencies(drawn, expected, f"value {value}")


def _check_frequencies(drawn: Ints, expected: Floats, of: str) -> None:
    seen, draws = drawn > 0, drawn.sum()
    statistic = 2 * np.sum(drawn[seen] * np.log(drawn[seen] / (draws * expected[seen])))
    log_p = log_fit_p_value(np.array([statistic]), len(expected))[0]
    assert log_p > np.log(FALSE_ALARM), f"draws for {of} do not follow the channel (ln p < {log_p:.0f})"


def _check_supports(channel: SetChannel, value: int, draws: int) -> None:
    """Check how often each value is supported, and each together with the true one, by Bernstein's inequality."""
    drawn = channel.draw(np.full(draws, value, dtype=np.int32))
    assert channel.possible(drawn).all(), "a report outside the alphabet was drawn"
    expected = np.full(channel.inputs, float(channel.miss))
    expected[value] = float(channel.hit)
    counts = np.zeros(channel.inputs, dtype=np.int64)
    for part in np.array_split(drawn, 1 + draws * channel.inputs // _CELLS):
        counts += channel.supports(part).sum(axis=0)
    assert plausible(counts, draws, expected, FALSE_ALARM), f"draws for value {value} do not follow the channel"
    if isinstance(channel, PrivateHash):
        bits = np.unpackbits(np.ascontiguousarray(drawn[:, 0]).view(np.uint8).reshape(draws, 8), axis=1)
        even = plausible(bits.sum(axis=0, dtype=np.int64), draws, np.full(64, 0.5), FALSE_ALARM)
        assert even, f"the seeds of value {value} are not even"


def _check_set(channel: KeyValue, held: Sets, draws: int) -> None:
    """Check that draws for one set have the exact distribution after padding, sampling and response."""
    size, expected = len(held.keys), expected_shares(channel, held)
    assert sum(channel.chances(held)) == TOTAL**2, "the chances of the symbols of a set do not sum to one"
    counts = np.zeros(channel.response.inputs, dtype=np.int64)
    for drawn in reports_of(channel, held, draws):
        assert channel.response.possible(drawn).all(), "a report outside the alphabet was drawn"
        counts += channel.response.tally(drawn)
    if channel.response.single:
        _check_frequencies(counts, expected, f"a set of {size}")
        return
    assert plausible(counts, draws, expected, FALSE_ALARM), f"draws for a set of {size} do not follow the channel"
