"""Frequent strings that nobody listed: `pem` and `heavy_hitters`."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from math import exp
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import ldpsql
from ldpsql import Epsilon, KeepOrSpread, certify, spark
from ldpsql.channels import Letters
from ldpsql.channels.randomness import Words
from ldpsql.errors import (
    ImpossibleReport,
    InvalidParameter,
    LdpError,
    MissingValue,
    NoReports,
    OutOfTime,
    OutsideDomain,
    WrongType,
)
from ldpsql.functions import registry
from ldpsql.mechanisms import TOTAL, UTF8, Prefixes, PureLdp, Strings, audit, exp_below
from ldpsql.strings import Transform, by_level, supporters
from ldpsql.testing import certificate, check_mechanism
from tests import seeds
from tests.commands import rows, run
from tests.seeds import generator

LETTERS = "pem(4, max_bytes=6, characters='abcdefghijklmnopqrstuvwxyz')"
WORDS = {"the": 0.4, "of": 0.2, "street": 0.15, "streak": 0.1, "a": 0.1, "": 0.05}
SEEDS = 1 << 32
RNG = generator(__name__)


def mechanism(text: str) -> ldpsql.Mechanism:
    return registry().mechanism(text)


SURE = 1 - 1e-7  # no string is returned by chance


def people(count: int) -> pa.Array:
    chosen = RNG.choice(len(WORDS), count, p=list(WORDS.values()))
    return pa.array(list(WORDS)).take(pa.array(chosen))


def small(symbols: int, length: int = 3, letters: int = 2, levels: int = 2) -> Prefixes:
    return Prefixes(length, letters, levels, KeepOrSpread.within(symbols, exp_below(Fraction(1))))


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with ldpsql.connect() as con:
        con.register("people", pa.table({"word": people(60_000), "region": np.arange(60_000) % 2}))
        con.execute(f"CREATE MACRO word() AS ldp.{LETTERS.replace('=', ':=')}")
        con.execute("CREATE TABLE reports AS SELECT region, ldp.perturb(word, word()) AS r FROM people")
        yield con


# Privacy


def all_letters(channel: Prefixes) -> list[Letters]:
    """Return the letters of all strings of a channel."""
    rows = np.array(list(np.ndindex(*[channel.letters + 1] * channel.length)), dtype=np.uint8)
    return [row for row in rows if not (np.diff((row > 0).astype(int)) > 0).any()]


@pytest.mark.parametrize("symbols", [2, 3, 5])
def test_the_realised_epsilon_is_the_largest_ratio_over_all_strings_in_whole_numbers(symbols: int) -> None:
    channel, largest = small(symbols), Fraction(0)
    strings = all_letters(channel)
    assert len(strings) == 1 + 2 + 4 + 8
    for level, seed, y in np.ndindex(channel.levels, 8, symbols):
        chances = [channel.probability(letters, level, seed, y) for letters in strings]
        largest = max(largest, max(chances) / min(chances))
    assert largest == channel.widest().ratio <= exp_below(Fraction(1))


def test_the_probabilities_of_all_reports_sum_to_one() -> None:
    channel = small(3)
    assert sum(channel.shares()) == 1
    for letters in all_letters(channel):
        each = [sum(channel.probability(letters, level, 5, y) for y in range(3)) for level in range(channel.levels)]
        assert each == [share / SEEDS for share in channel.shares()]


def sequence(*blocks: np.ndarray) -> Words:
    """Return a source that hands out these words, in order."""
    waiting = iter(blocks)
    return lambda count: np.resize(next(waiting), count).astype(np.uint64)


def ends_of_response(channel: Prefixes) -> list[int]:
    """Return the words at which the response to a hash changes: it moves on by word // spread symbols, at most size - 1."""
    return [part * channel.response.spread for part in range(channel.response.size)] + [TOTAL]


