"""LOLOHA: a person keeps a seed and a response; reports follow the certified channel, and cost at most one epsilon a symbol."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import exp, prod, sqrt
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection
from scipy import stats

import ldpsql
from ldpsql import KeepOrSpread, Key, certify
from ldpsql.errors import InvalidParameter
from ldpsql.functions import registry
from ldpsql.ledger import Ledger, Policy
from ldpsql.ledger.people import id_bytes
from ldpsql.mechanisms import TOTAL, RepeatedHash, exp_below
from ldpsql.mechanisms.base import CertifiedValues
from tests import seeds

FALSE_ALARM = 1e-9
TEXT = "loloha(permanent=2, once=1, domain=['a', 'b', 'c', 'd', 'e'])"
EPSILONS = [(p, o) for p in ("0.5", "1", "2", "4", "8") for o in ("0.1", "0.4", "0.9", "3.5") if float(o) < float(p)]


def channel_of(permanent: str, once: str, symbols: int | None = None) -> RepeatedHash:
    named = "" if symbols is None else f", symbols={symbols}"
    channel = registry().mechanism(f"loloha(permanent={permanent}, once={once}, domain=[1, 2, 3]{named})").channel()
    assert isinstance(channel, RepeatedHash)
    return channel


@pytest.mark.parametrize(("permanent", "once"), EPSILONS)
def test_both_responses_keep_their_epsilon_and_use_it_up(permanent: str, once: str) -> None:
    for symbols in (None, 2, 7):
        channel = channel_of(permanent, once, symbols)
        below = exp_below(Fraction(once))
        assert below * (1 - Fraction(1, 2**40)) < channel.ratio <= below
        first = Fraction(channel.response.keep, channel.response.spread)
        assert first <= exp_below(Fraction(permanent))


def test_one_report_is_exactly_the_product_of_the_two_responses() -> None:
    channel = channel_of("2", "1", 4)
    first, again = (
        [[r.keep if i == j else r.spread for j in range(4)] for i in range(4)] for r in (channel.response, channel.again)
    )
    both = [[sum(first[x][k] * again[k][y] for k in range(4)) for y in range(4)] for x in range(4)]
    assert all(sum(row) == TOTAL**2 for row in both)
    assert {both[x][x] for x in range(4)} == {channel.hit * TOTAL**2}
    assert {both[x][y] for x, y in product(range(4), repeat=2) if x != y} == {channel.hit * TOTAL**2 / channel.ratio}


def variance(hit: float, miss: float) -> float:
    """Return the variance of a share near 0 that is estimated from one report."""
    return miss * (1 - miss) / (hit - miss) ** 2


def published(permanent: float, once: float) -> float:
    """Return the variance of the authors' counters: the number of symbols and the second epsilon of their formulas."""
    a, b = exp(permanent), exp(once)
    root = sqrt(a**4 - 14 * a**2 + 12 * a * b * (1 - a * b) + 12 * a**3 * b + 1)
    g = 1 + max(1, round((1 - a**2 + root) / (6 * (a - b))))
    r = (a * b - 1) / (a - b)
    p1, p2 = a / (a + g - 1), r / (r + g - 1)
    q1, q2 = (1 - p1) / (g - 1), (1 - p2) / (g - 1)
    return variance(p1 * p2 + (g - 1) * q1 * q2, 1 / g)


@pytest.mark.parametrize(("permanent", "once"), EPSILONS)
def test_the_error_is_not_above_that_of_the_authors_counters(permanent: str, once: str) -> None:
    channel = channel_of(permanent, once)
    ratio = variance(float(channel.hit), float(channel.miss)) / published(float(permanent), float(once))
    assert ratio <= 1.03  # it is between 0.80 and 1


@pytest.fixture
def key(tmp_path: Path) -> Key:
    Key.create(tmp_path / "key")
    return Key.read(tmp_path / "key")


def certified() -> CertifiedValues:
    one = certify(registry().mechanism(TEXT))
    assert isinstance(one, CertifiedValues)
    return one


def reports(key: Key, value: str, people: int, name: str = "") -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
    return key.draw(certified(), pa.array([value] * people), id_bytes(range(people)), name)


def test_a_person_keeps_the_seed_for_all_values_and_reports_anew(key: Key) -> None:
    first, again, other = (reports(key, value, 2000) for value in ("a", "a", "b"))
    assert (first[:, 0] == again[:, 0]).all()
    assert (first[:, 0] == other[:, 0]).all()
    assert len(set(first[:, 0].tolist())) == 2000
    assert (reports(key, "a", 2000, "home")[:, 0] != first[:, 0]).all()
    assert 0 < (first[:, 1] == again[:, 1]).sum() < 2000  # each comes by chance less than once in 2 ** 1000


def test_permanent_reports_follow_the_channel_of_one_report(key: Key) -> None:
    channel, people = certified().channel, 20_000
    assert isinstance(channel, RepeatedHash)
    held = channel.supports(reports(key, "b", people)).sum(axis=0)
    for value, supported in enumerate(held.tolist()):
        chance = float(channel.hit if value == 1 else channel.miss)
        low, high = stats.binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], people, chance)
        assert low <= supported <= high


def test_the_response_that_is_kept_is_that_of_the_hash(key: Key) -> None:
    """Reports of many days scatter around one kept symbol a person: its share is that of the first response."""
    channel, people, days = certified().channel, 300, 200
    assert isinstance(channel, RepeatedHash)
    drawn = [reports(key, "b", people) for _ in range(days)]
    ys = np.stack([day[:, 1].astype(np.int64) for day in drawn])
    counts = np.stack([(ys == y).sum(axis=0) for y in range(channel.response.size)])
    kept = counts.argmax(axis=0)  # .62 against .13 on 200 days: any maximum is wrong with a chance below 1e-12
    true = [
        channel.supports(np.array([[seed, y]], dtype=np.uint64))[0, 1] for seed, y in zip(drawn[0][:, 0], kept, strict=True)
    ]
    chance = channel.response.keep / TOTAL
    low, high = stats.binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], people, chance)
    assert low <= sum(true) <= high


