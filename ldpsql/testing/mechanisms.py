"""The checks of a mechanism and of its channel, and every report of a small one with its exact probability."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import singledispatch
from itertools import combinations, count, product
from math import prod

import numpy as np
import pyarrow as pa
from duckdb import DuckDBPyConnection
from numpy.typing import NDArray

import ldpsql
from ldpsql.bulk.counts import Counts
from ldpsql.channels import (
    TOTAL,
    AnyChannel,
    BinBits,
    Drawn,
    Hadamard,
    IndependentBits,
    KeepOrWindow,
    KeyValue,
    Levels,
    OneOfRows,
    OrthogonalHash,
    Prefixes,
    PrivateHash,
    Rows,
    SetChannel,
    Sets,
    SignedBits,
    Subsets,
    TableChannel,
    Words64,
)
from ldpsql.channels.randomness import Words
from ldpsql.domains.composite import Product
from ldpsql.errors import InternalError, InvalidParameter, NotPrivate, PrivacyLeakWarning, UsageError
from ldpsql.estimates.estimate import estimate_column
from ldpsql.inference.counting import possible
from ldpsql.inference.operators import Floats, Ints
from ldpsql.inference.score_intervals import log_fit_p_value
from ldpsql.mechanisms.audit import chosen_sets, expected_shares, levels_follow, plausible, prefixes_follow, reports_of
from ldpsql.mechanisms.base import (
    CertifiedMechanism,
    CertifiedPairs,
    CertifiedRow,
    CertifiedStrings,
    CertifiedValues,
    Mechanism,
    certify,
)
from ldpsql.mechanisms.families import JointMechanism, KeyValueMechanism, RowMechanism
from ldpsql.privacy.claims import Epsilon
from ldpsql.registry.constructors import constructor
from ldpsql.registry.registry import registry
from ldpsql.sql.attach import connect
from ldpsql.sql.named import sql_call

MOST_CELLS = 1 << 16  # values times reports

Table = list[list[Fraction]]  # a row for each value, with the probability of each report


@dataclass(frozen=True)
class Enumeration:
    """Every report of a mechanism, as a column, and its exact probability given each value, ``chances[value][report]``.

    The values of a mechanism over sets of pairs are the symbols that its response takes.
    """

    reports: pa.Array
    chances: Table

    @property
    def probabilities(self) -> Floats:
        """The probabilities in double precision, shape (values, reports)."""
        return np.array([[float(chance) for chance in row] for row in self.chances])

    def expected(self, shares: Sequence[float] | Floats, n: float) -> Counts:
        """Return the expected counts of n reports of people whose values have these shares, rounded to whole numbers."""
        return self.counted(n * (np.asarray(shares) @ self.probabilities))

    def counted(self, numbers: Floats) -> Counts:
        """Return counts with these numbers of the reports, rounded to whole numbers."""
        return Counts.of(self.reports, pa.array(np.rint(numbers).astype(np.uint64)))

    def kinds(self) -> Table:
        """Return the probabilities of the kinds of reports: those with proportional probabilities reveal the same."""
        merged: dict[tuple[Fraction, ...], Sequence[Fraction]] = {}
        for column in zip(*self.chances, strict=True):
            if total := sum(column):
                direction = tuple(chance / total for chance in column)
                before = merged.get(direction, [Fraction(0)] * len(column))
                merged[direction] = [a + b for a, b in zip(before, column, strict=True)]
        return [list(row) for row in zip(*merged.values(), strict=True)]


def enumerated(mechanism: Mechanism) -> Enumeration:
    """Return every report of a mechanism, from the definition of the structure of its channel.

    Hash functions that are equal on all values count as one: a seed stands for all seeds with its function.

    Raises:
        InvalidParameter: if the reports cannot be listed, or values times reports are more than ``MOST_CELLS``.

    """
    certified = certify(mechanism)
    drawn, chances = _listed(certified.response)
    return Enumeration(certified.shown(drawn), chances)


def enumerable(mechanism: Mechanism) -> Enumeration | None:
    """Return `enumerated`, or None if the reports cannot be listed."""
    try:
        return enumerated(mechanism)
    except InvalidParameter:
        return None


@singledispatch
def _listed(channel: AnyChannel) -> tuple[Drawn, Table]:
    """Return every report in the channel's own terms, and the probabilities."""
    raise InvalidParameter(f"the reports of {type(channel).__name__} are not listed", "use a mechanism over few values")


def _check(values: int, reports: int) -> None:
    if values * reports > MOST_CELLS:
        raise InvalidParameter("there are too many reports to list", "use a mechanism over fewer values")