def test_the_sampler_itself_keeps_epsilon_by_an_independent_derivation() -> None:
    """Count the words of the sampler: the first decides level and seed alone, the second is cut into parts of the response."""
    channel = small(3, levels=3)
    strings, first = all_letters(channel), seeds.words(10)
    ends = ends_of_response(channel)
    for word in first:
        chances = np.zeros((len(strings), 3), dtype=object)
        for row, letters in enumerate(strings):
            for start, end in pairwise(ends):
                both = [
                    channel.draw(letters[None], sequence(np.array([word]), np.array([at], dtype=np.uint64)))[0]
                    for at in (start, end - 1)
                ]
                assert (both[0] == both[1]).all()
                assert both[0][0] == (int(word) % SEEDS) * channel.levels // SEEDS
                assert both[0][1] == int(word) // SEEDS
                chances[row, int(both[0][2])] += end - start
        assert all(sum(row) == TOTAL for row in chances)
        ratios = [Fraction(int(a), int(b)) for column in chances.T for a in column for b in column]
        assert max(ratios) <= exp_below(Fraction(1))


def test_level_and_seed_are_the_same_whatever_the_string() -> None:
    channel = small(5, length=6, letters=3, levels=4)
    word, response = seeds.words(500), seeds.words(500)
    strings = RNG.integers(0, 4, (20, channel.length)).astype(np.uint8)
    drawn = [channel.draw(np.tile(one, (500, 1)), sequence(word, response))[:, :2] for one in strings]
    assert all((other == drawn[0]).all() for other in drawn)


def test_levels_are_even_and_seeds_are_whole_random_bits() -> None:
    channel = small(3, length=7, levels=7)
    assert sum(channel.shares()) == 1
    assert max(channel.shares()) - min(channel.shares()) <= Fraction(1, SEEDS)
    word = seeds.words(100)
    drawn = channel.draw(np.zeros((100, 7), dtype=np.uint8), sequence(word, seeds.words(100)))
    assert (drawn[:, 1] == word >> np.uint64(32)).all()


def draws_with(channel: Prefixes, change: Any) -> Any:
    """Return a sampler that changes what it drew."""
    original = Prefixes.draw

    def draw(self: Prefixes, values: Letters, words: Words = seeds.words) -> np.ndarray:
        return np.asarray(change(self, values, original(self, values, words)))

    assert isinstance(channel, Prefixes)
    return draw


def level_by_value(channel: Prefixes, values: Letters, drawn: np.ndarray) -> np.ndarray:
    """Prefer the first level for strings that begin with a letter."""
    level = np.where((values[:, 0] > 0) & (drawn[:, 1] % 4 == 0), 0, drawn[:, 0]).astype(np.int64)
    y = channel.response.draw(channel.hashes(values, level, drawn[:, 1]))
    return np.stack([level, drawn[:, 1], y], axis=1).astype(np.uint64)


def uneven_seed(channel: Prefixes, values: Letters, drawn: np.ndarray) -> np.ndarray:
    seeds = drawn[:, 1] >> (drawn[:, 1] & np.uint64(1))
    y = channel.response.draw(channel.hashes(values, drawn[:, 0].astype(np.int64), seeds))
    return np.stack([drawn[:, 0], seeds, y], axis=1).astype(np.uint64)


def too_honest(channel: Prefixes, values: Letters, drawn: np.ndarray) -> np.ndarray:
    own = channel.hashes(values, drawn[:, 0].astype(np.int64), drawn[:, 1])
    return np.stack([drawn[:, 0], drawn[:, 1], np.where(drawn[:, 1] % 8 == 0, own, drawn[:, 2])], axis=1).astype(np.uint64)


