"""ldp.perturb draws in C what it draws in Python: the same reports from the same words, and the same refusals."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from fractions import Fraction
from itertools import product
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Thread
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection
from numpy.typing import NDArray

import ldpsql
from ldpsql import Domain, KeepOrSpread
from ldpsql.channels import Words64, native
from ldpsql.channels.hashed import splitmix
from ldpsql.engine import door, in_c
from ldpsql.errors import OutsideDomain
from ldpsql.functions import registry
from ldpsql.ledger import Ledger, Policy
from ldpsql.mechanisms import TOTAL, IndependentBits, Levels, Mechanism, OrthogonalHash, PrivateHash, certify, certify_values
from ldpsql.mechanisms.certified import CertifiedValues
from tests import seeds

KERNELS = in_c.kernels()
pytestmark = pytest.mark.skipif(KERNELS is None, reason=f"SQL draws in Python: {door.open_door()}")

WIDTHS = {"TINYINT": 2, "SMALLINT": 3, "INTEGER": 4, "BIGINT": 5, "UTINYINT": 6, "USMALLINT": 7, "UINTEGER": 8, "UBIGINT": 9}
DRAWN, OUTSIDE = 0, 2
BLOCK = 512  # of kernels.h
NEARLY_ALWAYS = 32  # with this epsilon a report differs from its value less than once in 10^11 draws


@pytest.fixture
def con() -> Iterator[DuckDBPyConnection]:
    with ldpsql.connect() as con:
        yield con


def draw(
    number: int,
    types: tuple[int, int],
    column: NDArray[Any],
    words: Words64 | None,
    reports: NDArray[Any],
    *,
    second: NDArray[np.uint32] | None = None,
    third: NDArray[np.uint16] | None = None,
) -> int:
    """Draw a column as the function of DuckDB does, from given words."""
    assert KERNELS is not None
    pointer = ctypes.c_void_p
    KERNELS.ldpsql_column.argtypes = (
        ctypes.c_int64, ctypes.c_int, ctypes.c_int, pointer, ctypes.c_size_t, pointer, pointer, pointer, pointer
    )  # fmt: skip
    given = None if words is None else words.ctypes.data
    addresses = column.ctypes.data, len(column), given, reports.ctypes.data
    further = (None if column is None else column.ctypes.data for column in (second, third))
    return int(KERNELS.ldpsql_column(number, *types, *addresses, *further))


def whole_list(values: NDArray[np.int64]) -> int:
    """Return where C has a new list of whole numbers."""
    assert KERNELS is not None
    return int(KERNELS.ldpsql_list_whole(5, len(values), values.ctypes.data))


def learn_krr(number: int, spread: int, values: int) -> None:
    """Describe k-RR over a list to C."""
    assert KERNELS is not None
    numbers = np.array([spread, 0, 0, 0], np.uint64)
    assert KERNELS.ldpsql_learn(number, 0, values, values, numbers.ctypes.data, None, 0)


NUMBERS = iter(range((1 << 14) - 1, 1 << 13, -1))  # of recipes that no mechanism has yet


@pytest.mark.parametrize("size", [2, 100, 1025])
@pytest.mark.parametrize("listed", [1, 7, 1 << 30])  # one after the other, with gaps, too far apart for a table of places
def test_columns_of_every_width_are_word_for_word_those_of_the_kernel(size: int, listed: int) -> None:
    assert KERNELS is not None
    spread = int(TOTAL / (2.7 + size - 1))
    values = seeds.words(size).argsort().astype(np.int64) * listed
    number = next(NUMBERS)
    learn_krr(number, spread, whole_list(values))
    for kind in WIDTHS.values():
        for out in WIDTHS.values():
            column_type, out_type = (np.dtype(in_c.TYPES[one]) for one in (kind, out))
            places = (seeds.words(BLOCK) % np.uint64(size)).astype(np.int32)
            places = places[values[places] <= np.iinfo(column_type).max]
            words, reports = seeds.words(2 * BLOCK), np.empty(len(places), out_type)
            status = draw(number, (kind, out), values[places].astype(column_type), words, reports)
            if values.max() > np.iinfo(out_type).max:
                assert status == OUTSIDE
                continue
            assert status == DRAWN
            drawn = native.keep_or_spread(places, size, spread, words)
            assert drawn is not None
            np.testing.assert_array_equal(reports, values[drawn].astype(out_type))


@pytest.mark.parametrize("levels", [2, 3, BLOCK])
def test_rows_of_levels_are_word_for_word_those_of_the_kernel(levels: int) -> None:
    """The rows of a level are drawn together, a block at a time, each time from the first of the words."""
    assert KERNELS is not None
    pointer = ctypes.c_void_p
    KERNELS.ldpsql_rows.argtypes = (pointer, ctypes.c_int, ctypes.c_int, pointer, ctypes.c_size_t, pointer, pointer)
    values = seeds.words(100).argsort().astype(np.int64)
    backwards = values[::-1].copy()
    spreads = [int(TOTAL / (1.5 + level + 99)) for level in range(levels)]
    handles = np.array([next(NUMBERS) for _ in spreads])
    listed = whole_list(values)
    for handle, spread in zip(handles, spreads, strict=True):
        learn_krr(handle, spread, listed)
    other = next(NUMBERS)
    learn_krr(other, spreads[0], whole_list(backwards))
    own = (seeds.words(2 * BLOCK + 7) % np.uint64(levels)).astype(np.int64)
    places, words = (seeds.words(len(own)) % np.uint64(100)).astype(np.int32), seeds.words(2 * BLOCK)
    column, numbers, reports = values[places], handles[own], np.empty(len(own), np.int64)

    def rows() -> int:
        addresses = column.ctypes.data, len(own), words.ctypes.data, reports.ctypes.data
        return int(KERNELS.ldpsql_rows(numbers.ctypes.data, 5, 5, *addresses)) if KERNELS else -1

    assert rows() == DRAWN
    for start in range(0, len(own), BLOCK):
        for level, spread in enumerate(spreads):
            at = start + np.flatnonzero(own[start : start + BLOCK] == level)
            drawn = native.keep_or_spread(places[at], 100, spread, words)
            assert drawn is not None
            np.testing.assert_array_equal(reports[at], values[drawn])
    for strange in (other, next(NUMBERS), -1, 1 << 14):  # another domain, no mechanism, draws that a ledger counts
        numbers[-1] = strange
        assert rows() == OUTSIDE


BITS, HASHES, NODES = 24, 25, 26  # of door.c: columns of lists of words, of seeds and symbols, of levels, seeds and symbols
NEAR_EDGES = np.nextafter(np.repeat(np.arange(-1, 10.1, 0.1), 3), np.tile([-np.inf, 0, np.inf], 111))
COLUMNS = {  # a column of values of each structure
    "matrix([3, 1, 4], [[.5, .25, .25], [.25, .5, .25], [.25, .25, .5]])": np.array([1, 3, 4], np.int16),
    "geometric(1, -5, 9, margin=3)": np.arange(-5, 10, dtype=np.int32),
    "geometric(1, -5, 9, outside='clip')": np.arange(-9, 12, dtype=np.float64),
    "truncated_geometric(2, 0, 9)": np.array([0, 9.0, -0.0]),
    "stochastic_rounding(1, 0, 9, bins=30)": NEAR_EDGES[(NEAR_EDGES >= 0) & (NEAR_EDGES <= 9)],
    "stochastic_rounding(1, 0, 9, bins=30, outside='clip')": np.append(NEAR_EDGES, [-np.inf, np.inf, 1e300]),
    "stochastic_rounding(1, 0, 9, bins=30, outside='clip') ": np.arange(-128, 128, dtype=np.int8),
    "hybrid(1, 0, 1439, step=1)": np.arange(0, 1440, 3),  # two steps to a bin, whose centre is between them
    "square_wave(1, 0, 9, step=0.1, bins=13)": np.arange(0, 9.05, 0.1) + np.tile([9e-8, -9e-8, 0], 31)[:91],
    "square_wave(1, 0, 9, step=1, outside='clip')": np.arange(0, 256).astype(np.uint8),
    "oue(1, range(100))": np.arange(100),
    "oue(1, range(64))": np.arange(64, dtype=np.float32),
    "olh(1, range(100), seeds='private')": np.arange(100, dtype=np.uint64),
    "olh(1, range(100))": np.arange(100),
    "olh(5, range(100))": np.arange(100),
    "olh(2, [7, 70000000000])": np.array([70000000000, 7]),
    "hierarchy(1, 0, 999, step=1)": np.arange(1000),
    "hierarchy(1, 0, 99, step=0.5, outside='clip')": np.array([-1, 0, 0.5, 1, 98.5, 99, 100]),
}


def certified_values(text: str) -> CertifiedValues:
    return certify_values(registry().mechanism(text))


def drawn_from(channel: Any, codes: NDArray[np.int32], words: Words64) -> NDArray[Any] | None:
    """Return what the kernels of test_kernels.py draw."""
    if isinstance(channel, IndependentBits):
        return native.bits(codes, channel.size, channel.own, channel.other, words)
    if isinstance(channel, PrivateHash):
        return native.hashes(codes, channel.size, channel.numbers, given=words)
    if isinstance(channel, OrthogonalHash):
        assert channel.hashes is not None
        drawn = native.hashes(codes, channel.size, channel.numbers, channel.hashes, words)
        return None if drawn is None else np.column_stack(np.divmod(drawn, channel.response.size))
    if isinstance(channel, Levels):
        assert channel.tree is not None
        drawn_levels = native.levels(codes, channel.inputs, channel.tree, words)
        return None if drawn_levels is None else np.column_stack(drawn_levels)
    return np.asarray(channel.draw(codes, lambda count: words[:count]))


@pytest.mark.parametrize("text", COLUMNS)
def test_columns_of_every_structure_are_word_for_word_those_of_the_kernels(text: str) -> None:
    certified, values, number = certified_values(text.strip()), pa.array(COLUMNS[text]), next(NUMBERS)
    in_c.learn(number, certified)
    for _ in range(50):
        order = (seeds.words(BLOCK) % np.uint64(len(values))).astype(np.int64)
        codes, words, kind = certified.codes(values.take(pa.array(order))), seeds.words(30 * BLOCK), in_c._NUMBERS[values.type]
        expected = drawn_from(certified.channel, codes, words)
        assert expected is not None
        second, third = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.uint16)
        if isinstance(certified.reports, Domain):
            seen, out, expected = np.empty(BLOCK, np.int64), 5, certified.reports.values.to_numpy()[expected]
        elif isinstance(certified.channel, IndependentBits):
            seen, out = np.empty(expected.shape, np.uint64), BITS
        elif isinstance(certified.channel, Levels):
            seen, out = np.empty(BLOCK, np.uint8), NODES
        else:
            seen, out = np.empty(BLOCK, np.uint64), HASHES
        assert draw(number, (kind, out), COLUMNS[text][order], words, seen, second=second, third=third) == DRAWN
        columns: dict[int, list[NDArray[Any]]] = {HASHES: [seen, second], NODES: [seen, second, third]}
        np.testing.assert_array_equal(np.column_stack(columns[out]) if out in columns else seen, expected)


@pytest.mark.parametrize(
    ("text", "outside"),
    [
        ("geometric(1, -5, 9)", [-6, 10, 0.5, 1e-17, 2**53, np.nan, np.inf, -np.inf, 1e300]),
        ("square_wave(1, 0, 9, bins=30)", [np.nextafter(0, -1), np.nextafter(9, 10), np.nan, np.inf, -1e300]),
        ("square_wave(1, 0, 9, bins=30, outside='clip')", [np.nan]),
        ("square_wave(1, 0, 9, step=0.1)", [-2e-7, 9 + 2e-7, 0.05, 0.1 + 1.1e-7, 0.1 - 1.1e-7, np.nan, np.inf]),
        ("square_wave(1, 0, 9, step=0.1, outside='clip')", [0.05, np.nan]),
        ("krr(1, [0, 1, 2])", [-1, 3, 0.5, np.nextafter(1, 2), np.nan, np.inf, -np.inf, 2.0**63, 2.0**64, -(2.0**63), 1e300]),
        ("krr(1, [0, 1, 70000000000])", [-1, 3, 0.5, np.nan, 2.0**63, -(2.0**63)]),
    ],
)
def test_numbers_outside_of_an_interval_are_left_to_python(text: str, outside: list[float]) -> None:
    certified, number = certified_values(text), next(NUMBERS)
    in_c.learn(number, certified)
    assert draw(number, (11, 5), np.array([0.0]), seeds.words(2), np.empty(1, np.int64)) == DRAWN
    for value in outside:
        with pytest.raises(OutsideDomain):
            certified.codes(pa.array([value], pa.float64()))
        assert draw(number, (11, 5), np.array([0.0, value]), seeds.words(4), np.empty(2, np.int64)) == OUTSIDE


DAYS = [date(1970, 1, 1), date(1970, 1, 2)]
TIMES = [datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None), datetime(1970, 1, 2, tzinfo=UTC).replace(tzinfo=None)]
WHOLE = {*WIDTHS.values()}


@pytest.mark.parametrize(
    ("mechanism", "columns", "reports"),
    [
        (registry().mechanism("krr(1, [0, 1])"), WHOLE | {10, 11}, WHOLE),
        (registry().mechanism("geometric(1, 0, 1)"), WHOLE | {10, 11}, WHOLE - {6, 7, 8, 9}),
        (registry().mechanism("oue(1, [0, 1])"), WHOLE | {10, 11}, {BITS}),
        (registry().mechanism("olh(1, [0, 1])"), WHOLE | {10, 11}, {HASHES}),
        (registry().mechanism("krr(1, [false, true])"), {1}, {1}),
        (registry().mechanism({"mechanism": "krr", "epsilon": 1, "domain": DAYS}), {13}, {13}),
        (registry().mechanism({"mechanism": "krr", "epsilon": 1, "domain": TIMES}), {12}, {12}),
    ],
)
def test_columns_and_reports_of_other_types_are_left_to_python(
    mechanism: Mechanism, columns: set[int], reports: set[int]
) -> None:
    """A day is stored as a whole number, and so are a time and a truth: none of them is one."""
    number = next(NUMBERS)
    in_c.learn(number, certify(mechanism))
    for kind in {*in_c.TYPES}:
        for out in {*in_c.TYPES, BITS, HASHES} - {10, 11}:
            column, second = np.zeros(2, np.uint64), np.empty(1, np.uint32)  # of any type
            status = draw(number, (kind, out), column[:1], seeds.words(30), np.empty(2, np.uint64), second=second)
            assert (status == DRAWN) == (kind in columns and out in reports), (kind, out)


def test_numbers_outside_of_the_domain_are_left_to_python() -> None:
    assert KERNELS is not None
    values = np.array([-3, -1, 0, 5], np.int64)
    number = next(NUMBERS)
    learn_krr(number, TOTAL // 8, whole_list(values))
    for kind in WIDTHS.values():
        dtype = np.dtype(in_c.TYPES[kind])
        ends = np.iinfo(dtype)
        outside = {-4, -2, 1, 4, 6, ends.min, ends.max, 2**63, 2**64 - 3, 2**64 - 1} - {*values.tolist()}
        for value in outside:
            if ends.min <= value <= ends.max:
                column = np.array([0, value], dtype)
                assert draw(number, (kind, 5), column, seeds.words(4), np.empty(2, np.int64)) == OUTSIDE
        for out in (6, 7, 8, 9):  # no unsigned type holds -3
            assert draw(number, (kind, out), np.zeros(1, dtype), seeds.words(4), np.empty(1, np.uint64)) == OUTSIDE
    for strange in (-1, 1 << 14, 1 << 40, -(1 << 63)):
        assert draw(strange, (5, 5), values, seeds.words(8), np.empty(4, np.int64)) == OUTSIDE


def test_numbers_of_which_only_a_part_of_the_hash_agrees_are_told_apart() -> None:
    numbers = np.arange(1 << 20, dtype=np.uint64)
    hashes = splitmix(splitmix(numbers << np.uint64(32) | np.uint64(8)))  # of a text of 8 octets
    parts = hashes >> np.uint64(32) << np.uint64(2) | hashes & np.uint64(3)  # what the slot of one of two values shows
    order = np.argsort(parts)
    alike = np.flatnonzero(np.diff(parts[order]) == 0)
    assert len(alike)
    for one, other in zip(order[alike], order[alike + 1], strict=True):
        number = next(NUMBERS)
        learn_krr(number, TOTAL // 8, whole_list(np.array([one, 1 << 40])))
        column = np.array([one, 1 << 40, other])
        assert draw(number, (5, 5), column[:2], seeds.words(4), np.empty(2, np.int64)) == DRAWN
        assert draw(number, (5, 5), column[2:], seeds.words(4), np.empty(1, np.int64)) == OUTSIDE


@pytest.fixture
def in_c_alone(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Take away what draws in Python."""

    def take_away() -> None:
        others = {name: one for name, one in door.FUNCTIONS.items() if not name.startswith("__ldp_perturb")}
        monkeypatch.setattr(door, "FUNCTIONS", others)

    return take_away


