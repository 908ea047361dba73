"""Channel structures draw what they certify: driven by every bit string at small width, and by hand where words are whole."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, pairwise, product
from math import comb

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldpsql import Channel, DenseChannel, Epsilon, InvalidParameter, KeepOrSpread, SetReports, partial_counts
from ldpsql.channels.base import bits_of, words_of
from ldpsql.channels.bits import coins
from ldpsql.channels.hashed import Field, hashed, splitmix
from ldpsql.domains.columns import _hashes, distinct, taken
from ldpsql.errors import ImpossibleReport
from ldpsql.mechanisms import (
    TOTAL,
    BinBits,
    Convolution,
    IndependentBits,
    KeepOrWindow,
    ListedHashReports,
    OrthogonalHash,
    PrivateHash,
    SignedBits,
    Subsets,
    clamped_plane,
    coarse_above,
    exp_below,
    prime_power,
)
from ldpsql.testing import check_sampler
from tests import seeds
from tests.properties import patient

Words = Callable[[int], np.ndarray]


def replay(*columns: np.ndarray) -> Words:
    """A source that gives these arrays, one a call."""
    calls = iter(columns)

    def words(count: int) -> np.ndarray:
        drawn_words = np.asarray(next(calls), dtype=np.uint64)
        assert len(drawn_words) == count
        return drawn_words

    return words


@pytest.mark.parametrize(("own", "other"), [(4, 3), (7, 1), (1, 6), (5, 5 - 4)])
def test_independent_bits_are_their_weights_over_all_bit_strings(own: int, other: int) -> None:
    """Weights in eighths: the sampler reads at most three bits for each bit of the report and three for the own one."""
    size, value = 3, 1
    channel = IndependentBits(size, own << 61, other << 61)
    rounds = 3 - ((other & -other).bit_length() - 1)
    strings = np.array(list(product(range(8), repeat=rounds)), dtype=np.uint64)  # bit i of a word serves value i
    eighths = np.arange(8, dtype=np.uint64) << np.uint64(61)
    columns = [np.repeat(strings[:, r], 8) for r in range(rounds)]
    drawn = channel.draw(np.full(8 * len(strings), value, np.int32), replay(*columns, np.tile(eighths, len(strings))))
    counted = Counter(tuple(bits) for bits in channel.supports(drawn).tolist())
    for bits in product([False, True], repeat=size):
        chance = Fraction(1)
        for i, bit in enumerate(bits):
            p = Fraction(own if i == value else other, 8)
            chance *= p if bit else 1 - p
        assert Fraction(counted[bits], len(drawn)) == chance


def forgets_to_reset(self: IndependentBits, values: np.ndarray, words: Words = seeds.words) -> np.ndarray:
    bits = coins(self.other, len(values), words)
    own = (words(len(values)) < np.uint64(self.own)).astype(np.uint64) << values.astype(np.uint64)
    return ((bits & np.uint64(2**self.size - 1)) | own)[:, None]


def always_holds_the_value(self: Subsets, values: np.ndarray, words: Words = seeds.words) -> np.ndarray:
    return DRAW_SUBSETS(Subsets(self.size, self.chosen, TOTAL - 1), values, words)


def keeps_with_one_half(self: PrivateHash, values: np.ndarray, words: Words = seeds.words) -> np.ndarray:
    half = KeepOrSpread(3, TOTAL // 2, TOTAL // 4)
    return DRAW_HASHED(PrivateHash(self.size, half), values, words)


def hands_out_one_seed(self: PrivateHash, values: np.ndarray, words: Words = seeds.words) -> np.ndarray:
    return DRAW_HASHED(self, values, lambda count: np.full(count, words(1)[0]))


def seeds_by_value(self: PrivateHash, values: np.ndarray, words: Words = seeds.words) -> np.ndarray:
    drawn = DRAW_HASHED(self, values, words)
    seeds = drawn[:, 0] & ~np.uint64(1) | (values % 2).astype(np.uint64)
    y = self.response.draw(hashed(seeds, values, self.response.size), words)
    return np.stack([seeds, y.astype(np.uint64)], axis=1)


def one_seed_twice_as_often(self: OrthogonalHash, values: np.ndarray, words: Words = seeds.words) -> np.ndarray:
    seeds = DRAW_ORTHOGONAL(self, values, words) // self.response.size
    seeds[seeds == 1] = 0
    return seeds * np.int32(self.response.size) + self.response.draw(self._hash(seeds, values), words)


def no_noise(self: Convolution, values: np.ndarray, words: Words = seeds.words) -> np.ndarray:
    return values + np.int32(1)


DRAW_SUBSETS, DRAW_HASHED, DRAW_ORTHOGONAL = Subsets.draw, PrivateHash.draw, OrthogonalHash.draw


@pytest.mark.parametrize(
    ("channel", "bug", "claim"),
    [
        (IndependentBits(4, TOTAL // 2, TOTAL // 4), forgets_to_reset, "draws for value 0 do not follow the channel"),
        (Subsets.within(6, 2, Fraction(3)), always_holds_the_value, "draws for value 0 do not follow the channel"),
        (PrivateHash(6, KeepOrSpread.within(3, Fraction(3, 2))), keeps_with_one_half, "draws for value 0 do not follow"),
        (PrivateHash(6, KeepOrSpread.within(3, Fraction(3, 2))), hands_out_one_seed, "draws for value 0 do not follow"),
        (PrivateHash(6, KeepOrSpread.within(3, Fraction(3, 2))), seeds_by_value, "the seeds of value 0 are not even"),
        (OrthogonalHash(6, KeepOrSpread.within(3, Fraction(3, 2))), one_seed_twice_as_often, "draws for value 0 do not follow"),
        (Convolution.geometric(Fraction(2), 4, 1), no_noise, "draws for value 0 do not follow the channel"),
    ],
)
def test_a_planted_bug_in_a_sampler_turns_the_conformance_check_red(
    channel: Channel, bug: object, claim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_sampler(channel, 20_000)
    monkeypatch.setattr(type(channel), "draw", bug)
    with pytest.raises(AssertionError, match=claim):
        check_sampler(channel, 20_000)


@given(st.integers(1, 300), st.integers(0, 2**32))
@patient(max_examples=40)
def test_words_and_bits_are_the_same_sets(size: int, seed: int) -> None:
    bits = np.random.default_rng(seed).random((5, size)) < 0.3
    words = words_of(bits)
    assert (bits_of(words, size) == bits).all()
    for row, packed in zip(bits, words.tolist(), strict=True):
        assert sum(w << 64 * i for i, w in enumerate(packed)) == sum(1 << int(i) for i in np.flatnonzero(row))


@given(st.fractions(min_value=Fraction(1, 10**15), max_value=Fraction(1, 2)))
@patient(max_examples=200)
def test_coarse_weights_are_above_and_close(p: Fraction) -> None:
    weight = coarse_above(p)
    assert p * TOTAL <= weight <= max(p * TOTAL * Fraction(2049, 2048), p * TOTAL + 1)
    assert 64 - (weight & -weight).bit_length() + 1 <= 64 - weight.bit_length() + 13


@pytest.mark.parametrize("keys", [1, 2, 40])
def test_signed_bits_are_their_weights_over_all_words(keys: int) -> None:
    """The own key by all places where its word decides, the others by every fair bit below the coins of independent bits."""
    channel = SignedBits.within(keys, Epsilon.parse("1").exp_below())
    width = -(-channel.inputs // 64)
    steps = 64 - ((2 * channel.spread & -2 * channel.spread).bit_length() - 1)
    for symbol in {0, 1, channel.inputs - 1}:
        counted = {"own": 0, "other": 0, "nothing": 0}
        for start, stop in pairwise([0, channel.same, channel.same + channel.opposite, TOTAL]):
            reported = set()
            for word, coin, sign in product((start, stop - 1), (0, 2**64 - 1), (0, 2**64 - 1)):
                flipped = [np.full(width, coin, dtype=np.uint64)] * steps
                drawn = channel.draw(
                    np.array([symbol], dtype=np.int32),
                    replay(*flipped, np.full(width, sign, np.uint64), np.full(1, word, np.uint64)),
                )
                bits = channel.supports(drawn)[0]
                others = np.delete(bits.reshape(-1, 2), symbol // 2, axis=0)
                assert (others == [bool(coin and sign), bool(coin and not sign)]).all()
                assert channel.possible(drawn).all()
                reported.add("own" if bits[symbol] else "other" if bits[symbol ^ 1] else "nothing")
            (expected,) = reported
            counted[expected] += stop - start
        assert counted == {"own": channel.same, "other": channel.opposite, "nothing": TOTAL - channel.same - channel.opposite}


@pytest.mark.parametrize("epsilon", ["0.2", "1", "5"])
def test_bits_of_bins_are_their_weights_over_all_words(epsilon: str) -> None:
    """What another key shows by all places where its word decides, then all places where the own key is replaced."""
    channel = BinBits.within(2, 3, Epsilon.parse(epsilon).exp_below())
    elsewhere = [channel.spread * step for step in range(channel.places + 1)] + [TOTAL]
    moved = [channel.near * step for step in range(channel.width + 1)] + [TOTAL]

    def numbers(symbol: int, *words: int) -> list[int]:
        drawn = channel.draw(
            np.array([symbol], dtype=np.int32), replay(np.array(words[:2], np.uint64), np.array(words[2:], np.uint64))
        )
        assert channel.possible(drawn).all()
        shown: list[int] = channel.numbers(channel.supports(drawn))[0].tolist()
        return shown

    for symbol in range(channel.inputs):
        own, x = divmod(symbol, channel.bins)
        for place, cut in enumerate(pairwise(elsewhere)):
            for step, others in enumerate(pairwise(moved)):
                for word, move in product((cut[0], cut[1] - 1), (others[0], others[1] - 1)):
                    expected = [place, place]
                    expected[own] = x + step if step < channel.width else place
                    assert numbers(symbol, word, word, move) == expected


def test_keep_or_window_gives_every_symbol_its_weight_over_all_words() -> None:
    window = DenseChannel(np.array([[3 << 62, 1 << 62], [1 << 62, 3 << 62]], dtype=np.uint64))
    channel = KeepOrWindow.within(3, window, Fraction(4))
    cuts = [channel.anything * step for step in range(channel.inputs + 1)] + [TOTAL]
    for value in range(channel.inputs):
        counted = [Fraction(0)] * channel.inputs
        for start, stop in pairwise(cuts):
            for near in range(4):  # the window decides by the two highest bits of its word
                reports = {
                    int(
                        channel.draw(
                            np.array([value], dtype=np.int32),
                            replay(np.full(1, word, np.uint64), np.full(1, near << 62, np.uint64)),
                        )[0]
                    )
                    for word in (start, (start + stop) // 2, stop - 1)
                }
                (report,) = reports
                counted[report] += Fraction(stop - start, 4 * TOTAL)
        assert counted == [channel.probability(value, report) for report in range(channel.inputs)]


@pytest.mark.parametrize("chosen", [1, 2, 3])
def test_subsets_are_uniform_over_all_orders_of_keys(chosen: int) -> None:
    """Whatever their values, distinct keys come in every order equally often; tied ones are drawn again."""
    size, value = 4, 2
    channel = Subsets(size, chosen, TOTAL // 2)
    keys = np.array(list(product(range(4), repeat=size - 1)), dtype=np.uint64)
    for inside, word in ((True, 0), (False, 2**63)):
        calls = iter([np.full(len(keys), word, dtype=np.uint64), keys.ravel()])
        redrawn: list[int] = []

        def words(count: int, calls: object = calls, redrawn: list[int] = redrawn) -> np.ndarray:
            drawn_words = next(calls, None)  # type: ignore[call-overload]
            if drawn_words is None:
                redrawn.append(count // 3)
                drawn_words = np.tile(np.arange(3, dtype=np.uint64), count // 3)  # no ties any more: always the same order
            return np.asarray(drawn_words)

        drawn = channel.supports(channel.draw(np.full(len(keys), value, np.int32), words))
        assert (drawn.sum(axis=1) == chosen).all()
        assert (drawn[:, value] == inside).all()
        counted = Counter(tuple(np.flatnonzero(row).tolist()) for row in drawn)
        again = sum(redrawn[:1])
        others = [x for x in range(size) if x != value]
        sets = [tuple(sorted((*pick, *([value] if inside else [])))) for pick in combinations(others, chosen - inside)]
        fixed = counted.most_common(1)[0][0] if again else None
        for one in sets:
            expected = Fraction(len(keys) - again, len(sets)) + (again if one == fixed else 0)
            assert counted[one] == expected
        assert set(counted) == set(sets)


@pytest.mark.parametrize(("size", "chosen"), [(2, 1), (5, 2), (9, 3)])
def test_the_ratio_of_subsets_is_that_of_two_sets(size: int, chosen: int) -> None:
    channel = Subsets.within(size, chosen, exp_below(Fraction(1)))
    inside = channel.hit / comb(size - 1, chosen - 1)
    outside = (1 - channel.hit) / comb(size - 1, chosen)
    assert channel.ratio == inside / outside <= exp_below(Fraction(1))
    assert Subsets(size, chosen, channel.inside + 1).ratio > exp_below(Fraction(1))
    assert channel.hit + (size - 1) * channel.miss == chosen


@given(st.integers(2, 12), st.integers(0, 4), st.sampled_from(["0.001", "0.3", "1", "5", "32"]))
@patient(max_examples=40)
def test_a_convolution_shows_the_rows_and_ratios_of_its_noise(inputs: int, margin: int, epsilon: str) -> None:
    channel = Convolution.geometric(exp_below(Fraction(epsilon)), inputs, margin)
    reach = inputs - 1 + margin
    rows = channel.weights().tolist()
    for x in range(inputs):
        expected = [0] * channel.outputs
        for z, weight in zip(range(-reach, reach + 1), channel.noise.tolist(), strict=True):
            expected[min(max(x + margin + z, 0), channel.outputs - 1)] += weight
        assert rows[x] == expected
    ratios = [(Fraction(a[y], b[y]), i, j, y) for i, a in enumerate(rows) for j, b in enumerate(rows) for y in range(len(a))]
    widest, steepest = channel.widest(), channel.steepest()
    assert widest is not None
    assert steepest is not None
    assert widest.ratio == max(r for r, *_ in ratios)
    assert steepest.ratio == max(r for r, i, j, _ in ratios if abs(i - j) == 1) <= exp_below(Fraction(epsilon))
    for witness in (widest, steepest):
        assert Fraction(rows[witness.value][witness.report], rows[witness.other][witness.report]) == witness.ratio
    assert abs(steepest.value - steepest.other) == 1


def test_a_convolution_draws_its_noise_over_all_words() -> None:
    channel = Convolution.geometric(exp_below(Fraction(1)), 3, 1)
    capacity = TOTAL >> channel.tables.bits
    for value in range(3):
        counted = [0] * channel.outputs
        for column, threshold in enumerate(channel.tables.threshold[0].tolist()):
            for start, stop in ((0, threshold), (threshold, capacity)):
                if start < stop:
                    ends = np.array([start, stop - 1], dtype=np.uint64) + np.uint64(column * capacity)
                    drawn = set(channel.draw(np.full(2, value, np.int32), replay(ends)).tolist())
                    assert len(drawn) == 1
                    counted[drawn.pop()] += stop - start
        assert counted == channel.weights()[value].tolist()


@pytest.mark.parametrize("q", [2, 3, 4, 5, 8, 9, 16, 25, 27])
def test_a_finite_field_is_one(q: int) -> None:
    field, every = Field.of(q), np.arange(q, dtype=np.int32)
    a, b = (grid.ravel() for grid in np.meshgrid(every, every))
    sums, products = field.add(a, b).reshape(q, q), field.multiply(a, b).reshape(q, q)
    assert all(sorted(row) == list(range(q)) for row in sums.tolist())
    assert all(sorted(row) == list(range(q)) for row in products[1:].tolist())
    assert not products[0].any()
    c = np.roll(a, 7)
    assert (field.multiply(a, field.add(b, c)) == field.add(field.multiply(a, b), field.multiply(a, c))).all()
    assert [p for p in range(2, 30) if prime_power(p) is None] == [6, 10, 12, 14, 15, 18, 20, 21, 22, 24, 26, 28]
    with pytest.raises(InvalidParameter):
        Field.of(12)


@pytest.mark.parametrize(("size", "symbols"), [(2, 3), (20, 3), (20, 4), (50, 7), (30, 9), (10, 11)])
def test_all_pairs_of_values_collide_equally_often_under_orthogonal_seeds(size: int, symbols: int) -> None:
    channel = OrthogonalHash(size, KeepOrSpread.within(symbols, Fraction(3)))
    supports = channel.supports(np.arange(channel.outputs, dtype=np.int32)).astype(int)
    together = supports.T @ supports
    assert (np.diag(together) == channel.seeds).all()
    assert len({together[i, j] for i in range(size) for j in range(i)}) == 1
    rows = [[channel.probability(x, y) for y in range(channel.outputs)] for x in (0, 1)]
    assert all(sum(row) == 1 for row in rows)
    assert max(a / b for a, b in zip(*rows, strict=True)) == channel.ratio
    rounding = Fraction(channel.seeds, TOTAL)  # the last function has a few units more
    assert abs(sum(p for p, s in zip(rows[1], supports[:, 0].tolist(), strict=True) if s) - channel.miss) <= rounding


def test_the_hash_has_fixed_vectors() -> None:
    """A report holds only a seed: another hash would make all stored reports meaningless."""
    assert splitmix(np.array([0], dtype=np.uint64))[0] == 0xE220A8397B1DCDAF  # first output of SplitMix64 seeded with 0
    seeds = np.array([0, 1, 2**63, 2**64 - 1], dtype=np.uint64)
    assert hashed(seeds, np.array([0, 1, 2, 1000], dtype=np.int32), 17).tolist() == HASHED_17
    assert hashed(seeds, np.array([0, 1, 2, 1000], dtype=np.int32), 2).tolist() == HASHED_2


HASHED_17 = [11, 15, 5, 13]  # computed with plain integers
HASHED_2 = [1, 1, 0, 1]


def test_private_and_orthogonal_reports_respond_to_the_hash() -> None:
    response = KeepOrSpread.within(4, Fraction(3))
    zero = np.zeros(4, dtype=np.uint64)  # the word that always moves one step on; the largest one keeps
    largest = zero - np.uint64(1)
    values = np.array([0, 3, 5, 9], np.int32)
    private = PrivateHash(10, response)
    drawn = private.draw(values, replay(np.arange(4), largest))
    assert private.supports(drawn)[np.arange(4), values].all()
    assert not private.supports(private.draw(values, replay(np.arange(4), zero)))[np.arange(4), values].any()
    public = OrthogonalHash(10, response)
    codes = public.draw(values, replay(largest, largest))
    assert public.supports(codes)[np.arange(4), values].all()
    assert (codes // 4 == public.seeds - 1).all()


@pytest.mark.parametrize("symbols", [2, 3, 16, 1000])
def test_the_witness_of_a_hash_distinguishes_the_two_values(symbols: int) -> None:
    channel = PrivateHash(5, KeepOrSpread.within(symbols, Fraction(3)))
    seed, y = divmod(channel.witness(), symbols)
    held = channel.supports(np.array([[seed, y]], dtype=np.uint64))[0]
    assert held[0]
    assert not held[1]


def test_noise_on_the_plane_has_the_same_total_for_every_cell() -> None:
    rows = clamped_plane(5, 4, 0.7)
    assert rows.sum(axis=1) == pytest.approx(rows.sum(axis=1)[0], rel=1e-13)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2]),
        pa.array([["a", "b"]]),
        pa.array([[1, 2, 3]], pa.list_(pa.uint64())),
        pa.array([[1], [2, 3, 4]], pa.list_(pa.uint64())),
        pa.array([[1, 2**36]], pa.list_(pa.uint64())),
        pa.array([[1, -1]], pa.list_(pa.int64())),
        pa.array([[1, None]], pa.list_(pa.uint64())),
    ],
)
def test_what_is_not_a_set_of_values_is_refused(column: pa.Array) -> None:
    with pytest.raises(ImpossibleReport):
        SetReports(100).read(column)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["x"]),
        pa.array([{"seed": 1}]),
        pa.array([{"seed": 1, "y": 4}]),
        pa.array([{"seed": -1, "y": 0}]),
        pa.array([{"seed": 9, "y": 0}]),
        pa.array([{"seed": None, "y": 0}], pa.struct([("seed", pa.int64()), ("y", pa.int64())])),
    ],
)
def test_what_is_not_a_hashed_report_is_refused(column: pa.Array) -> None:
    with pytest.raises(ImpossibleReport):
        ListedHashReports(4, 9).positions(column)


def test_equal_reports_of_every_type_are_found() -> None:
    words = pa.array([[1, 2], [3, 4], [1, 2]], pa.list_(pa.uint64()))
    pairs = pa.array([{"seed": 1, "y": 2}, {"seed": 1, "y": 3}, {"seed": 1, "y": 2}])
    for column in (words, pairs, pa.array(["a", "b", "a"])):
        counts = partial_counts(pa.table({"report": column}), "report")
        assert dict(zip(map(str, counts.reports.to_pylist()), counts.numbers.to_pylist(), strict=True)) == {
            str(column[0].as_py()): 2,
            str(column[1].as_py()): 1,
        }


def test_equal_rows_are_found_even_if_all_hashes_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    words = np.random.default_rng(1).integers(0, 3, (300, 3)).astype(np.uint64)
    ends = pa.array(np.arange(0, words.size + 1, 3, dtype=np.int32))
    column = pa.ListArray.from_arrays(ends, pa.array(words.ravel()))
    for hashes in (_hashes, lambda keys: np.zeros(len(keys), dtype=np.uint64)):
        monkeypatch.setattr("ldpsql.domains.columns._hashes", hashes)
        first, number = distinct(column)
        assert len(first) == len({tuple(row) for row in words.tolist()})
        assert (words[first][number] == words).all()
        assert all((words[:at] != words[at]).any(axis=1).all() for at in first)
        turned, _ = distinct(column[::-1])
        assert taken(column[::-1], turned).equals(taken(column, first))  # the order depends only on which rows occur


def test_equal_long_reports_are_found_in_a_third_of_their_memory() -> None:
    words = np.random.default_rng(2).integers(0, 2**63, (20_000, 157)).astype(np.uint64)
    ends = pa.array(np.arange(0, words.size + 1, 157, dtype=np.int32))
    column = pa.ListArray.from_arrays(ends, pa.array(words.ravel()))
    pool = pa.default_memory_pool()
    tracemalloc.start()
    before = pool.bytes_allocated()
    first, _ = distinct(column)
    assert len(first) == len(column)
    assert tracemalloc.get_traced_memory()[1] < words.nbytes / 3
    assert pool.bytes_allocated() - before < words.nbytes / 3
    tracemalloc.stop()