@pytest.mark.parametrize("bug", [level_by_value, uneven_seed, too_honest], ids=lambda bug: bug.__name__)
def test_a_planted_bug_in_the_sampler_is_found(bug: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = mechanism(LETTERS)
    channel: Any = certify(made).channel
    assert audit.empirical(made, draws=50_000).passed
    monkeypatch.setattr(Prefixes, "draw", draws_with(channel, bug))
    assert not audit.empirical(made, draws=50_000).passed
    with pytest.raises(AssertionError, match="do not follow the channel"):
        check_mechanism(made, draws=50_000)


def test_a_channel_that_claims_less_than_it_realises_is_refused() -> None:
    with pytest.raises(ldpsql.NotPrivate):
        certificate(small(3), PureLdp(Epsilon(Fraction(99, 100))))


def test_no_message_or_traceback_holds_a_raw_value(con: duckdb.DuckDBPyConnection) -> None:
    for raw in ("SECRETWORD", "secretwordthatistoolong"):
        with pytest.raises(duckdb.Error) as caught:
            con.execute("SELECT ldp.perturb(?, word())", [raw]).fetchall()
        assert raw not in str(caught.value)
        with pytest.raises(OutsideDomain) as refused:
            ldpsql.perturb([raw], LETTERS)
        frames, at = [], refused.value.__traceback__
        while at:
            frames += [str(at.tb_frame.f_locals)] * (at.tb_frame.f_code.co_filename != __file__)
            at = at.tb_next
        assert raw not in str(refused.value)
        assert not any(raw in frame for frame in frames)


# The domain


def test_a_string_that_does_not_fit_is_refused_unless_a_value_stands_for_it() -> None:
    for bad in ("abcdefg", "ABC", "a b", "naïve"):
        with pytest.raises(OutsideDomain):
            ldpsql.perturb(["fine", bad], LETTERS)
    with pytest.raises(MissingValue):
        ldpsql.perturb(["fine", None], LETTERS)
    replaced: Any = certify(mechanism("pem(4, 6, 'abc', outside='as:a', nulls='as:cab')"))
    assert replaced.outside_letters is not None
    assert replaced.outside_letters.tolist() == [1, 0, 0, 0, 0, 0]
    assert len(replaced.perturb(pa.array(["abc", "zebra", None]))) == 3
    with pytest.raises(InvalidParameter):
        certify(mechanism("pem(4, 6, 'abc', outside='as:zebra')"))


@pytest.mark.parametrize("bad", [[1, 2], [b"raw"], [True], [["a"]]], ids=str)
def test_anything_but_text_is_refused(bad: list[Any]) -> None:
    with pytest.raises(WrongType):
        ldpsql.perturb(pa.array(bad), LETTERS)


@pytest.mark.parametrize(
    "bad",
    [
        "pem(1, max_bytes=0)",
        "pem(1, max_bytes=256)",
        "pem(1, characters='')",
        "pem(4, 12, 'abc', levels=13)",
        "pem(4, 12, levels=1)",
    ],
)
def test_parameters_that_cannot_work_are_refused(bad: str) -> None:
    with pytest.raises(LdpError) as caught:
        certify(mechanism(bad))
    assert caught.value.code == "LDP103"


def test_text_of_every_arrow_type_has_the_same_letters() -> None:
    texts, strings = ["", "zürs", "日本", None, "a\0b"], Strings(6, UTF8)
    plain = pa.array(texts)
    expected = strings.codes(plain, null=np.zeros(6, dtype=np.uint8))
    for column in (
        plain.cast(pa.large_string()),
        plain.dictionary_encode(),
        plain.cast(pa.string_view()),
        pa.chunked_array([plain]),
    ):
        assert (strings.codes(column, null=np.zeros(6, dtype=np.uint8)) == expected).all()
    sliced = pa.concat_arrays([pa.array(["xx", None]), plain]).slice(2)
    assert (strings.codes(sliced, null=np.zeros(6, dtype=np.uint8)) == expected).all()
    assert [strings.text(row) for row in expected] == ["", "zürs", "日本", "", "a\0b"]
    assert strings.codes(pa.nulls(2), null=expected[2]).tolist() == [expected[2].tolist()] * 2


# Counting and the search


@pytest.mark.parametrize(("symbols", "length", "letters", "levels"), [(7, 5, 3, 2), (2, 4, 2, 2), (3, 4, 3, 4), (53, 4, 3, 1)])
def test_the_transform_counts_what_the_hash_says(symbols: int, length: int, letters: int, levels: int) -> None:
    channel = small(symbols, length, letters, levels)
    rng = RNG
    drawn = channel.draw(rng.integers(0, letters + 1, (800, length)).astype(np.uint8))
    often = rng.integers(1, 4, 800).astype(float)
    parts = by_level(drawn, often, levels)
    prefixes = rng.integers(0, letters + 1, (2, length)).astype(np.uint8)
    for level in range(levels):
        start, end = (channel.ends[level - 1] if level else 0), channel.ends[level]
        for prefix, counts in zip(prefixes, supporters(channel, prefixes, level, parts[level:]), strict=True):
            for number in rng.integers(0, (letters + 1) ** (end - start), 20):
                extended = prefix.copy()
                extended[start:] = 0
                places = (letters + 1) ** np.arange(end - start - 1, -1, -1)
                extended[start:end] = number // places % (letters + 1)
                expected = sum(
                    part.numbers[
                        channel.hashes(np.tile(extended, (len(part.seeds), 1)), np.full(len(part.seeds), level), part.seeds)
                        == part.symbols
                    ].sum()
                    for part in parts[level:]
                )
                assert counts[number] == pytest.approx(expected, abs=1e-2)


def test_all_frequent_strings_are_found_with_intervals_that_hold_their_shares() -> None:
    rows = ldpsql.heavy_hitters(ldpsql.perturb(people(60_000), LETTERS), LETTERS, confidence=SURE)
    assert set(rows["value"]) == set(WORDS)
    assert rows["estimate"].is_sorted(descending=True)
    for row in rows.iter_rows(named=True):
        assert abs(row["estimate"] - WORDS[row["value"]]) < 6 * row["std_error"]
        assert row["low"] < row["estimate"] < row["high"]
        assert row["level"] == (1 if len(row["value"]) < 3 else 2)
        assert row["reports"] == 60_000 if row["level"] == 1 else row["reports"] < 60_000


def test_the_standard_errors_are_those_of_repeated_collections() -> None:
    """The mean of 300 squared scores of a normal variable is within .5 of 1, but for one run in a million."""
    column, scores = pa.array(["ab"] * 300 + ["c"] * 700), []
    made = mechanism("pem(2, 2, 'abc', levels=2)")
    for _ in range(150):
        rows = ldpsql.heavy_hitters(ldpsql.perturb(column, made), made, certain=False)
        scores += [
            (row["estimate"] - {"ab": 0.3, "c": 0.7}[row["value"]]) / row["std_error"]
            for row in rows.iter_rows(named=True)
            if row["value"] in ("ab", "c")
        ]
    assert len(scores) == 300
    assert 0.5 < np.mean(np.square(scores)) < 1.5


def test_a_string_that_nobody_has_is_certain_in_at_most_one_run_of_twenty() -> None:
    """Of 100 runs with confidence .9 at most 27 may have one (binomial, 1e-6)."""
    made, wrong = mechanism("pem(1, 3, 'abcd', levels=2)"), 0
    for _ in range(100):
        reports = ldpsql.perturb(pa.array(["ab"] * 150 + ["dcb"] * 150), made)
        rows = ldpsql.heavy_hitters(reports, made, confidence=0.9)
        wrong += not set(rows["value"]) <= {"ab", "dcb"}
    assert wrong <= 27


def test_all_intervals_of_a_group_hold_together() -> None:
    """Among up to 200 candidates of each of 60 runs with confidence .9, of which at most 20 may fail (binomial, 1e-6)."""
    made, failed = mechanism("pem(1, 3, 'abcd', levels=2)"), 0
    truth = {"ab": 0.5, "dcb": 0.3, "": 0.2}
    column = pa.array(["ab", "dcb", ""]).take(pa.array(np.repeat([0, 1, 2], [250, 150, 100])))
    for _ in range(60):
        rows = ldpsql.heavy_hitters(ldpsql.perturb(column, made), made, 200, certain=False, confidence=0.9)
        share = np.array([truth.get(value, 0.0) for value in rows["value"]])
        failed += not ((rows["low"].to_numpy() <= share) & (share <= rows["high"].to_numpy())).all()
    assert failed <= 20


def test_multibyte_text_is_found_and_what_is_not_text_is_not() -> None:
    made = mechanism("pem(6, max_bytes=6)")
    column = pa.array(["日本", "zü", "é"] * 10_000)
    rows = ldpsql.heavy_hitters(ldpsql.perturb(column, made), made, confidence=SURE)
    assert set(rows["value"]) == {"日本", "zü", "é"}


def test_noise_alone_gives_no_row(con: duckdb.DuckDBPyConnection) -> None:
    reports = certify(mechanism(LETTERS)).reports
    drawn = np.stack([seeds.words(3000) % 2, seeds.words(3000) % SEEDS, seeds.words(3000) % reports.symbols], axis=1)  # type: ignore[union-attr]
    rows = ldpsql.heavy_hitters(reports.to_arrow(drawn), LETTERS, confidence=SURE)
    assert len(rows) == 0
    assert rows.columns == ["value", "estimate", "std_error", "low", "high", "level", "reports"]


# SQL and the other doors


def test_sql_groups_keeps_and_counts_give_what_python_gives(con: duckdb.DuckDBPyConnection) -> None:
    drawn = con.sql("SELECT * FROM reports").to_arrow_table()
    both = con.sql("SELECT region, ldp.heavy_hitters(r, word(), 4) FROM reports GROUP BY region ORDER BY region").fetchall()
    for region, found in both:
        own = drawn.filter(pa.compute.equal(drawn["region"], region))["r"]
        assert found == ldpsql.heavy_hitters(own, LETTERS, 4).to_dicts()
        kept = con.sql(f"SELECT ldp.heavy_hitters(r, word(), 4, keep := region = {region}) FROM reports").fetchall()
        assert kept == [(found,)]
    parts = "(SELECT ldp.counts(r) AS c FROM reports GROUP BY region)"
    counted = f"SELECT ldp.heavy_hitters(c, word(), 4) FROM (SELECT ldp.counts(c) AS c FROM {parts})"
    assert con.sql(counted).fetchall() == con.sql("SELECT ldp.heavy_hitters(r, word(), 4) FROM reports").fetchall()


def test_groups_without_reports_are_null_and_null_reports_are_left_out(con: duckdb.DuckDBPyConnection) -> None:
    assert con.sql("SELECT ldp.heavy_hitters(r, word()) FROM reports WHERE false").fetchall() == [(None,)]
    assert con.sql("SELECT ldp.heavy_hitters(NULL::STRUCT(level UTINYINT, seed UINTEGER, y USMALLINT), word())").fetchall() == [
        (None,)
    ]
    some = "(SELECT r FROM reports UNION ALL SELECT NULL FROM range(100))"
    rows = con.sql(f"SELECT unnest(ldp.heavy_hitters(r, word(), 1), recursive := true) FROM {some}").fetchall()
    assert rows == con.sql("SELECT unnest(ldp.heavy_hitters(r, word(), 1), recursive := true) FROM reports").fetchall()
    one = con.sql("SELECT ldp.heavy_hitters(r, word()) FROM (FROM reports LIMIT 1)").fetchall()
    assert one == [([],)]


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("ldp.heavy_hitters(r.y, word())", "LDP401"),
        ("ldp.heavy_hitters({'level': 9, 'seed': 1, 'y': 1}, word())", "LDP401"),
        ("ldp.heavy_hitters({'level': 0, 'seed': 1, 'y': 4000}, word())", "LDP401"),
        ("ldp.heavy_hitters('raw', word())", "LDP401"),
        ("ldp.heavy_hitters(r, word(), 0)", "LDP103"),
        ("ldp.heavy_hitters(r, word(), confidence := 2)", "LDP103"),
        ("ldp.heavy_hitters(r, word(), deadline := 1e-9)", "LDP407"),
        ("ldp.heavy_hitters(r, ldp.krr(1, ['a', 'b']))", "LDP103"),
        ("ldp.ibu(r, word())", "LDP103"),
    ],
)
def test_what_cannot_be_searched_is_refused_with_a_code(con: duckdb.DuckDBPyConnection, call: str, code: str) -> None:
    with pytest.raises(duckdb.Error) as caught:
        con.sql(f"SELECT {call} FROM reports").fetchall()
    assert f"[{code}]" in str(caught.value), str(caught.value)