@_listed.register
def _(channel: TableChannel) -> tuple[Drawn, Table]:
    _check(channel.inputs, channel.outputs)
    rows = channel.weights().tolist()
    return np.arange(channel.outputs, dtype=np.int32), [[Fraction(weight, TOTAL) for weight in row] for row in rows]


@_listed.register
def _(channel: OrthogonalHash | Levels | KeepOrWindow) -> tuple[Drawn, Table]:
    _check(channel.inputs, channel.outputs)
    reports = range(channel.outputs)
    return np.arange(channel.outputs, dtype=np.int32), [
        [channel.probability(value, report) for report in reports] for value in range(channel.inputs)
    ]


@_listed.register
def _(channel: IndependentBits) -> tuple[Drawn, Table]:
    """Each bit is set independently: that of the value with probability hit, any other one with probability miss."""
    words, held = _sets(channel)

    def chance(bits: Iterable[bool], value: int) -> Fraction:
        each = ((channel.hit if at == value else channel.miss, bit) for at, bit in enumerate(bits))
        return prod((p if bit else 1 - p for p, bit in each), start=Fraction(1))

    return words, [[chance(bits, value) for bits in held] for value in range(channel.inputs)]


@_listed.register
def _(channel: Subsets | Hadamard) -> tuple[Drawn, Table]:
    """All sets with the value are equally likely, and so are all sets without it."""
    words, held = _sets(channel)
    table = []
    for value in range(channel.inputs):
        inside = sum(bits[value] for bits in held)
        own, others = channel.hit / inside, (1 - channel.hit) / (len(held) - inside)
        table.append([own if bits[value] else others for bits in held])
    return words, table


@_listed.register
def _(channel: SignedBits) -> tuple[Drawn, Table]:
    """Each key shows +, - or nothing independently: that of the symbol by weights of its own, all others by the same."""
    words, held = _sets(channel)

    def chance(bits: list[bool], symbol: int) -> Fraction:
        out = Fraction(1)
        for key in range(channel.keys):
            plus, minus = channel.miss, channel.miss
            if key == symbol // 2:
                plus, minus = (channel.hit, channel.crossed)[:: 1 if symbol % 2 == 0 else -1]
            out *= plus if bits[2 * key] else minus if bits[2 * key + 1] else 1 - plus - minus
        return out

    return words, [[chance(bits, symbol) for bits in held] for symbol in range(channel.inputs)]


@_listed.register
def _(channel: BinBits) -> tuple[Drawn, Table]:
    """Each key shows a number or nothing independently; one of those near the symbol's bin may replace that of its key."""
    words, held = _sets(channel)
    numbers = channel.numbers(np.array(held)).tolist()
    each = [Fraction(channel.spread, TOTAL)] * channel.places
    each.append(1 - sum(each, Fraction(0)))  # nothing
    near, mixed = Fraction(channel.near, TOTAL), Fraction(channel.mixed, TOTAL)

    def chance(shown: list[int], symbol: int) -> Fraction:
        key, first = divmod(symbol, channel.bins)
        own = mixed * each[shown[key]] + near * (first <= shown[key] < first + channel.width)
        return own * prod((each[number] for at, number in enumerate(shown) if at != key), start=Fraction(1))

    return words, [[chance(shown, symbol) for shown in numbers] for symbol in range(channel.inputs)]


def _sets(channel: SetChannel) -> tuple[Words64, list[list[bool]]]:
    """Return the words of all sets that can be reported, and which values each holds."""
    _check(channel.inputs, 1 << min(channel.inputs, 64))
    words = np.arange(1 << channel.inputs, dtype=np.uint64)[:, None]
    words = words[channel.possible(words)]
    return words, channel.supports(words).tolist()


@_listed.register
def _(channel: PrivateHash) -> tuple[Drawn, Table]:
    """All functions are equally likely, and the symbol of the value is reported with probability hit."""
    symbols, values = channel.response.size, channel.inputs
    functions = symbols**values
    _check(values, functions * symbols)
    seeds = np.arange(64 * functions, dtype=np.uint64)
    hashes = np.stack([_supported(channel, seeds, y) for y in range(symbols)]).argmax(axis=0)
    distinct, first = np.unique(hashes, axis=0, return_index=True)
    if len(distinct) < functions:
        raise InvalidParameter("there are too many functions to find a seed of each", "use a mechanism over fewer values")
    own, other = channel.hit / functions, (1 - channel.hit) / (symbols - 1) / functions
    drawn = np.stack([np.repeat(seeds[first], symbols), np.tile(np.arange(symbols, dtype=np.uint64), functions)], axis=1)
    return drawn, [
        [own if symbol == y else other for symbol in column for y in range(symbols)] for column in distinct.T.tolist()
    ]