@pytest.mark.parametrize("kind", WIDTHS)
def test_whole_numbers_of_every_width_are_drawn_in_c(
    con: DuckDBPyConnection, kind: str, in_c_alone: Callable[[], None]
) -> None:
    con.execute(f"CREATE TABLE t AS SELECT (i % 100)::{kind} AS x FROM range(10_000) r(i)")
    perturb = f"SELECT count(*) FILTER (WHERE x = ldp.perturb(x, ldp.krr({NEARLY_ALWAYS}, range(100)::{kind}[]))) FROM t"
    assert con.execute(perturb).fetchall() == [(10_000,)]  # the first call describes the mechanism
    in_c_alone()
    assert con.execute(perturb).fetchall() == [(10_000,)]


TEXTS = ["", "a", "twelve bytes", "thirteen byte", "more than sixteen octets", "Ærøskøbing", "Ærøskøbing by the sea", "a\0b"]


def test_texts_of_every_length_are_drawn_in_c(con: DuckDBPyConnection, in_c_alone: Callable[[], None]) -> None:
    con.execute("CREATE TABLE t AS SELECT unnest($texts) AS x, i FROM range(1000) r(i)", {"texts": TEXTS})
    con.execute("SET VARIABLE texts = (SELECT list(DISTINCT x ORDER BY x) FROM t)")
    perturb = f"SELECT count(*) FILTER (WHERE x = ldp.perturb(x, ldp.krr({NEARLY_ALWAYS}, getvariable('texts')))) FROM t"
    assert con.execute(perturb).fetchall() == [(1000 * len(TEXTS),)]
    in_c_alone()
    assert con.execute(perturb).fetchall() == [(1000 * len(TEXTS),)]