def test_python_refuses_in_the_same_words() -> None:
    with pytest.raises(NoReports):
        ldpsql.heavy_hitters(pa.array([], certify(mechanism(LETTERS)).reports.type), LETTERS)
    with pytest.raises(ImpossibleReport):
        ldpsql.heavy_hitters(["raw"], LETTERS)
    with pytest.raises(InvalidParameter, match="heavy_hitters"):
        ldpsql.estimate(ldpsql.perturb(["of"], LETTERS), LETTERS)
    with pytest.raises(OutOfTime, match="search"):
        ldpsql.heavy_hitters(ldpsql.perturb(people(100), LETTERS), LETTERS, deadline=1e-9)


def test_bulk_polars_and_counts_perturb_and_find_like_sql(con: duckdb.DuckDBPyConnection, tmp_path: Any) -> None:
    column = people(20_000)
    frame = pl.DataFrame({"word": column})
    target = tmp_path / "reports.parquet"
    ldpsql.perturb_copy(con, frame, target, {"word": LETTERS})
    ldpsql.perturb_table(con, frame, "kept", {"word": LETTERS})
    drawn = [
        pl.read_parquet(target)["word"],
        con.sql("SELECT word FROM kept").to_arrow_table()["word"],
        frame.lazy().select(pl.col("word").ldp.perturb(LETTERS)).collect()["word"],  # type: ignore[attr-defined]
        frame.ldp.perturb({"word": LETTERS})["word"],  # type: ignore[attr-defined]
        ldpsql.partial_counts(pl.read_parquet(target), "word"),
    ]
    for reports in drawn:
        assert set(ldpsql.heavy_hitters(reports, LETTERS, confidence=SURE)["value"]) == set(WORDS)


