"""The kernels in C draw what Python draws from the same words, and their random words are those of AES-256 or ChaCha20."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from ldpsql import DenseChannel, KeepOrSpread
from ldpsql.channels import native
from ldpsql.channels.hashed import hashed
from ldpsql.channels.keep_or_spread import ShortWords
from ldpsql.errors import InternalError
from ldpsql.functions import registry
from ldpsql.mechanisms import TOTAL, IndependentBits, Levels, OrthogonalHash, certify
from tests import seeds

pytestmark = pytest.mark.skipif(native.kernels() is None, reason="installed without a C compiler, or LDPSQL_NATIVE is 0")

WORDS, ROUNDS = 256, 4000  # a little more than a million words a structure
BUFFER, LANES = 4096, 8  # of random.c: octets of a buffer, blocks side by side
BLOCK = 512  # of kernels.h: draws at a time


def given(words: NDArray[np.uint64]) -> Callable[[int], NDArray[np.uint64]]:
    """Return a source that hands out these words in their order."""
    left = [words]

    def take(count: int) -> NDArray[np.uint64]:
        taken, left[0] = left[0][:count], left[0][count:]
        assert len(taken) == count
        return taken

    return take


def near(thresholds: list[int], count: int) -> NDArray[np.uint64]:
    """Return words: those at and next to each threshold, then random ones."""
    edges = [(threshold + step) % TOTAL for threshold in thresholds for step in (-1, 0, 1)]
    return np.concatenate([np.array(edges, np.uint64), seeds.words(count)])[:count]


def short_words(channel: KeepOrSpread) -> ShortWords | None:
    """Return the short words of the kernel, which has those of 16 bits."""
    short = ShortWords.of(channel.size - 1, channel.spread)
    return short if short and short.width == 16 and channel.spread >> 48 > 1 else None


def as_short(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return words whose parts of 16 bits are the first bits of these words, and next to them."""
    near_by = (words >> np.uint64(48)).astype(np.uint16)[:, None] + np.array([-1, 0, 1], np.int32).astype(np.uint16)
    return near_by.ravel()[: near_by.size // 4 * 4].view(np.uint64)


@pytest.mark.parametrize("size", [2, 3, 4, 100, 1000, 1024, 1025, 99_991])
def test_keep_or_spread_draws_word_for_word_what_python_draws(size: int) -> None:
    for ratio in (1.01, 2.718, 50.0, float(1 << 40)):
        spread = max(1, int(TOTAL / (ratio + size - 1)))
        for exact in {spread, 1 << spread.bit_length() - 1, (1 << spread.bit_length() - 1) + 1}:
            channel = KeepOrSpread(size, TOTAL - (size - 1) * exact, exact)
            thresholds = [0, *(step * exact for step in (*range(1, min(size, 1000)), size - 2, size - 1))]
            words = near(thresholds, 1 << 14)
            short = short_words(channel)
            if short:
                words = np.concatenate([as_short(words), words])
            for start in range(0, len(words) - 2 * BLOCK, BLOCK // 4 if short else BLOCK):
                part = words[start:][: 2 * BLOCK]
                values = (seeds.words(BLOCK) % np.uint64(size)).astype(np.int32)
                drawn = native.keep_or_spread(values, size, exact, part)
                assert drawn is not None
                np.testing.assert_array_equal(drawn, channel._draw(values, given(part), short))


@pytest.mark.parametrize("shape", [(2, 2), (5, 3), (40, 64), (100, 100)])
def test_alias_tables_draw_word_for_word_what_python_draws(shape: tuple[int, int]) -> None:
    weights = np.zeros(shape, np.uint64)
    for row in weights:
        cuts = np.unique(seeds.words(shape[1] - 1))
        row[:] = np.diff(np.concatenate([[np.uint64(0)], cuts]), append=np.uint64(0))[: shape[1]]
    tables = DenseChannel(weights).tables
    thresholds = tables.threshold.ravel().tolist()
    columns = np.tile(np.arange(tables.packed.shape[1]), shape[0]).tolist()
    edges = [(column << 64 - tables.bits) + threshold for column, threshold in zip(columns, thresholds, strict=True)]
    count = 1 << 19
    words = near(edges, count)
    rows = np.concatenate(
        [np.repeat(np.arange(shape[0]), 3 * tables.packed.shape[1]), seeds.words(count) % np.uint64(shape[0])]
    )[:count].astype(np.int32)
    drawn = native.alias(rows, tables.packed, tables.bits, words)
    assert drawn is not None
    np.testing.assert_array_equal(drawn, tables._draw(rows, words))


@pytest.mark.parametrize(("size", "other"), [(2, 1 << 63), (64, 3 << 60), (65, (TOTAL >> 3) + 1), (100, 0b1011 << 58)])
def test_bits_are_word_for_word_those_of_python(size: int, other: int) -> None:
    width, places = -(-size // 64), 65 - (other & -other).bit_length()
    for own in (TOTAL - 5, (1 << 62) + 1):
        channel = IndependentBits(size, own, other)
        for _ in range(100):
            values = (seeds.words(WORDS) % np.uint64(size)).astype(np.int32)
            words = np.concatenate([seeds.words(WORDS * width * places), near([own], WORDS)])
            drawn = native.bits(values, size, own, other, words)
            assert drawn is not None
            np.testing.assert_array_equal(drawn, channel._draw(values, given(words)))


@pytest.mark.parametrize(("size", "symbols"), [(2, 2), (1000, 4), (1 << 31, 17)])
def test_private_hashes_are_word_for_word_those_of_python(size: int, symbols: int) -> None:
    spread = int(TOTAL / (symbols + 1.7))
    response = KeepOrSpread(symbols, TOTAL - (symbols - 1) * spread, spread)
    for _ in range(ROUNDS // 2):
        values = (seeds.words(WORDS) % np.uint64(size)).astype(np.int32)
        words = seeds.words(3 * WORDS)
        drawn = native.hashes(values, size, (symbols, spread), given=words)
        assert drawn is not None
        moved = response._draw(hashed(words[:WORDS], values, symbols), given(words[WORDS:]), short_words(response))
        np.testing.assert_array_equal(drawn, np.column_stack([words[:WORDS], moved.astype(np.uint64)]))


@pytest.mark.parametrize(("size", "symbols"), [(2, 2), (4, 4), (100, 4), (1000, 7), (300, 256)])
def test_listed_hashes_are_word_for_word_those_of_python(size: int, symbols: int) -> None:
    spread = int(TOTAL / (symbols + 1.7))
    channel = OrthogonalHash(size, KeepOrSpread(symbols, TOTAL - (symbols - 1) * spread, spread))
    assert channel.hashes is not None
    thresholds = [seed * channel.numbers[3] for seed in range(channel.seeds)] + [TOTAL - 1]
    for start in range(ROUNDS // 2):
        values = (seeds.words(WORDS) % np.uint64(size)).astype(np.int32)
        edges = np.roll(near(thresholds, 4 * len(thresholds)), start * WORDS)[:WORDS]
        words = np.concatenate([edges, seeds.words(3 * WORDS - len(edges))])
        drawn = native.hashes(values, size, channel.numbers, channel.hashes, words)
        assert drawn is not None
        numbers = np.minimum(words[:WORDS] // np.uint64(channel.numbers[3]), np.uint64(channel.seeds - 1)).astype(np.int32)
        hashes = channel._hash(numbers, values)
        moved = channel.response._draw(hashes, given(words[WORDS:]), short_words(channel.response))
        np.testing.assert_array_equal(drawn, numbers * symbols + moved)


def levels_of(text: str) -> Levels:
    channel = certify(registry().mechanism(text)).channel
    assert isinstance(channel, Levels)
    return channel


@pytest.mark.parametrize(
    ("text", "symbols"),
    [
        ("(1, 0, 4095, step=1)", {4}),
        ("(0.1, 0, 999, step=1, fanout=5)", {2}),
        ("(2, 0, 999, step=1)", {8}),
        ("(2.7, 0, 999, step=1)", {16}),
    ],
)
def test_levels_are_word_for_word_those_of_python(text: str, symbols: set[int]) -> None:
    channel = levels_of(f"hierarchy{text}")
    assert channel.tree is not None
    hashed = [one for one in channel.responses if isinstance(one, OrthogonalHash)]
    assert {one.response.size for one in hashed} == symbols
    halves = [seed * TOTAL // one.seeds >> 32 for one in hashed for seed in range(1, one.seeds)]  # in which a seed begins
    firsts = np.array([(half + step) % 2**32 << 32 for half in halves for step in (0, 1)], np.uint64)
    firsts |= seeds.words(len(firsts)) & np.uint64(2**32 - 1)
    responses = [one.response if isinstance(one, OrthogonalHash) else one for one in channel.responses]
    edges = [step * one.spread for one in responses for step in range(1, one.size)]
    for start in range(ROUNDS // 4):
        values = (seeds.words(WORDS) % np.uint64(channel.inputs)).astype(np.int32)
        words = seeds.words(3 * WORDS).copy()
        words[: WORDS // 2] = np.resize(np.roll(firsts, -start * WORDS // 2), WORDS // 2)
        if start % 2:  # no first word needs a further one, so that it is known where the second ones are
            words[:WORDS] = words[:WORDS] & np.uint64(2**32 - 1) | np.uint64(1 << 32)
            words[WORDS : 2 * WORDS] = np.roll(near(edges, 3 * len(edges) + WORDS), -start * WORDS)[:WORDS]
        drawn = native.levels(values, channel.inputs, channel.tree, words)
        assert drawn is not None
        for seen, expected in zip(drawn, channel._drawing.draw(values, given(words)), strict=True):
            np.testing.assert_array_equal(seen, expected)


@pytest.mark.parametrize("value", [3, -1, 2**31 - 1])
def test_what_would_read_beyond_the_channel_or_the_words_is_refused(value: int) -> None:
    values, half = np.array([0, value], np.int32), TOTAL // 2
    tree = levels_of("hierarchy(1, 0, 99, step=1)").tree
    assert tree is not None
    for draw in (
        lambda: native.keep_or_spread(values, 3, TOTAL // 4),
        lambda: native.alias(values, np.zeros((3, 2), np.uint64), 1),
        lambda: native.bits(values, 3, half, half // 2),
        lambda: native.hashes(values, 3, (2, half // 2)),
        lambda: native.levels(values, 3, tree),
        lambda: native.hashes(values, 3, (2, half // 2, 3, TOTAL // 3), np.zeros(9, np.uint8)),
    ):
        with pytest.raises(InternalError):
            draw()
    with pytest.raises(InternalError):
        native.shuffle(np.arange(3 * BLOCK), seeds.words(BLOCK))
    with pytest.raises(InternalError):  # a half of zeros never chooses among three
        native.shuffle(np.arange(3), np.zeros(4 * BLOCK, np.uint64))


def cells(count: int, width: int) -> NDArray[Any]:
    """Return random cells of so many octets."""
    return seeds.words(2 * -(-count * width // 16)).view(f"V{width}" if width > 8 else f"u{width}")[:count]


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000, 300_000])
def test_an_order_exchanges_each_cell_with_one_before_it_that_the_words_choose_exactly(count: int, width: int) -> None:
    edges = np.array([7, 7, 0, 0xAAAAAAAB], np.uint32)  # of three numbers, the only half that is thrown away, then 3 * h = 1
    words = np.concatenate([edges.view(np.uint64), seeds.words(-(-(count // 2 + 100) // BLOCK) * BLOCK - 2)])
    halves, expected = iter(words.view(np.uint32).tolist()), []
    for number in range(count):
        product = next(halves) * (number + 1)
        while product % 2**32 < 2**32 % (number + 1):  # so that 2**32 minus these is a multiple
            product = next(halves) * (number + 1)
        expected.append(number)
        other = product >> 32
        expected[number], expected[other] = expected[other], number
    own = cells(count, width)
    before = own.copy()
    assert native.shuffle(own, words)
    assert own.tobytes() == before[expected].tobytes()


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("count", [*range(9), 1000, 300_003])
@pytest.mark.parametrize("buckets", [1, 2, 256])
def test_cells_by_bucket_are_those_of_a_stable_sorting(count: int, buckets: int, width: int) -> None:
    chosen, own = (seeds.words(count) % np.uint64(buckets)).astype(np.uint8), cells(count, width)
    drawn = native.by_bucket(chosen, own)
    assert drawn is not None
    rows, ends = drawn
    assert rows.tobytes() == own[chosen.argsort(kind="stable")].tobytes()
    np.testing.assert_array_equal(ends, np.bincount(chosen, minlength=256).cumsum())


def buffer_under(key: bytes, way: int) -> bytes:
    """Return AES-256 in counter mode, or ChaCha20 (RFC 8439, nonce 0), from 0, as another implementation has it."""
    if way:
        return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(BUFFER))
    blocks = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(BUFFER))
    return np.frombuffer(blocks, np.uint32).reshape(-1, LANES, 16).transpose(0, 2, 1).tobytes()


@pytest.mark.parametrize("way", [0, 1, 2])  # ChaCha20, AES, AES on two blocks at a time
@pytest.mark.parametrize("count", [1, 507, 508, 509, 20_000])
def test_the_words_of_a_generator_are_those_of_its_cipher_with_fast_key_erasure(count: int, way: int) -> None:
    library = native.kernels()
    if library is None or way > library.ldpsql_best_way():
        pytest.skip("the processor has no instructions for this")
    key = first = os.urandom(32)
    stream = b""
    while len(stream) < 8 * count:
        buffer = buffer_under(key, way)
        key, stream = buffer[:32], stream + buffer[32:]
    found = native.expanded(first, count, way)
    assert found is not None
    assert found.tobytes() == stream[: 8 * count]