@pytest.mark.parametrize(
    ("domain", "value"),
    [("range(100)", "i % 100"), ("list_transform(range(100), lambda j: 'text ' || j)", "'text ' || i % 100")],
)
def test_levels_are_drawn_in_c(con: DuckDBPyConnection, domain: str, value: str, in_c_alone: Callable[[], None]) -> None:
    """Reports of the high level are nearly always the value, and those of the low one nearly never."""
    levels = f"MAP {{'low': ldp.krr(0.001, {domain}), 'high': ldp.krr({NEARLY_ALWAYS}, {domain})}}"
    con.execute(f"CREATE TABLE t AS SELECT {value} AS x, if(i % 3 = 0, 'low', 'high') AS l FROM range(9_000) r(i)")
    perturb = f"SELECT l, count(*) FILTER (WHERE x = ldp.perturb(x, {levels}, l)) FROM t GROUP BY l ORDER BY l"
    con.execute(perturb)  # the first call describes the mechanisms
    in_c_alone()
    (_, high), (_, low) = con.execute(perturb).fetchall()
    assert high == 6000
    assert 3 < low < 80  # of 3,000 that keep their value with a probability of .01: 10^-6


@pytest.mark.parametrize(
    "call",
    [
        "(x, ldp.oue(1, range(100)))",
        "(x::VARCHAR, ldp.rappor(1, list_transform(range(100), lambda i: i::VARCHAR)))",
        "(x, ldp.olh(1, range(100)))",
        "(x, ldp.olh(1, range(100), seeds := 'private'))",
        "(x / 100, ldp.stochastic_rounding(1, 0, 1))",
        "(x, ldp.square_wave(1, 0, 99))",
        "(x, ldp.geometric(1, 0, 99))",
        "(DATE '2000-01-01' + x, ldp.oue(1, list_transform(range(100), lambda i: DATE '2000-01-01' + i::INTEGER)))",
        "(x < 50, ldp.krr(1, [true, false]))",
    ],
)
def test_reports_of_every_structure_are_drawn_in_c(con: DuckDBPyConnection, call: str, in_c_alone: Callable[[], None]) -> None:
    con.execute("CREATE TABLE t AS SELECT (i % 100)::INTEGER AS x FROM range(10_000) r(i)")
    perturb = f"SELECT count(*), count(DISTINCT y) > 1 FROM (SELECT ldp.perturb{call} AS y FROM t)"
    assert con.execute(perturb).fetchall() == [(10_000, True)]  # the first call describes the mechanism
    in_c_alone()
    assert con.execute(perturb).fetchall() == [(10_000, True)]