def test_reports_in_the_types_of_spark_are_read_too() -> None:
    reports = ldpsql.perturb(people(20_000), LETTERS)
    signed = reports.cast(spark._type(certify(mechanism(LETTERS))))
    assert not any(pa.types.is_unsigned_integer(field.type) for field in signed.type)
    assert ldpsql.heavy_hitters(signed, LETTERS).equals(ldpsql.heavy_hitters(reports, LETTERS))


def test_the_planned_error_is_that_of_the_last_level() -> None:
    made = mechanism(LETTERS)
    channel: Any = certify(made).channel
    reports = ldpsql.perturb(pa.array(["street"] * 5_000 + ["streak"] * 95_000), made)
    row = ldpsql.heavy_hitters(reports, made).row(1, named=True)
    assert row["value"] == "street"
    expected = rows("plan", "-n", "100000", "-m", LETTERS, "--epsilon", "4")[0]["std_error"]
    assert expected == pytest.approx(row["std_error"], rel=0.5)
    g, grown = channel.response.size, exp(4) - 1
    assert expected == pytest.approx(np.sqrt(2 / 1e5 * (grown + g) ** 2 / (g - 1)) / grown, rel=1e-6)


def test_fewest_levels_are_chosen_and_more_make_errors_larger() -> None:
    each = [f"pem(4, 12, 'abc', levels={levels})" for levels in (2, 3, 6, 12)]
    errors = [rows("plan", "-n", "1000", "-m", text, "--epsilon", "4")[0]["std_error"] for text in each]
    assert errors == sorted(errors)
    made: Any = certify(mechanism("pem(4, 12, 'abc')"))
    assert made.channel.levels == 2


