"""Channels are what they say: every word is accounted for, exactly."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from itertools import pairwise
from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ldpsql import Channel, DenseChannel, Epsilon, InvalidParameter, KeepOrSpread
from ldpsql.channels import TableChannel
from ldpsql.errors import PrivacyLeakWarning
from ldpsql.mechanisms import TOTAL, Convolution, IndependentBits, Subsets, exp_below, floor_mixing
from ldpsql.testing import check_rows, check_sampler, insecure_words_for_tests
from tests.properties import patient

EPSILONS = ["0.1", "0.5", "1", "2", "4", "8", "16", "32"]


def drawn_by(channel: TableChannel, value: int, words: list[int]) -> list[int]:
    """Drive the sampler with these words."""
    given_words = np.array(words, dtype=np.uint64)
    return channel.draw(np.full(len(words), value, dtype=np.int32), lambda count: given_words[:count]).tolist()


def weights_by_driving(channel: TableChannel, value: int, cuts: list[int]) -> list[int]:
    """Count the words that give each report, given all places where the report may change.

    Between two cuts the report must be constant: first, middle and last word are driven.
    """
    counted = [0] * channel.outputs
    for start, stop in pairwise(sorted({0, *cuts, TOTAL})):
        reports = drawn_by(channel, value, [start, (start + stop - 1) // 2, stop - 1])
        assert len(set(reports)) == 1
        counted[reports[0]] += stop - start
    return counted


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("size", [2, 3, 7, 100])
def test_the_keep_or_spread_sampler_is_its_channel_over_all_words(size: int, epsilon: str) -> None:
    channel = KeepOrSpread.within(size, Epsilon.parse(epsilon).exp_below())
    cuts = [channel.spread * step for step in range(size)]
    for value in {0, 1, size - 1}:
        assert weights_by_driving(channel, value, cuts) == channel.weights()[value].tolist()


MANY = 1 << 13  # draws that share words


def drawn_by_short(channel: KeepOrSpread, kind: type[np.unsignedinteger], short: list[int], further: list[int]) -> list[int]:
    """Drive the sampler of many draws for value 0: short words, and a further word for each that does not decide."""
    reports: list[int] = []
    blocks = [slice(start, start + MANY) for start in range(0, len(short), MANY)]
    for block in blocks:
        first = np.zeros(MANY, dtype=kind)
        first[: len(short[block])] = short[block]
        source = iter([first.view(np.uint64), np.array(further[block], dtype=np.uint64)])
        drawn = channel.draw(np.zeros(MANY, dtype=np.int32), partial(served, source))
        reports += drawn[: len(short[block])].tolist()
    return reports


def served(source: Iterator[NDArray[np.uint64]], count: int) -> NDArray[np.uint64]:
    return next(source)[:count]


def parts_between(cuts: set[int], end: int) -> list[tuple[int, int]]:
    return list(pairwise(sorted({0, end, *(cut for cut in cuts if 0 < cut < end)})))


@pytest.mark.parametrize(
    ("size", "epsilon", "kind"),
    [
        *((size, epsilon, np.uint16) for size in (2, 3, 100) for epsilon in ("0.1", "1", "4", "8")),
        (100, "12", np.uint32),  # the weight of a lie is below 2**48
        (1000, "1", np.uint16),
        *((size, "2", np.uint32) for size in (1025, 3000)),
        (3, "20", np.uint32),
    ],
)
def test_draws_that_share_words_have_exactly_the_weights_of_the_channel(
    size: int, epsilon: str, kind: type[np.unsignedinteger]
) -> None:
    channel = KeepOrSpread.within(size, Epsilon.parse(epsilon).exp_below())
    width = 8 * np.dtype(kind).itemsize
    rest = 64 - width
    part, low = channel.spread >> rest, channel.spread & (1 << rest) - 1
    decided = (size - 1) * part + (channel.keep >> rest)
    counted = [0] * size

    parts = parts_between({part * step for step in range(size)} if width > 16 else {*range(decided)}, decided)
    shorts = [short for start, stop in parts for short in (start, (start + stop - 1) // 2, stop - 1)]
    reports = drawn_by_short(channel, kind, shorts, [])
    for (start, stop), *same in zip(parts, reports[::3], reports[1::3], reports[2::3], strict=True):
        assert len(set(same)) == 1
        counted[same[0]] += stop - start << 64

    driven: list[tuple[int, int, int]] = []  # a short word that does not decide, and a part of the further words
    for short in range(decided, 1 << width):
        first = short - decided << rest
        cuts = {
            (low * step - first) << width for step in range(max(0, first // low), min(size, (first + (1 << rest)) // low + 1))
        }
        driven += [(short, start, stop) for start, stop in parts_between(cuts, 1 << 64)]
    reports = drawn_by_short(
        channel,
        kind,
        [short for short, *_ in driven for _ in range(3)],
        [word for _, start, stop in driven for word in (start, (start + stop - 1) // 2, stop - 1)],
    )
    for (_, start, stop), *same in zip(driven, reports[::3], reports[1::3], reports[2::3], strict=True):
        assert len(set(same)) == 1
        counted[same[0]] += stop - start

    assert counted == [weight << width for weight in channel.weights()[0].tolist()]


def test_the_own_bit_is_set_by_exactly_as_many_words_as_its_weight() -> None:
    own = (1 << 63) + 12345
    channel = IndependentBits(2, own, 1 << 62)
    for word, held in ((0, 1), (own - 1, 1), (own, 0), (TOTAL - 1, 0)):
        read = iter([[0], [0], [word]])  # two words for the other bits
        drawn = channel.draw(np.zeros(1, np.int32), lambda _, read=read: np.array(next(read), np.uint64))  # type: ignore[misc]
        assert drawn.tolist() == [[held]]


def test_subsets_whose_keys_are_equal_are_drawn_again() -> None:
    channel = Subsets(4, 2, 1 << 63)
    read = iter([[0], [5, 5, 5], [5, 7, 5], [3, 9, 8]])  # whether the value is held, then keys of the three others
    drawn = channel.draw(np.zeros(1, np.int32), lambda _: np.array(next(read), np.uint64))
    assert drawn.tolist() == [[0b0011]]


@pytest.mark.parametrize("size", [2, 10, 100, 1000, 100_000])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_k_rr_never_exceeds_its_epsilon_and_wastes_nothing(size: int, epsilon: str) -> None:
    limit = Epsilon.parse(epsilon).exp_below()
    channel = KeepOrSpread.within(size, limit)
    assert channel.widest().ratio <= limit
    better = (channel.keep + size - 1, channel.spread - 1)  # the next whole numbers that keep more often
    assert Fraction(*better) > limit


@given(st.data())
@patient(max_examples=60)
def test_alias_tables_give_the_weights_back_and_draw_them(data: st.DataObject) -> None:
    outputs = data.draw(st.integers(2, 12))
    parts = data.draw(st.lists(st.lists(st.integers(0, 2**40), min_size=outputs, max_size=outputs), min_size=2, max_size=4))
    rows = [[Fraction(1 + p, sum(row) + outputs) for p in row] for row in parts]
    channel = floor_mixing(rows, Fraction(32))
    check_rows(channel)
    capacity = TOTAL >> channel.tables.bits
    for value in range(channel.inputs):
        starts = [column * capacity for column in range(1 << channel.tables.bits)]
        cuts = [start + int(t) for start, t in zip(starts, channel.tables.threshold[value], strict=True)]
        assert weights_by_driving(channel, value, [*starts, *cuts]) == channel.weights()[value].tolist()


@given(st.data())
@patient(max_examples=100)
def test_floor_mixing_keeps_ratios_within_e_to_the_epsilon(data: st.DataObject) -> None:
    outputs = data.draw(st.integers(2, 6))
    whole = st.lists(st.integers(1, 1000), min_size=outputs, max_size=outputs)
    rows = [[Fraction(p, sum(row)) for p in row] for row in data.draw(st.lists(whole, min_size=2, max_size=5))]
    widest = max(max(column) / min(column) for column in zip(*rows, strict=True))
    first = max(1, int(1000 * log(widest)) - 1)  # just below: the exact test goes on from there
    epsilon = next(Fraction(n, 1000) for n in range(first, 32_000) if exp_below(Fraction(n, 1000)) >= widest)
    channel = floor_mixing(rows, epsilon)
    check_rows(channel)
    witness = channel.widest()
    assert witness is not None
    assert witness.ratio <= exp_below(epsilon)
    for value, row in enumerate(channel.weights().tolist()):
        assert all(abs(Fraction(w, TOTAL) - p) < Fraction(1, 10**12) for w, p in zip(row, rows[value], strict=True))


def test_weights_that_do_not_sum_to_the_total_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="sum to 2"):
        DenseChannel(np.full((2, 2), 2**62, dtype=np.uint64))
    with pytest.raises(InvalidParameter, match="sum to 2"):  # wraps to a sum of zero modulo 2**64 all the same
        DenseChannel(np.full((2, 4), 2**63, dtype=np.uint64))
    with pytest.raises(InvalidParameter):
        KeepOrSpread(3, 2**63, 2**61)


def test_weights_cannot_be_changed_after_the_channel_was_made() -> None:
    weights = np.full((2, 2), 2**63, dtype=np.uint64)
    channel = DenseChannel(weights)
    weights[0, 0] = 0
    assert channel.weights()[0, 0] == 2**63
    with pytest.raises(ValueError, match="read-only"):
        channel._weights[0, 0] = 0


@pytest.mark.parametrize(
    "channel",
    [
        KeepOrSpread.within(5, Fraction(3)),
        floor_mixing([[Fraction(1, 3)] * 3] * 2, Fraction(1)),
        Convolution.geometric(Fraction(2), 4),
    ],
)
def test_a_million_draws_follow_the_channel(channel: Channel) -> None:
    check_sampler(channel, 1_000_000)


def test_a_seeded_source_says_that_it_protects_nobody_and_repeats() -> None:
    with pytest.warns(PrivacyLeakWarning, match="protects nobody"):
        first, second = insecure_words_for_tests(7), insecure_words_for_tests(7)
    values = np.zeros(1000, dtype=np.int32)
    channel = KeepOrSpread.within(5, Fraction(3))
    drawn = channel.draw(values, first)
    assert drawn.tolist() == channel.draw(values, second).tolist()
    assert drawn.tolist() != channel.draw(values, second).tolist()
    assert drawn.tolist() != channel.draw(values).tolist()
