"""What every channel must show: rows that sum to one, and draws that follow it."""

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, Channel, Drawn, KeyValue, SetChannel, Sets, SignedBits, TableChannel
from ldpsql.inference.goodness import log_fit_p_value
from ldpsql.inference.operators import Floats, operator

Counts: TypeAlias = NDArray[np.int64]
FALSE_ALARM = 1e-9  # chance that a correct sampler is refused, for each value
_CELLS = 1 << 24  # supports that are unpacked at a time


def check_rows(channel: Channel) -> None:
    """Check that every row of weights sums to 2**64, and that alias tables give the weights back."""
    if not isinstance(channel, TableChannel):
        return
    weights = channel.weights().tolist()
    assert all(sum(row) == TOTAL for row in weights), "a row of the channel does not sum to one"
    assert channel.draws_its_weights(), "the alias tables do not give the weights back"


def check_sampler(channel: Channel, draws: int) -> None:
    """Check for up to 20 values that draws follow the channel."""
    if isinstance(channel, KeyValue):
        for held in _some_sets(channel):
            _check_set(channel, held, draws // 10)
        return
    for value in np.unique(np.linspace(0, channel.inputs - 1, 20).astype(np.int32)):
        if isinstance(channel, TableChannel):
            _check_reports(channel, int(value), draws)
        elif isinstance(channel, SetChannel):
            _check_supports(channel, int(value), draws)


def _check_reports(channel: TableChannel, value: int, draws: int) -> None:
    """Check the frequencies of the reports by a likelihood-ratio test."""
    drawn = np.bincount(channel.draw(np.full(draws, value, dtype=np.int32)), minlength=channel.outputs)
    assert len(drawn) == channel.outputs, "a report outside the alphabet was drawn"
    expected = channel.rows(np.array([value], dtype=np.int32))[0] / float(TOTAL)
    assert not drawn[expected == 0].any(), "a report of probability zero was drawn"
    _check_frequencies(drawn, expected, f"value {value}")


def _check_frequencies(drawn: Counts, expected: Floats, of: str) -> None:
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
    _check_shown(channel, drawn, expected, f"value {value}")


def _check_shown(channel: SetChannel, drawn: Drawn, expected: Floats, of: str) -> None:
    counts, draws = np.zeros(channel.inputs), len(drawn)
    for part in np.array_split(drawn, 1 + draws * channel.inputs // _CELLS):
        counts += channel.supports(part).sum(axis=0)
    limit = np.log(2 * channel.inputs / FALSE_ALARM)
    room = limit / 3 + np.sqrt(limit**2 / 9 + 2 * limit * draws * expected * (1 - expected))
    assert (np.abs(counts - draws * expected) <= room).all(), f"draws for {of} do not follow the channel"


def _some_sets(channel: KeyValue) -> list[Sets]:
    """Return the empty set, one pair, as many as the padding, and all keys, with values over the whole range."""
    sizes = {0, 1, min(channel.padding, channel.keys), channel.keys}
    return [Sets(np.array([0, size]), np.arange(size, dtype=np.int32), np.linspace(1.0, 0.0, size)) for size in sorted(sizes)]


def _check_set(channel: KeyValue, held: Sets, draws: int) -> None:
    """Check that draws for one set follow what padding, sampling and response make of it, exactly."""
    response, size = channel.response, len(held.keys)
    chances = np.array([float(Fraction(weight, TOTAL**2)) for weight in channel.chances(held)])
    assert abs(chances.sum() - 1.0) < 1e-12, "the chances of the symbols of a set do not sum to one"
    many = Sets(np.arange(draws + 1) * size, np.tile(held.keys, draws), np.tile(held.places, draws))
    drawn = channel.draw(many)
    if isinstance(response, SignedBits):
        assert response.possible(drawn).all(), "a report outside the alphabet was drawn"
        swapped = chances.reshape(-1, 2)[:, ::-1].ravel()
        expected = chances * float(response.hit) + swapped * float(response.crossed)
        expected += (1 - chances - swapped) * float(response.miss)
        _check_shown(response, drawn, expected, f"a set of {size}")
    else:
        expected = operator(response).forward(chances[None])[0]
        _check_frequencies(np.bincount(drawn, minlength=len(expected)), expected, f"a set of {size}")