def _supported(channel: PrivateHash, seeds: Words64, symbol: int) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Return which values hash to a symbol under each seed."""
    return channel.supports(np.stack([seeds, np.full_like(seeds, symbol)], axis=1))


@_listed.register
def _(channel: Rows) -> tuple[Drawn, Table]:
    """The reports of the columns are independent; or one column is reported, each with the same probability."""
    parts = [_listed(part) for part in channel.parts]
    columns = [(drawn if drawn.ndim > 1 else drawn[:, None]).astype(np.uint64) for drawn, _ in parts]
    rows = [*product(*(range(part.inputs) for part in channel.parts))]
    if isinstance(channel, OneOfRows):
        return _one_reported(columns), [
            [chance / len(parts) for (_, table), value in zip(parts, row, strict=True) for chance in table[value]]
            for row in rows
        ]
    _check(len(rows), prod(map(len, columns)))
    places = [*product(*(range(len(column)) for column in columns))]
    drawn = np.array([np.concatenate([c[at] for c, at in zip(columns, place, strict=True)]) for place in places])
    each = [
        [[table[value][at] for (_, table), value, at in zip(parts, row, place, strict=True)] for place in places]
        for row in rows
    ]
    return drawn, [[prod(chances, start=Fraction(1)) for chances in row] for row in each]


def _one_reported(columns: list[Words64]) -> Words64:
    """Return the reports of single columns: the number of the column, and the words of all, of which the others are 0."""
    width, blocks, start = sum(column.shape[1] for column in columns), [], 1
    for number, column in enumerate(columns):
        block = np.zeros((len(column), 1 + width), dtype=np.uint64)
        block[:, 0], block[:, start : start + column.shape[1]] = number, column
        start += column.shape[1]
        blocks.append(block)
    return np.concatenate(blocks)


# The checks of a channel: its rows sum to one, and draws follow it.

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


def check_mechanism(mechanism: Mechanism, draws: int = 200_000) -> None:
    """Check certificate, sampler, round trips and the SQL functions of one mechanism, registered by a plugin or not.

    Raises:
        AssertionError: naming the claim that does not hold.

    """
    try:
        certified = certify(mechanism)
    except NotPrivate as error:
        raise AssertionError(f"the channel does not keep its claim: {error}") from error
    check_rows(certified.channel)
    check_sampler(certified.channel, draws)
    _check_round_trips(mechanism)
    with _registered(type(mechanism)):
        _check_sql(certified)
    _check_monotone(mechanism)


@contextmanager
def _registered(mechanism: type[Mechanism]) -> Iterator[None]:
    """Register a class within a ``with`` block, unless its plugin did: SQL gets a constructor for each registered class."""
    name, registered, constructors = mechanism.name, registry().mechanisms, registry().constructors
    assert registered.get(name, mechanism) is mechanism, f"another plugin offers a mechanism named {name}"
    if name in registered:
        yield
        return
    registered[name], constructors[name] = mechanism, constructor(name, mechanism, trusted=False)
    try:
        yield
    finally:
        del registered[name], constructors[name]


def _check_round_trips(mechanism: Mechanism) -> None:
    """Check that text and JSON give the same mechanism back."""
    read = json.loads(json.dumps(mechanism.to_json()))
    arguments = {name: value for name, value in read.items() if name != mechanism.kind}
    assert type(mechanism)(**arguments) == mechanism, "JSON does not give the mechanism back"
    assert hash(type(mechanism)(**arguments)) == hash(mechanism), "equal mechanisms have different hashes"
    if registry().mechanisms.get(mechanism.name) is type(mechanism):
        assert registry().mechanism(str(mechanism)) == mechanism, "its text does not give the mechanism back"


@singledispatch
def _check_sql(certified: CertifiedMechanism) -> None:
    """Check that SQL perturbs and estimates the same as Python."""
    raise InternalError(f"{type(certified).__name__} is not registered here", "register it next to the other kinds")


@_check_sql.register
def _(certified: CertifiedValues | CertifiedRow) -> None:
    """Check that SQL perturbs every value, or every row, into the alphabet, and estimates the same as Python for each."""
    mechanism, values = certified.mechanism, certified.values
    if isinstance(values, Product):
        with connect() as con:
            con.execute(f"CREATE MACRO mechanism() AS {sql_call(mechanism, con)}")
            _check_shares(con, "mechanism()", mechanism, values.values)
        return
    listed = {"domain": values.values.to_pylist()} if "domain" in type(mechanism).model_fields else {}
    with _declared(mechanism, listed) as con:
        _check_shares(con, _DECLARED, mechanism, values.values)


@_check_sql.register
def _(certified: CertifiedPairs) -> None:
    """Check that SQL perturbs lists and maps of every type of key, and estimates the same as Python."""
    mechanism, keys = certified.mechanism, certified.values.keys.values
    assert isinstance(mechanism, KeyValueMechanism)
    with _declared(mechanism, {"keys": keys.to_pylist()}) as con:
        for pairs in (f"[{{'key': x, 'value': {mechanism.high}}}]", f"MAP {{x: {mechanism.low}}}"):
            drawn = _perturbed(con, _DECLARED, keys, pairs)
            rows = con.execute(f"SELECT unnest(ldp.key_value(r, {_DECLARED}), recursive := true) FROM reports").fetchall()  # noqa: S608  # ours
            expected = ldpsql.key_value(drawn, mechanism).to_arrow()
            assert [row[0] for row in rows] == keys.to_pylist(), "ldp.key_value does not return one row for each key"
            numbers = np.stack([column.to_numpy() for column in expected.columns[1:]], axis=1)
            computed = np.array([row[1:] for row in rows], dtype=np.float64)  # NULL becomes NaN
            assert np.allclose(computed, numbers, atol=1e-9, equal_nan=True), "SQL and Python do not estimate the same"


@_check_sql.register
def _(certified: CertifiedStrings) -> None:
    """Check that SQL perturbs strings, and finds the same frequent ones as Python."""
    mechanism, letters = certified.mechanism, [certified.channel.extreme(place) for place in (0, 1)]
    with _declared(mechanism, {}) as con:
        drawn = _perturbed(con, _DECLARED, pa.array([certified.values.text(one) for one in letters]))
        query = f"SELECT unnest(ldp.heavy_hitters(r, {_DECLARED}, certain := false), recursive := true) FROM reports"  # noqa: S608  # ours
        rows = con.execute(query).fetchall()
    assert rows == ldpsql.heavy_hitters(drawn, mechanism, certain=False).rows(), "SQL and Python do not find the same"


_DECLARED = "getvariable('m')"


@contextmanager
def _declared(mechanism: Mechanism, lists: Mapping[str, object]) -> Iterator[DuckDBPyConnection]:
    """Give a connection on which a constructor in SQL has made a mechanism `_DECLARED`, of named arguments and some lists."""
    arguments = {**mechanism.given(), **lists}
    named = ", ".join(f'"{name}" := ${name}' for name in arguments)
    with connect() as con:
        con.execute(f"SET VARIABLE m = ldp.{mechanism.name}({named})", arguments)
        yield con


def _perturbed(con: DuckDBPyConnection, mechanism: str, values: pa.Array, each: str = "x") -> pa.Array:
    """Perturb some thousand values, each as this expression over x, into the table ``reports``, and return that column."""
    people = pa.table({"x": values.take(pa.array(np.arange(max(4000, len(values))) % len(values)))})
    con.register("people", people)
    con.execute(f"CREATE OR REPLACE TABLE reports AS SELECT ldp.perturb({each}, {mechanism}) AS r FROM people")  # noqa: S608  # ours
    drawn = con.sql("SELECT r FROM reports").to_arrow_table()["r"].combine_chunks()
    assert len(drawn) == len(people), "SQL did not draw one report for each row"
    assert not drawn.null_count, "SQL drew NULL"
    return drawn


def _check_shares(con: DuckDBPyConnection, declared: str, mechanism: Mechanism, values: pa.Array) -> None:
    """Check that SQL perturbs values by a mechanism that it calls so, and estimates the same as Python."""
    drawn = _perturbed(con, declared, values)
    assert possible(mechanism, drawn).all(), "SQL drew a report outside the alphabet"
    query = f"SELECT unnest(ldp.ibu(r, {declared}, stop := 3, misfit := 'allow')) AS row FROM reports"  # noqa: S608  # ours
    rows = [row for (row,) in con.execute(query).fetchall()]
    assert [row["value"] for row in rows] == values.to_pylist(), "ldp.ibu does not return one row for each value"
    expected = estimate_column(drawn, mechanism, registry().estimator("ibu(stop=3, misfit='allow')")).estimate
    assert np.allclose([row["estimate"] for row in rows], expected, atol=1e-9), "SQL and Python do not estimate the same"


def _check_monotone(mechanism: Mechanism) -> None:
    """Check that twice the epsilon never realises less."""
    epsilon = getattr(mechanism, "epsilon", None)
    if isinstance(epsilon, Epsilon) and 2 * epsilon.value <= epsilon.maximum:
        larger = mechanism.changed(epsilon=str(Epsilon(2 * epsilon.value)))
        more, less = certify(larger).certificate, certify(mechanism).certificate
        assert more.epsilon >= less.epsilon - 1e-9, "a larger epsilon realises less"


# A few mechanisms of a class, if its author names none.

# Arguments for parameters with usual names: three mechanisms to try if the plugin's author names none.
_TRIALS: tuple[dict[str, object], ...] = (
    {
        "epsilon": "0.5",
        "domain": ["no", "yes"],
        "keys": ["book", "film"],
        "prior": [1, 2],
        "low": 0,
        "high": 6,
        "columns": 2,
        "rows": 2,
    },
    {
        "epsilon": "1",
        "domain": list(range(6)),
        "keys": [1, 2, 3],
        "prior": [1] * 6,
        "points": [[i % 3, i // 3] for i in range(6)],
        "low": -3,
        "high": 20,
        "columns": 3,
        "rows": 2,
    },
    {
        "epsilon": "4",
        "domain": [0.5, 1.5, 2.5, 3.5],
        "keys": list("abcde"),
        "prior": [1] * 4,
        "points": [[0], [1], [2], [4]],
        "low": 0,
        "high": 100,
        "columns": 2,
        "rows": 5,
    },
)
_ROWS: tuple[dict[str, str], ...] = (
    {"city": "krr(1, ['Lima', 'Oslo', 'Rome'])", "adult": "krr(0.5, [false, true])"},
    {"age": "square_wave(1, 0, 100, bins=4)", "a b": "olh(2, [1, 2, 3])"},
    {
        "x": "krr(1, ['it''s', '{\\\\}'])",
        "y": "oue(1, ['a', 'b', 'c'])",
        "z": "matrix([1, 2], [['0.7', '0.3'], ['0.3', '0.7']])",
    },
)
_TABLES: tuple[tuple[str, dict[str, list[object]]], ...] = (
    ("1", {"city": ["Lima", "Oslo", "Rome"], "adult": [False, True]}),
    ("2", {"x": ["it's", "{\\\\}"], "a b": [1, 2, 3], "z": [0.5, 1.5]}),
)
_ALWAYS: dict[str, object] = {
    "delta": "0.001",
    "beta": "1",
    "bins": 16,
    "permanent": "2",
    "once": "1",
    "protocol": "hadamard",
    "blocks": 2,
    "size": 4,
}


def examples(mechanism: type[Mechanism]) -> list[Mechanism]:
    """Return a few mechanisms of a class to check it with; none if its parameters have unusual names.

    A class may refuse some of them: one for two values refuses six.
    """
    if issubclass(mechanism, JointMechanism):
        return [mechanism(epsilon=epsilon, columns=columns) for epsilon, columns in _TABLES]
    if issubclass(mechanism, RowMechanism):
        return [mechanism(columns=columns) for columns in _ROWS]
    needed = {p.name for p in mechanism.parameters() if p.required}
    mechanisms: list[Mechanism] = []
    for trial in ({**_ALWAYS, **trial} for trial in _TRIALS):
        for wanted in (needed, needed | {"columns"}):  # metric mechanisms take a grid as an option
            if wanted <= trial.keys() and wanted <= mechanism.model_fields.keys():
                with suppress(UsageError):
                    one = mechanism(**{name: trial[name] for name in wanted})
                    one.channel()
                    mechanisms.append(one)
                    break
    return mechanisms


# A source of words that repeats itself.


def insecure_words_for_tests(seed: int) -> Words:
    """Return a source of words that repeats itself: for tests that need it, and for nothing else.

    Anyone who knows the seed can undo the noise. So it warns, and only samplers that are called directly accept it.
    """
    warnings.warn("a seeded source protects nobody: use it in tests only", PrivacyLeakWarning, stacklevel=2)
    blocks = count()

    def words(number: int) -> NDArray[np.uint64]:
        stream = hashlib.shake_256(f"{seed}/{next(blocks)}".encode())
        return np.frombuffer(stream.digest(8 * number), dtype=np.uint64)

    return words