def test_reports_as_lists_and_structs_are_estimated(con: DuckDBPyConnection) -> None:
    """Of 100,000 people half have each of the values 3 and 70: the standard errors of OLH and OUE are below .014."""
    con.execute("CREATE TABLE t AS SELECT if(i % 2 = 0, 3, 70) AS x FROM range(100_000) r(i)")
    for mechanism in ("ldp.oue(1, range(100))", "ldp.olh(1, range(100))", "ldp.olh(1, range(100), seeds := 'private')"):
        con.execute(f"CREATE OR REPLACE TABLE reports AS SELECT ldp.perturb(x, {mechanism}) AS y FROM t")
        shares = dict(con.execute(f"SELECT value, estimate FROM ldp.estimate(reports, y, {mechanism})").fetchall())
        for value in range(100):
            assert abs(shares[value] - (value in {3, 70}) / 2) < 6 * 0.014, (mechanism, value)


@pytest.mark.parametrize(("domain", "value"), [("[0, 1, 2, 3]", "0"), ("['a', 'b', 'c', 'd']", "'a'")])
def test_reports_in_c_have_the_probabilities_of_the_channel(con: DuckDBPyConnection, domain: str, value: str) -> None:
    n, channel = 1_000_000, KeepOrSpread.within(4, Fraction(27182818284, 10**10))
    reports = f"SELECT ldp.perturb(x, ldp.krr(1, {domain})) AS y, x FROM (SELECT {value} AS x FROM range({n}))"
    counts = con.execute(f"SELECT y = x, count(*) FROM ({reports}) GROUP BY y, x ORDER BY y").fetchall()
    assert len(counts) == 4
    for kept, count in counts:
        share = float(channel.hit if kept else channel.miss)
        assert abs(count / n - share) < 5.3 * (share * (1 - share) / n) ** 0.5  # 10^-6 for all eight together