def test_equal_reports_count_as_often_as_they_occur() -> None:
    reports = ldpsql.perturb(people(5_000), LETTERS)
    twice = pa.concat_arrays([reports, reports])
    counts = ldpsql.partial_counts(pa.table({"r": twice}), "r")
    assert len(counts.reports) < len(twice)
    assert ldpsql.heavy_hitters(counts, LETTERS).equals(ldpsql.heavy_hitters(twice, LETTERS))


def test_the_command_line_finds_strings_by_group(tmp_path: Path) -> None:
    people, reports = tmp_path / "people.csv", tmp_path / "reports.parquet"
    people.write_text("word,region\n" + "apple,north\npear,south\n" * 300, "utf-8")
    run("perturb", str(people), str(reports), "--column", "word", "--keep", "region", "-m", LETTERS.replace("pem(4", "pem(20"))
    table = run("ask", "heavy_hitters", str(reports), "word", "--by", "region", "--top", "1", "--format", "csv").stdout
    rows = [line.split(",")[:2] for line in table.splitlines()]
    assert rows == [["region", "value"], ["north", "apple"], ["south", "pear"]]
    refused = run("ask", "heavy_hitters", str(people), "word", "--mechanism", "krr(1, ['apple', 'pear'])")
    assert refused.returncode == 2
    assert "LDP103" in refused.stderr


@pytest.mark.parametrize(("p", "m", "first"), [(2, 1, 2), (7, 1, 5), (2, 3, 7), (5, 2, 8), (3, 4, 40), (7, 3, 343)])
def test_the_transform_counts_the_reports_that_support_each_of_the_first_vectors(p: int, m: int, first: int) -> None:
    transform = Transform.of(p, m, first)
    vectors = np.arange(p**m)[:, None] // p ** np.arange(m - 1, -1, -1) % p
    reports = RNG.integers(0, p, (200, m + 1))  # a vector and a symbol each
    place = reports[:, :m] @ p ** np.arange(m - 1, -1, -1)
    cells = transform.lines[place] * p + reports[:, m] * transform.scale[place] % p
    counted = np.bincount(cells, minlength=transform.cells).astype(np.float64)
    supported = (vectors[:first] @ reports[:, :m].T - reports[:, m]) % p == 0
    assert transform.supporters(counted) == pytest.approx(supported.sum(axis=1), abs=1e-9)