def test_estimates_in_sql_follow_the_shares(con: DuckDBPyConnection) -> None:
    con.execute("CREATE MACRO m() AS ldp.loloha(4, 3, ['a', 'b', 'c'])")
    con.execute(
        "CREATE TABLE r AS SELECT ldp.perturb(CASE WHEN i % 4 = 0 THEN 'b' ELSE 'a' END, m()) AS x FROM range(20_000) t(i)"
    )
    for estimator in ("inv", "ibu"):
        rows = con.sql(f"FROM ldp.estimate(r, x, m(), estimator := '{estimator}')").fetchall()
        for (value, share, *_), true in zip(rows, (0.75, 0.25, 0.0), strict=True):
            assert abs(share - true) < 0.08, value  # 10 standard errors of .0075


def test_sql_gives_permanent_reports(key: Key) -> None:
    with ldpsql.connect(key=key) as con:
        sql = f"SELECT ldp.perturb_once('a', ldp.{TEXT.replace('=', ' := ')}, i) FROM range(500) t(i) ORDER BY i"
        one, two = (con.sql(sql).fetchall() for _ in range(2))
        assert [row[0]["seed"] for row in one] == [row[0]["seed"] for row in two]
        assert one != two


def test_one_report_must_be_weaker_than_the_permanent_response() -> None:
    for once in ("2", "3"):
        with pytest.raises(InvalidParameter, match="once must be smaller than permanent"):
            registry().mechanism(f"loloha(permanent=2, once={once}, domain=[1, 2])")
    with pytest.raises(InvalidParameter, match="must be smaller than the permanent one"):
        RepeatedHash.within(3, KeepOrSpread.within(2, Fraction(2)), Fraction(2))
    with pytest.raises(InvalidParameter, match="over the same symbols"):
        RepeatedHash(3, KeepOrSpread.within(2, Fraction(3)), KeepOrSpread.within(3, Fraction(2)))


def matrix(response: KeepOrSpread) -> list[list[Fraction]]:
    size = response.size
    return [[response.probability(value, report) for report in range(size)] for value in range(size)]


def chance(channel: RepeatedHash, symbols: tuple[int, ...], ys: tuple[int, ...]) -> Fraction:
    """Return the chance of reports of a person whose values have these symbols, one a day: each symbol keeps one response."""
    first, again = matrix(channel.response), matrix(channel.again)
    out = Fraction(1)
    for symbol in set(symbols):
        days = [y for own, y in zip(symbols, ys, strict=True) if own == symbol]
        out *= sum(
            (first[symbol][kept] * prod(again[kept][y] for y in days) for kept in range(channel.response.size)), Fraction(0)
        )
    return out


def largest(channel: RepeatedHash, one: tuple[int, ...], other: tuple[int, ...]) -> Fraction:
    """Return the largest ratio of the chances of two histories."""
    possible = product(range(channel.response.size), repeat=len(one))
    return max(chance(channel, one, ys) / chance(channel, other, ys) for ys in possible)


def test_each_symbol_of_a_history_costs_the_permanent_epsilon_if_symbols_change_on_the_same_days() -> None:
    """Where they change on other days, reports show that: then no bound by symbols holds, as the page of threats says."""
    channel = channel_of("1", "0.9", 3)
    a = Fraction(channel.response.keep, channel.response.spread)
    assert largest(channel, (0, 0, 0), (1, 1, 1)) <= a
    assert a < largest(channel, (0, 0, 1), (1, 1, 2)) <= a**2
    steady = RepeatedHash(3, channel.response, KeepOrSpread.within(3, Fraction(10**6)))  # as after reports of many days
    assert largest(steady, (0, 0, 0), (1, 1, 1)) <= a
    assert largest(steady, (0, 0), (1, 2)) > a**2


def test_reports_of_one_response_reveal_more_than_as_many_reports_that_share_none() -> None:
    """This is why a release in SQL, which pays for each report, does not pay for them."""
    channel = channel_of("1", "0.2", 8)
    assert largest(channel, (0, 0), (1, 1)) > channel.ratio**2


def test_a_release_in_sql_does_not_pay_for_permanent_reports_of_loloha(key: Key, tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", Policy(epsilon_budget=9))
    with ldpsql.connect(ledger=ledger.path, key=key) as con:
        con.execute(f"CREATE MACRO m() AS ldp.{TEXT.replace('=', ' := ')}; CREATE TABLE people AS SELECT 'a' AS x, 7 AS id")
        refusal = pytest.raises(duckdb.InvalidInputException, match=r"LDP320.*in Python: ldpsql\.perturb_once")
        with ldpsql.release(con, "people", {"x": "m()"}, "reports"), refusal:
            con.execute("SELECT ldp.perturb_once(x, m(), id) FROM people")
        with ldpsql.release(con, "people", {"x": "m()"}, "others"):
            con.execute("SELECT ldp.perturb(x, m()) FROM people")


def test_a_seed_is_a_whole_random_word() -> None:
    channel = certified().channel
    assert isinstance(channel, RepeatedHash)
    words = seeds.words(1000)
    calls = iter([words])
    drawn = channel.draw(np.zeros(1000, dtype=np.int32), lambda count: next(calls, np.zeros(count, dtype=np.uint64)))
    assert (drawn[:, 0] == words).all()