STATEMENTS = [
    "SELECT ldp.perturb(i, ldp.krr(32, [0, 1, 2])) FROM t",
    "SELECT ldp.perturb('c' || i, ldp.krr(32, ['c0', 'c1', 'c2'])) FROM t",
    "SELECT ldp.perturb(i, ldp.krr(1, [0, 1])) FROM t",
    "SELECT ldp.perturb('c' || i, ldp.krr(1, ['c0', 'c1'])) FROM t",
    "SELECT ldp.perturb(CASE WHEN i < 2 THEN i END, ldp.krr(1, [0, 1, 2])) FROM t",
    "SELECT ldp.perturb(CASE WHEN i < 2 THEN 'c' || i END, ldp.krr(1, ['c0', 'c1', 'c2'])) FROM t",
    "SELECT ldp.perturb(CASE WHEN i < 2 THEN i END, ldp.krr(32, [0, 1, 2], nulls := 'as:2')) FROM t",
    "SELECT ldp.perturb(CASE WHEN i < 2 THEN 'c' || i END, ldp.krr(32, ['c0', 'c1', 'c2'], nulls := 'as:c2')) FROM t",
    "SELECT ldp.perturb(i, ldp.krr(32, [0, 1], outside := 'as:1')) FROM t",
    "SELECT ldp.perturb('c' || i, ldp.krr(32, ['c0', 'c1'], outside := 'as:c1')) FROM t",
    "SELECT ldp.perturb(i, ldp.geometric(32, 0, 2)) FROM t",
    "SELECT ldp.perturb(i::HUGEINT, ldp.krr(32, [0, 1, 2])) FROM t",
    "SELECT ldp.perturb(i::DOUBLE, ldp.krr(32, [0, 1, 2])) FROM t",
    "SELECT ldp.perturb(i, ldp.krr(32, [0, 1, 2]::HUGEINT[])) FROM t",
    "SELECT ldp.perturb(i, ldp.krr(32, ['0', '1', '2'])) FROM t",
    "SELECT ldp.perturb(DATE '2000-01-01', ldp.krr(32, ['2000-01-01', '2000-01-02'])) FROM t",
    "SELECT ldp.perturb(true, ldp.krr(32, [0, 1])) FROM t",
    "SELECT ldp.perturb(NULL, ldp.krr(32, [0, 1])) FROM t",
    "SELECT ldp.perturb(1, ldp.krr(32, [18446744073709551615, 1]::UBIGINT[])) FROM t",
    "SELECT ldp.perturb(i, ldp.krr(32, [0, 1, 1000000000000])) FROM t",
    "SELECT ldp.perturb(i, ldp.krr(1, [i, 1])) FROM t",
    "SELECT ldp.perturb({'a': i, 'b': 'x'}, ldp.joint_krr(32, {a: [0, 1, 2], b: ['x', 'y']})) FROM t",
    "SELECT ldp.perturb(i / 2, ldp.krr(32, [0, 0.5, 1])) FROM t",
    "SELECT ldp.perturb(i, MAP {'a': ldp.krr(32, [0, 1, 2])}, 'a') FROM t",
    "SELECT ldp.perturb(i, MAP {0: ldp.krr(32, [0, 1, 2]), 1: ldp.krr(40, [0, 1, 2])}, i % 2) FROM t",
    "SELECT ldp.perturb(i, MAP {0: ldp.krr(32, [0, 1, 2]), 1: ldp.krr(40, [0, 1, 2])}, i) FROM t",
    "SELECT ldp.perturb(i, MAP {0: ldp.krr(32, [0, 1]), 1: ldp.krr(40, [0, 1])}, i % 2) FROM t",
    "SELECT ldp.perturb(nullif(i, 2), MAP {0: ldp.krr(32, [0, 1]), 1: ldp.krr(40, [0, 1])}, i % 2) FROM t",
    "SELECT ldp.perturb(i, MAP {0: ldp.krr(32, [0, 1, 2]), 1: ldp.krr(40, [0, 1, 2])}, nullif(i, 2)) FROM t",
    "SELECT ldp.perturb(x, ldp.krr(32, [0, 1, 2])) FROM (SELECT i AS x FROM t WHERE i > 5)",
    "SELECT ldp.perturb(DATE '2000-01-01' + i, ldp.krr(32, ['2000-01-01'::DATE, '2000-01-02', '2000-01-03'])) FROM t",
    "SELECT ldp.perturb(DATE '2000-01-01' + i, ldp.krr(32, [DATE '2000-01-01', DATE '2000-01-02'])) FROM t",
    "SELECT ldp.perturb(if(i < 2, DATE '2000-01-01', NULL), ldp.krr(32, [DATE '2000-01-01', DATE '2001-01-01'])) FROM t",
    "SELECT ldp.perturb(CASE WHEN i < 2 THEN DATE '2000-01-01' + i END, ldp.krr(32, [DATE '2000-01-01', DATE '2000-01-02'],"
    " nulls := 'as:2000-01-02')) FROM t",
    "SELECT ldp.perturb((DATE '2000-01-01' + i)::TIMESTAMP, ldp.krr(32, [DATE '2000-01-01', DATE '2000-01-02'])) FROM t",
    "SELECT ldp.perturb(TIMESTAMP '2000-01-01' + to_hours(i), ldp.krr(32, [TIMESTAMP '2000-01-01',"
    " TIMESTAMP '2000-01-01 01:00:00', TIMESTAMP '2000-01-01 02:00:00'])) FROM t",
    "SELECT ldp.perturb((TIMESTAMP '2000-01-01' + to_hours(i))::TIMESTAMP_S, ldp.krr(32, [TIMESTAMP '2000-01-01'])) FROM t",
    "SELECT ldp.perturb(i < 2, ldp.krr(32, [true, false])) FROM t",
    "SELECT ldp.perturb(CASE WHEN i < 2 THEN i = 0 END, ldp.krr(32, [true, false], nulls := 'as:true')) FROM t",
    "SELECT ldp.perturb(i < 2, ldp.oue(1, [0, 1])) FROM t",
    "SELECT ldp.perturb(i::FLOAT, ldp.krr(32, [0, 1, 2])) FROM t",
    "SELECT ldp.perturb(i / 2, ldp.krr(32, [0, 1, 2])) FROM t",
    "SELECT ldp.perturb(i::DECIMAL(5, 2), ldp.krr(32, [0, 1, 2])) FROM t",
    "SELECT ldp.perturb(('c' || i)::ENUM ('c0', 'c1', 'c2'), ldp.krr(32, ['c0', 'c1', 'c2'])) FROM t",
    "SELECT typeof(ldp.perturb(i::HUGEINT, ldp.stochastic_rounding(1, 0, 2))) FROM t",
    "SELECT typeof(ldp.perturb(i::DECIMAL(5, 2), ldp.stochastic_rounding(1, 0, 2))) FROM t",
    "SELECT typeof(ldp.perturb(i / 2, ldp.square_wave(1, 0, 1))) FROM t",
    "SELECT ldp.perturb(i / 2, ldp.square_wave(1, 0, 0.9)) FROM t",
    "SELECT ldp.perturb(CASE WHEN i < 2 THEN i END, ldp.square_wave(1, 0, 2)) FROM t",
    "SELECT ldp.perturb(i, ldp.geometric(32, 0, 2)) FROM t",
    "SELECT ldp.perturb(i, ldp.geometric(32, 1, 2, outside := 'clip')) FROM t",
    "SELECT ldp.perturb(CASE WHEN i < 2 THEN i END, ldp.geometric(32, 0, 2, nulls := 'as:2')) FROM t",
    "SELECT ldp.perturb('c' || i, ldp.oue(1, ['c0', 'c1'])) FROM t",
    "SELECT len(ldp.perturb('c' || i, ldp.oue(1, ['c0', 'c1', 'c2']))) FROM t",
    "SELECT len(ldp.perturb(CASE WHEN i < 2 THEN i END, ldp.oue(1, range(100), nulls := 'as:7'))) FROM t",
    "SELECT ldp.perturb(CASE WHEN i < 2 THEN i END, ldp.oue(1, range(100))) FROM t",
    "SELECT ldp.perturb(NULL, ldp.oue(1, range(100))) FROM t",
    "SELECT len(ldp.perturb([i], ldp.oue(1, [[0], [1], [2]]))) FROM t",
    "SELECT typeof(ldp.perturb(i, ldp.olh(1, range(100)))) FROM t",
    "SELECT typeof(ldp.perturb(nullif(i, 2), ldp.olh(1, range(100), nulls := 'as:7', seeds := 'private'))) FROM t",
    "SELECT ldp.perturb(CASE WHEN i < 2 THEN i END, ldp.olh(1, range(100))) FROM t",
    "SELECT ldp.perturb(i, ldp.olh(1, [0, 1])) FROM t",
    "SELECT ldp.perturb(i, ldp.matrix([0, 1, 2], [[1e-12, 1 - 2e-12, 1e-12], [1e-12, 1e-12, 1 - 2e-12],"
    " [1 - 2e-12, 1e-12, 1e-12]])) FROM t",
    "SELECT len(ldp.perturb(i, MAP {0: ldp.oue(1, [0, 1, 2]), 1: ldp.oue(2, [0, 1, 2])}, i % 2)) FROM t",
    "SELECT ldp.perturb(i, MAP {0: ldp.geometric(32, 0, 2), 1: ldp.geometric(40, 0, 2)}, i % 2) FROM t",
    "SELECT ldp.perturb(i, MAP {0: ldp.krr(32, [0, 1, 2]), 1: ldp.krr(32, [0, 1, 2]::INTEGER[])}, i % 2) FROM t",
]
_BOTH = f"""
import re, sys, duckdb
before = duckdb.connect()
import ldpsql
ldpsql.connect().close()
after = duckdb.connect()
for con in (before, after):
    ldpsql.attach(con)
    con.execute("CREATE TABLE t AS SELECT (j % 3)::INTEGER AS i FROM range(3000) r(j)")
for sql in {STATEMENTS!r}:
    found = []
    for con in (before, after, after):
        try:
            found.append((con.execute(f"DESCRIBE {{sql}}").fetchall()[0][1], con.execute(sql).fetchall()))
        except duckdb.Error as error:
            found.append((type(error), re.sub(r"Python exception occurred while executing the UDF: \\w+: \\n", "", str(error))))
    if not found[0] == found[1] == found[2]:
        print(sql, *(str(one)[:300] for one in found), sep="\\n")
print("compared")
"""


def run(script: str, **settings: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=False, env=os.environ | settings
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_connection_that_was_opened_before_draws_and_refuses_in_python_what_others_do_in_c() -> None:
    assert run(_BOTH).strip() == "compared"


def test_an_import_before_that_of_duckdb_is_made_up_for_when_ldpsql_connects() -> None:
    script = "import ldpsql; con = ldpsql.connect(); print(len(con.execute({!r}).fetchall()))"
    functions = "SELECT 1 FROM duckdb_functions() WHERE function_name = '__ldp_perturb_bigint' AND varargs IS NULL"
    assert run(script.format(functions)).strip() == "10"
    assert run(script.format(functions), LDPSQL_NATIVE="0").strip() == "0"


_OTHER_VERSION = """
import ldpsql.engine.door as door, ldpsql  # before DuckDB, whose version is not read yet
door._DUCKDB = ("v1.9.9",)
con = ldpsql.connect()
con.execute("SELECT ldp.perturb(1, ldp.krr(1, [1, 2]))")
print(door.open_door())
"""


def test_another_version_of_duckdb_draws_in_python() -> None:
    assert "is not known to call functions in C correctly: v1.9.9" in run(_OTHER_VERSION)


def test_threads_and_databases_draw_at_once() -> None:
    wrong: list[int] = []

    def draw_twice() -> None:
        with ldpsql.connect() as con:
            con.execute(
                "CREATE TABLE t AS SELECT (i % 100)::INTEGER AS x, 'the text of a value, ' || x AS c FROM range(200_000) r(i)"
            )
            con.execute("SET VARIABLE texts = (SELECT list(DISTINCT c) FROM t)")
            for _ in range(5):
                same = f"""SELECT count(*) FROM t WHERE x = ldp.perturb(x, ldp.krr({NEARLY_ALWAYS}, range(100)::INTEGER[]))
                           AND c = ldp.perturb(c, ldp.krr({NEARLY_ALWAYS}, getvariable('texts')))"""
                ((count,),) = con.execute(same).fetchall()
                wrong.append(200_000 - count)

    threads = [Thread(target=draw_twice) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [0] * 20


def test_threads_that_offer_functions_at_once_offer_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """C keeps the addresses of one offer, which a second one would free."""
    offers, both = list[int](), Barrier(2)

    def slow(_: object, size: int, __: bytes) -> bool:
        offers.append(size)
        with suppress(BrokenBarrierError):
            both.wait(0.2)  # for a second offer
        return True

    monkeypatch.setattr(door, "open_door", lambda: SimpleNamespace(ldpsql_offer=slow))
    monkeypatch.setattr(door, "_OFFERED", {})
    function = SimpleNamespace(name="__ldp_nothing", volatile=False, returns="BIGINT", function=len)
    monkeypatch.setattr(door, "FUNCTIONS", {})
    threads = [Thread(target=door.offer, args=([function],)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert offers == [1]
    assert door.offered() == {"__ldp_nothing"}


def test_c_reads_the_numbers_of_a_domain_while_they_are_in_memory() -> None:
    """Other threads run meanwhile, and may write where the array was."""
    read = list[int]()

    def listed(number: int, size: int, address: int) -> int:
        others = [np.full(size, number) for _ in range(50)]
        read.extend((ctypes.c_int64 * size).from_address(address))
        return len(others)

    library: Any = SimpleNamespace(ldpsql_list_whole=listed)
    assert in_c._list_of_whole(library, Domain.of(range(100))) == 50
    assert read == list(range(100))


def test_a_forked_process_draws_other_words(con: DuckDBPyConnection) -> None:
    """A column that C draws in a child differs from the one that its parent draws next."""
    values, number = np.arange(100, dtype=np.int64), next(NUMBERS)
    assert KERNELS is not None
    learn_krr(number, TOTAL // 100, whole_list(values))
    draw(number, (5, 5), values, None, np.empty(100, np.int64))
    read, write = os.pipe()
    if not (child := os.fork()):
        reports = np.empty(100, np.int64)
        draw(number, (5, 5), values, None, reports)
        os.write(write, reports.tobytes())
        os._exit(0)
    reports = np.empty(100, np.int64)
    draw(number, (5, 5), values, None, reports)
    os.waitpid(child, 0)
    assert np.frombuffer(os.read(read, 800), np.int64).tolist() != reports.tolist()


def test_a_ledger_counts_draws_before_and_after_c_has_learnt_the_mechanism(tmp_path: Path) -> None:
    people = "CREATE TABLE people AS SELECT (i % 3)::INTEGER AS x FROM range(5000) t(i)"
    perturb = "CREATE TABLE reports AS SELECT ldp.perturb(x, ldp.krr(1, [0, 1, 2])) AS x FROM people"
    with ldpsql.connect() as con:
        con.execute(people)
        con.execute(perturb)  # without a ledger C draws
    Ledger.open(tmp_path / "ledger", Policy(epsilon_budget=1))
    with ldpsql.connect(ledger=tmp_path / "ledger") as con:
        con.execute(people)
        with pytest.raises(duckdb.InvalidInputException, match="LDP320"):
            con.execute(perturb)
        with ldpsql.release(con, "people", {"x": "ldp.krr(1, [0, 1, 2])"}, "reports"):
            con.execute(perturb)
            with pytest.raises(duckdb.InvalidInputException, match="LDP320"):
                con.execute("SELECT ldp.perturb(1, ldp.krr(1, [0, 1, 2]))")


@pytest.mark.parametrize("text", [text for text in COLUMNS if not text.startswith(("oue", "olh", "hierarchy"))])
def test_positions_for_a_file_are_drawn_as_those_for_sql(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are drawn from the same words here, which are given instead of random ones."""
    certified, values, number = certified_values(text.strip()), pa.array(COLUMNS[text]), next(NUMBERS)
    in_c.learn(number, certified)
    order = (seeds.words(BLOCK) % np.uint64(len(values))).astype(np.int64)
    column, words, expected = COLUMNS[text][order], seeds.words(30 * BLOCK), np.empty(BLOCK, np.int64)
    assert draw(number, (in_c._NUMBERS[values.type], 5), column, words, expected) == DRAWN
    assert KERNELS is not None
    in_one_pass = KERNELS.ldpsql_draw

    def given(*arguments: Any) -> int:
        return int(in_one_pass(*arguments[:5], words.ctypes.data, *arguments[6:]))

    monkeypatch.setattr(KERNELS, "ldpsql_draw", given)
    longer = pa.array(np.concatenate([column[:3], column])).slice(3)  # not at the first octet of its memory
    for kind, column_of_file in product((np.uint16, np.int32), (longer, longer.dictionary_encode())):
        drawn = in_c.positions(certified, column_of_file, np.dtype(kind))
        assert drawn is not None
        np.testing.assert_array_equal(certified.reports.values.to_numpy()[drawn], expected)  # type: ignore[union-attr]


def test_columns_that_c_does_not_draw_for_a_file_are_left_to_python() -> None:
    certified, kind = certified_values("krr(1, [0, 1, 2])"), np.dtype(np.uint8)
    assert in_c.positions(certified, pa.array([0, 1, 2]), kind) is not None
    for column in ([0, None], [0, 3], [0.5], ["a"], [True], []):
        assert in_c.positions(certified, pa.array(column), kind) is None
        assert in_c.positions(certified, pa.array(column).dictionary_encode(), kind) is None
    listed_texts = certified_values("krr(1, ['a', 'b'])")
    assert in_c.positions(listed_texts, pa.array(["a", "b", "a"]), kind) is None
    assert in_c.positions(listed_texts, pa.array(["a", "b", "a"]).dictionary_encode(), kind) is not None
    assert in_c.positions(certified_values("krr(1, [false, true])"), pa.array([True]), kind) is None
    assert in_c.positions(certified_values("oue(1, [0, 1])"), pa.array([0]), kind) is None


def test_a_file_holds_reports_of_the_channel_and_refuses_what_python_refuses(con: DuckDBPyConnection, tmp_path: Path) -> None:
    n, channel, out = 400_000, KeepOrSpread.within(4, Fraction(27182818284, 10**10)), tmp_path / "r.parquet"
    con.execute(f"CREATE TABLE t AS SELECT (i % 4)::INTEGER AS x FROM range({n}) r(i)")
    for order in ("random", "keep"):
        ldpsql.perturb_copy(con, "t", out, {"x": "krr(1, [0, 1, 2, 3])"}, order=order, replace=True)
        counts = con.execute(f"SELECT count(*) FROM '{out}' GROUP BY x").fetchall()
        assert sum(count for (count,) in counts) == n
        assert all(abs(count / n - 0.25) < 5.6 * (3 / 16 / n) ** 0.5 for (count,) in counts)  # 10^-6 for all eight together
    kept = con.execute(f"SELECT count(*) FROM t POSITIONAL JOIN '{out}' r WHERE t.x = r.x").fetchall()[0][0] / n
    hit = float(channel.hit)
    assert abs(kept - hit) < 4.9 * (hit * (1 - hit) / n) ** 0.5
    con.execute("INSERT INTO t VALUES (4)")
    with pytest.raises(OutsideDomain, match="x"):
        ldpsql.perturb_copy(con, "t", out, {"x": "krr(1, [0, 1, 2, 3])"}, replace=True)
    ldpsql.perturb_copy(con, "t", out, {"x": f"krr({NEARLY_ALWAYS}, [0, 1, 2, 3], outside='as:0')"}, replace=True)
    assert con.execute(f"SELECT count(*) FROM '{out}' WHERE x = 0").fetchall() == [(n // 4 + 1,)]


# Reports of few and of many seeds, some equal, some NULL, some without a seed or a symbol, in groups of all sizes.
_HASHED = """CREATE TABLE hashed AS SELECT CASE WHEN i % 11 > 0 THEN {'seed': CASE WHEN i % 13 > 0 THEN seed END::UBIGINT,
                    'y': CASE WHEN i % 17 > 0 THEN i % 3 END::UINTEGER} END AS r, i, i % 7 AS few, i // 3 AS many
                FROM (SELECT i, CASE WHEN i % 2 = 0 THEN i % 50 ELSE hash(i // 4) END AS seed FROM range(9_000) t(i))"""


_GROUPS = ["few", "many", "i", "NULL", "r", "i % 3 = 0", "{'a': few}"]
_KEEPS = ["true", "i % 5 > 0", "NULL", "i < 0"]
# Every two of groups, rows that are kept and threads meet.
_COUNTED = [(group, keep, (1, 4)[(i + j) % 2]) for i, group in enumerate(_GROUPS) for j, keep in enumerate(_KEEPS)]


@pytest.mark.parametrize(("group", "keep", "threads"), _COUNTED)
def test_hashed_reports_are_counted_in_c_as_by_histogram(con: DuckDBPyConnection, group: str, keep: str, threads: int) -> None:
    con.execute(f"SET threads = {threads}; {_HASHED}")
    both = f"ldp.counts(r, keep := {keep}) AS own, histogram(r) FILTER (WHERE {keep}) AS other"
    plan = con.execute(f"EXPLAIN SELECT ldp.counts(r) FROM hashed GROUP BY {group}").fetchall()
    assert "__ldp_count_hashed" in str(plan)
    query = f"SELECT count(*) > 0, bool_and(own IS NOT DISTINCT FROM other) FROM (SELECT {both} FROM hashed GROUP BY {group})"
    assert con.execute(query).fetchall() == [(True, True)]
    assert con.execute(query.replace("FROM hashed", "FROM hashed WHERE false")).fetchall() == [(False, None)]


def test_counts_of_hashed_reports_in_a_window_and_of_none_are_those_of_histogram(con: DuckDBPyConnection) -> None:
    con.execute(_HASHED)
    frames = "OVER (PARTITION BY few ORDER BY i ROWS BETWEEN 300 PRECEDING AND 2 FOLLOWING)"  # merged from counts of parts
    moving = (
        f"SELECT count(*) FROM (SELECT system.main.__ldp_count_hashed(r) {frames} AS a, histogram(r) {frames} AS b FROM hashed"
        " WHERE few < 2)"
    )
    assert con.execute(f"{moving} WHERE a IS DISTINCT FROM b").fetchall() == [(0,)]
    (nothing,) = con.execute("SELECT ldp.counts(r), histogram(r) FROM hashed WHERE i < 0").fetchall()
    assert nothing == (None, None)
    con.execute("CREATE TABLE wide AS SELECT {'y': r.y::UTINYINT, 'seed': r.seed} AS r FROM hashed WHERE r.y IS NOT NULL")
    ((same,),) = con.execute("SELECT ldp.counts(r) = histogram({'seed': r.seed, 'y': r.y::UINTEGER}) FROM wide").fetchall()
    assert same


_COUNTED_BEFORE = """
import duckdb
before = duckdb.connect()
import ldpsql
query = "SELECT ldp.estimate(r, ldp.olh(1, range(9), seeds := 'private')), ldp.counts(r), ldp.counts(r, weight := 2) FROM '{}'"
(one,), (other,) = (ldpsql.attach(con).execute(query).fetchall() for con in (before, duckdb.connect()))
print(one == other, len(other[1]["key"]))
"""


def test_a_connection_that_was_opened_before_estimates_the_same_from_hashed_reports(
    con: DuckDBPyConnection, tmp_path: Path
) -> None:
    reports = "SELECT ldp.perturb(i % 9, ldp.olh(1, range(9), seeds := 'private')) AS r FROM range(5000) t(i)"
    con.execute(f"COPY ({reports}) TO '{tmp_path / 'r.parquet'}'")
    printed = run(_COUNTED_BEFORE.format(tmp_path / "r.parquet"))  # on a busy machine, after a progress bar of DuckDB
    assert printed.split()[-2:] == ["True", "5000"]


def test_results_and_refusals_of_functions_in_python_do_not_mix_between_threads(con: DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE r AS SELECT i % 3 AS x, i % 50 AS g FROM range(20_000) t(i)")
    wrong = list[str]()

    def ask(number: int) -> None:
        with con.cursor() as own:
            for _ in range(10):
                rows = own.execute("SELECT g, len(ldp.ibu(x, ldp.krr(1, [0, 1, 2]))) FROM r GROUP BY g ORDER BY g").fetchall()
                wrong.extend([] if rows == [(g, 3) for g in range(50)] else ["rows"])
                with pytest.raises(duckdb.InvalidInputException) as refused:
                    own.execute(f"SELECT ldp.describe('krr(1, [{number}, {number}])')")
                wrong.extend([] if str(refused.value).startswith("Invalid Input Error: [LDP102]") else [str(refused.value)])

    threads = [Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_function_in_python_refuses_more_arguments_than_c_passes_on(con: DuckDBPyConnection) -> None:
    call = "SELECT system.main.__ldp_written({})".format
    with pytest.raises(duckdb.InvalidInputException, match="this function has too many arguments"):
        con.execute(call(", ".join("1" * 65)))
    with pytest.raises(duckdb.InvalidInputException, match=r"Invalid Input Error: \[LDP"):
        con.execute(call(", ".join("1" * 64)))


def test_the_record_of_moments_does_not_depend_on_the_time_zone_of_the_session(con: DuckDBPyConnection) -> None:
    record = "SELECT ldp.describe(ldp.krr(1, [TIMESTAMPTZ '2026-01-01 00:00:00+00', '2026-01-02 00:00:00+00'])).fingerprint"
    found = [con.execute(f"SET TimeZone = '{zone}'; {record}").fetchall() for zone in ("Asia/Tokyo", "America/Lima", "UTC")]
    assert found[0] == found[1] == found[2]
    assert "timestamp[us, tz=UTC]" in found[0][0][0]
