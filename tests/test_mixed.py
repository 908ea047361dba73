"""Reports of several mechanisms, and several reports of one user, give the estimate of their joint likelihood."""

from __future__ import annotations

from datetime import date, datetime
from itertools import product
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection
from numpy.typing import NDArray
from scipy.stats import chi2

import ldpsql
from ldpsql import Domain, Likelihood, certify
from ldpsql.estimates.estimate import estimated
from ldpsql.functions import registry
from ldpsql.inference.operators import ProductOperator
from ldpsql.questions import Estimates, GroupedCounts, Mean, Mixed, Perturbed, Repeated
from ldpsql.testing import DenseOperator, operator_of
from tests import seeds

RNG = seeds.generator(__name__)  # data for the tests; no claim depends on a seed
CITIES = ["Lima", "Oslo", "Rome", "Kyiv"]
TRUTH = np.array([1, 1, 1, 4]) / 7  # of i % 7, the last city from 3 on
LEVELS = "MAP {'low': ldp.krr(0.5, cities()), 'high': ldp.krr(3, cities())}"
FAMILIES = """{'krr': ldp.krr(1, cells()), 'oue': ldp.oue(1, cells()), 'seeds': ldp.olh(1, cells(), seeds := 'private'),
               'olh': ldp.olh(1, cells()), 'geometric': ldp.truncated_geometric(0.3, 0, 19)}"""


@pytest.fixture
def mixed(con: DuckDBPyConnection) -> DuckDBPyConnection:
    """People with a level each, and their reports."""
    con.execute("CREATE MACRO cities() AS ['Lima', 'Oslo', 'Rome', 'Kyiv']")
    con.execute("CREATE MACRO cells() AS range(20)")
    con.execute(f"CREATE MACRO levels() AS {LEVELS}")
    con.execute(
        """CREATE TABLE r AS SELECT i % 2 AS g, level, ldp.perturb(cities()[1 + least(3, i % 7)], levels(), level) AS x
           FROM (SELECT i, ['low', 'high'][1 + i // 14 % 2] AS level FROM range(28000) t(i))"""
    )
    return con


def one(con: DuckDBPyConnection, sql: str) -> Any:
    row = con.execute(sql).fetchone()
    assert row is not None
    return row[0]


def error_of(con: DuckDBPyConnection, sql: str) -> str:
    with pytest.raises(duckdb.Error) as caught:
        con.execute(sql).fetchall()
    return str(caught.value)


def test_levels_that_depend_on_the_values_are_named_as_a_cause(mixed: DuckDBPyConnection) -> None:
    mixed.execute(
        """CREATE TABLE chosen AS SELECT level, ldp.perturb(city, levels(), level) AS x
           FROM (SELECT cities()[1 + i % 2] AS city, ['high', 'low'][1 + i % 2] AS level FROM range(20000) t(i))"""
    )
    assert "do the levels depend on the values?" in error_of(
        mixed, "SELECT ldp.ibu({level: level, report: x}, levels()) FROM chosen"
    )


# --- stacks ---


# --- one mechanism for each level, in SQL ---


def test_levels_of_epsilon_are_estimated_together_and_better_than_alone(mixed: DuckDBPyConnection) -> None:
    both = one(mixed, "SELECT ldp.ibu({level: level, report: x}, levels()) FROM r")
    assert [share["value"] for share in both] == CITIES
    for share, truth in zip(both, TRUTH, strict=True):
        assert abs(share["estimate"] - truth) < 6 * share["std_error"]  # four normal estimates: false alarm 8e-9
    for level, epsilon in (("low", 0.5), ("high", 3)):
        alone = one(mixed, f"SELECT ldp.ibu(x, ldp.krr({epsilon}, cities())) FROM r WHERE level = '{level}'")
        assert all(a["std_error"] > b["std_error"] for a, b in zip(alone, both, strict=True))
        assert one(mixed, f"SELECT ldp.ibu({{level: level, report: x}}, levels()) FROM r WHERE level = '{level}'") == alone


@pytest.mark.parametrize("name", ["ibu", "inv", "best", "uniform"])  # one of each base
def test_every_kind_of_estimator_takes_levels(mixed: DuckDBPyConnection, name: str) -> None:
    grouped = mixed.execute(f"SELECT g, ldp.{name}({{level: level, report: x}}, levels()) FROM r GROUP BY g ORDER BY g")
    for g, shares in grouped.fetchall():
        assert one(mixed, f"SELECT ldp.{name}({{level: level, report: x}}, levels(), keep := g = {g}) FROM r") == shares
        assert sum(share["estimate"] for share in shares) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("name", ["ibu", "inv", "best", "uniform"])  # one of each base
def test_every_kind_of_estimator_takes_lists(mixed: DuckDBPyConnection, name: str) -> None:
    lists = f"SELECT ldp.{name}([x, x], ldp.krr(1, cities()), misfit := 'allow') FROM r"
    assert len(one(mixed, lists)) == 4


def test_what_an_estimator_needs_is_missed_also_in_mixtures_and_lists(mixed: DuckDBPyConnection) -> None:
    assert "[LDP406]" in error_of(mixed, "SELECT ldp.ems({level: level, report: x}, levels()) FROM r")  # no order
    lists = "SELECT ldp.observed([x, x], ldp.krr(1, cities()), misfit := 'allow') FROM r"
    assert "[LDP406]" in error_of(mixed, lists)  # a list is no value


def test_mechanisms_weigh_the_same_if_asked_for_as_equation_13_says(mixed: DuckDBPyConnection) -> None:
    """1,800 reports at epsilon 0.5 and 200 at 3: the mean of both inverses, its exact errors, and its mean."""
    mixed.execute("CREATE MACRO fours() AS MAP {'low': ldp.krr(0.5, range(4)), 'high': ldp.krr(3, range(4))}")
    users, epsilon = np.array([[1800], [200]]), np.array([[0.5], [3]])
    mixed.execute("CREATE TABLE u AS SELECT level, ldp.perturb(i % 4, fours(), level) AS x FROM "
                  "(SELECT i, CASE WHEN i < 1800 THEN 'low' ELSE 'high' END AS level FROM range(2000) t(i))")  # fmt: skip
    rows = "FROM u GROUP BY level, x ORDER BY level DESC, x"
    votes = np.reshape(mixed.execute(f"SELECT count(*) {rows}").fetchall(), (2, 4))
    miss = 1 / (np.exp(epsilon) + 3)
    lift = (np.exp(epsilon) - 1) * miss
    inverse = ((votes / users - miss) / lift).mean(axis=0)

    def shares(name: str, field: str = "estimate") -> list[float]:
        estimate = one(mixed, f"SELECT ldp.{name}({{level: level, report: x}}, fours(), weigh := 'mechanisms') FROM u")
        return [share[field] for share in estimate]

    positive, chance = np.maximum(inverse, 0), miss + lift * np.array(shares("inv_p"))
    assert shares("inv") == pytest.approx(inverse, abs=1e-9)
    assert shares("inv_n") == pytest.approx(positive / positive.sum(), abs=1e-9)
    error = np.sqrt((chance * (1 - chance) / lift**2 / users).sum(axis=0)) / 2
    assert shares("inv", "std_error") == pytest.approx(error, rel=1e-6)
    for weigh, expected in (("mechanisms", inverse), ("reports", (users * (votes / users - miss) / lift).sum(axis=0) / 2000)):
        call = f"ldp.mean({{level: level, report: x}}, fours(), estimator := 'inv(weigh=''{weigh}'')')"
        mean = one(mixed, f"SELECT {call} FROM u")
        assert mean["estimate"] == pytest.approx(expected @ np.arange(4), abs=1e-9)


def test_mechanisms_of_other_kinds_weigh_the_same_too(mixed: DuckDBPyConnection) -> None:
    mixed.execute("CREATE MACRO kinds() AS {'krr': ldp.krr(1, range(4)), 'olh': ldp.olh(1, range(4))}")
    mixed.execute("CREATE TABLE u (level VARCHAR, x UNION(krr BIGINT, olh STRUCT(seed UBIGINT, y UINTEGER)))")
    alone = []
    for level, n in (("krr", 900), ("olh", 300)):
        drawn = f"union_value({level} := ldp.perturb(i % 4, kinds().{level}))"
        mixed.execute(f"INSERT INTO u SELECT '{level}', {drawn} FROM range({n}) t(i)")
        alone.append(one(mixed, f"SELECT ldp.inv(x.{level}, kinds().{level}) FROM u WHERE level = '{level}'"))
    both = one(mixed, "SELECT ldp.inv({level: level, report: x}, kinds(), weigh := 'mechanisms') FROM u")
    for share, krr, olh in zip(both, *alone, strict=True):
        assert share["estimate"] == pytest.approx((krr["estimate"] + olh["estimate"]) / 2, abs=1e-9)
    tree = "ldp.inv(x, ldp.hierarchy(1, 0, 7, step := 1), weigh := '{}')".format  # its levels are those of one mechanism
    reports = "(SELECT ldp.perturb(i % 8, ldp.hierarchy(1, 0, 7, step := 1)) AS x FROM range(900) t(i))"
    each, together = mixed.execute(f"SELECT {tree('reports')}, {tree('mechanisms')} FROM {reports}").fetchall()[0]
    assert each == together
    lists = "ldp.inv({level: [level, level], report: [x, x]}, kinds(), weigh := 'mechanisms') FROM u"
    assert "[LDP406]" in error_of(mixed, f"SELECT {lists}")


def test_counts_of_levels_add_up_to_the_same_estimate(mixed: DuckDBPyConnection) -> None:
    whole = one(mixed, "SELECT ldp.ibu({level: level, report: x}, levels()) FROM r")
    parts = "SELECT ldp.counts(c) AS c FROM (SELECT ldp.counts({level: level, report: x}) AS c FROM r GROUP BY g)"
    assert one(mixed, f"SELECT ldp.ibu(c, levels()) FROM ({parts})") == whole
    mixed.execute("INSERT INTO r VALUES (0, 'low', NULL), (0, NULL, NULL)")
    assert one(mixed, "SELECT ldp.ibu({level: level, report: x}, levels()) FROM r") == whole
    assert one(mixed, "SELECT ldp.ibu({level: level, report: x}, levels()) FROM r WHERE x IS NULL") is None


def test_mechanisms_of_different_families_are_estimated_together(mixed: DuckDBPyConnection) -> None:
    mixed.execute(f"CREATE MACRO families() AS {FAMILIES}")
    mixed.execute(
        "CREATE TABLE u (level VARCHAR, x UNION(number BIGINT, words UBIGINT[], hashed STRUCT(seed UBIGINT, y UINTEGER)))"
    )
    for level, member in (("krr", "number"), ("oue", "words"), ("seeds", "hashed"), ("olh", "hashed"), ("geometric", "number")):
        drawn = f"ldp.perturb(i % 4, families().{level})"
        mixed.execute(f"INSERT INTO u SELECT '{level}', union_value({member} := {drawn}) FROM range(4000) t(i)")
    diagnosis = one(mixed, "SELECT ldp.diagnose({level: level, report: x}, families()) FROM u")
    assert (diagnosis["reports"], diagnosis["impossible"], diagnosis["status"]) == (20000, 0, "certified")
    assert diagnosis["gap"] <= 1e-9
    assert diagnosis["fit_p_value"] > 1e-9
    shares = one(mixed, "SELECT ldp.ibu({level: level, report: x}, families()) FROM u")
    covered = sum(share["low"] <= (0.25 if share["value"] < 4 else 0) <= share["high"] for share in shares)
    assert covered >= 11  # of 20 intervals of 95 %: fewer even if they were independent has probability 2e-8
    assert "LDP401" in error_of(mixed, "SELECT ldp.ibu({level: 'krr', report: x}, families()) FROM u")
    assert "LDP103" in error_of(mixed, "SELECT ldp.perturb(1, families(), 'oue')")


REFUSED = {
    "SELECT ldp.ibu({level: NULL::VARCHAR, report: x}, levels()) FROM r": "LDP401",
    "SELECT ldp.ibu({level: 'canary-7f3a', report: x}, levels()) FROM r": "LDP401",
    "SELECT ldp.ibu({level: level, report: 'canary-7f3a'}, levels()) FROM r": "LDP401",
    "SELECT ldp.ibu({level: 7, report: x}, levels()) FROM r": "LDP304",
    "SELECT ldp.ibu({level: level, report: x}, MAP {'low': city(), 'high': ldp.krr(1, ['Lima', 'Oslo'])}) FROM r": "LDP102",
    "SELECT ldp.ibu(ldp.counts(x), levels()) FROM r": "LDP403",
    "SELECT ldp.perturb('Lima', levels(), NULL)": "LDP302",
    "SELECT ldp.perturb('Lima', levels(), 'canary-7f3a')": "LDP302",
    "SELECT ldp.perturb('canary-7f3a', levels(), 'low')": "LDP302",
    "SELECT ldp.perturb(NULL, levels(), 'low')": "LDP303",
    "SELECT ldp.ibu(['canary-7f3a'], city()) FROM r": "LDP401",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_cannot_be_is_refused_without_naming_it(mixed: DuckDBPyConnection, sql: str) -> None:
    message = error_of(mixed, sql)
    assert f"[{REFUSED[sql]}]" in message
    assert "canary" not in message


def test_each_row_is_drawn_by_the_mechanism_of_its_level(mixed: DuckDBPyConnection) -> None:
    levels = "MAP {1: ldp.krr(20, [0, 1]), 2: ldp.krr(0.000001, [0, 1])}"
    mixed.execute(f"CREATE TABLE t AS SELECT 1 + i % 2 AS l, ldp.perturb(0, {levels}, 1 + i % 2) AS x FROM range(8000) t(i)")
    lies = dict(mixed.execute("SELECT l, sum(x) FROM t GROUP BY l").fetchall())
    assert lies[1] <= 1  # 4,000 draws of probability 2e-9: more has probability 3e-11
    assert abs(lies[2] - 2000) < 5 * np.sqrt(1000)  # five standard deviations: false alarm 6e-7


def test_a_case_of_several_mechanisms_draws_in_one_branch_only(mixed: DuckDBPyConnection) -> None:
    drawn = mixed.execute(
        """SELECT CASE WHEN i % 2 = 0 THEN ldp.perturb(['Lima', 'nowhere'][1 + i % 2], city())
                       ELSE ldp.perturb(['nowhere', 'Oslo'][1 + i % 2], ldp.krr(2, cities())) END FROM range(5000) t(i)"""
    ).fetchall()
    assert len(drawn) == 5000  # a row that met the other branch too would have been refused


# --- several reports of a user ---


def test_one_user_gets_all_mass_where_the_reports_are_likeliest(mixed: DuckDBPyConnection) -> None:
    # theorem 6: the value whose distribution of reports is nearest to the user's, in relative entropy
    mixed.execute("CREATE MACRO near() AS ldp.truncated_geometric(0.7, 0, 9)")
    rows = mixed.execute("SELECT probability FROM ldp.channel(near()) ORDER BY value, report").fetchall()
    table = np.array(rows, dtype=np.float64).reshape(10, 10)
    for _ in range(20):
        reports = RNG.integers(0, 10, 7)
        q = np.bincount(reports, minlength=10) / 7
        nearest = int((q @ np.log(table).T).argmax())
        shares = one(mixed, f"SELECT ldp.ibu({reports.tolist()}, near()) FROM range(1)")
        assert shares[nearest]["estimate"] == pytest.approx(1, abs=1e-6), reports


def test_a_hundred_thousand_reports_of_one_user_do_not_underflow(mixed: DuckDBPyConnection) -> None:
    lists = "SELECT list(['Oslo', 'Rome', 'Oslo'][1 + i % 3]) AS l FROM range(100000) t(i)"
    shares = one(mixed, f"SELECT ldp.ibu(l, city()) FROM ({lists})")
    assert [share["estimate"] for share in shares] == pytest.approx([0, 1, 0, 0], abs=1e-9)


def test_lists_are_sets_and_empty_ones_say_nothing(mixed: DuckDBPyConnection) -> None:
    mixed.execute("CREATE TABLE l (xs VARCHAR[])")
    mixed.execute(
        """INSERT INTO l SELECT [ldp.perturb(c, city()), ldp.perturb(c, city())]
           FROM (SELECT cities()[1 + least(3, i % 7)] AS c FROM range(7000) t(i))"""
    )
    shares = one(mixed, "SELECT ldp.ibu(xs, city()) FROM l")
    for share, truth in zip(shares, TRUTH, strict=True):
        assert abs(share["estimate"] - truth) < 6 * share["std_error"]  # four normal estimates: false alarm 8e-9
    once = one(mixed, "SELECT ldp.ibu(xs[1], city()) FROM l")
    assert all(a["std_error"] < b["std_error"] for a, b in zip(shares, once, strict=True))
    mixed.execute("INSERT INTO l VALUES (NULL), ([]), ([NULL])")
    assert one(mixed, "SELECT ldp.ibu(list_reverse(xs), city()) FROM l") == shares
    counts = "SELECT ldp.counts(c) FROM (SELECT ldp.counts(xs) AS c FROM l GROUP BY xs[1])"
    merged = one(mixed, f"SELECT ldp.ibu(({counts}), city())")
    assert [share["estimate"] for share in merged] == pytest.approx([share["estimate"] for share in shares])
    diagnosis = one(mixed, "SELECT ldp.diagnose(list_append(xs, 'nowhere'), city()) FROM l WHERE len(xs) = 2")
    assert (diagnosis["reports"], diagnosis["impossible"], diagnosis["status"]) == (0, 7000, "no reports")


@pytest.mark.parametrize("old", ["krr", "oue", "olh"])
def test_reports_of_a_domain_that_has_grown_are_estimated_together(con: DuckDBPyConnection, old: str) -> None:
    con.execute("CREATE MACRO v1() AS ldp.krr(3, ['a', 'b', 'other'], outside := 'as:other')".replace("krr", old))
    con.execute("CREATE MACRO v2() AS ldp.krr(3, ['a', 'b', 'c', 'd', 'other'])".replace("krr", old))
    con.execute("""CREATE TABLE people AS SELECT CASE WHEN i % 10 < 4 THEN 'a' WHEN i % 10 < 7 THEN 'c' WHEN i % 10 < 9 THEN 'd'
                   ELSE 'b' END AS item, i < 150000 AS early FROM range(300000) t(i)""")
    con.execute("""CREATE TABLE reports AS
        SELECT 'v1' AS version, ldp.perturb(item, v1()) AS report FROM people WHERE early
        UNION ALL SELECT 'v2', ldp.perturb(item, v2()) FROM people WHERE NOT early""")
    shares = {"a": 0.4, "b": 0.1, "c": 0.3, "d": 0.2, "other": 0.0}
    rows = con.execute("""SELECT unnest(ldp.ibu({level: version, report: report}, MAP {'v1': v1(), 'v2': v2()}),
                                        recursive := true) FROM reports""").fetchall()
    assert [row[0] for row in rows] == list(shares)
    for value, estimate, error, _, _ in rows:
        assert abs(estimate - shares[value]) < 6 * error + 1e-3
    late = dict(
        con.execute("""SELECT row.value, row.std_error FROM (SELECT unnest(ldp.ibu(report, v2())) AS row FROM reports
                               WHERE version = 'v2')""").fetchall()
    )
    assert rows[0][2] < 0.9 * late["a"]  # early reports tell about the values that they know
    with pytest.raises(duckdb.Error, match=r"LDP402|LDP406"):
        con.execute("SELECT ldp.inv({level: version, report: report}, MAP {'v1': v1(), 'v2': v2()}) FROM reports")


def test_a_part_of_a_domain_needs_a_value_for_the_others(con: DuckDBPyConnection) -> None:
    levels = "MAP {'v1': ldp.krr(1, ['a', 'b']), 'v2': ldp.krr(1, ['a', 'b', 'c'])}"
    with pytest.raises(duckdb.Error, match=r"LDP102.*as:VALUE"):
        con.execute(f"SELECT ldp.ibu({{level: 'v1', report: 'a'}}, {levels})")


def test_lists_over_many_values_have_the_inversion_and_its_errors_for_every_functional() -> None:
    users, mechanism = 60, registry().mechanism("olh(1, domain=[" + ",".join(map(str, range(2500))) + "])")
    single = operator_of(mechanism)
    assert single.isotropic
    lengths = RNG.integers(1, 4, users)
    op = ProductOperator(single, RNG.integers(0, single.outputs, int(lengths.sum())), lengths)
    shares = RNG.dirichlet(np.ones(users), 2)
    n, theta = np.array([500.0, 700.0]), np.full((2, op.inputs), 1 / op.inputs)
    c = np.column_stack([np.eye(op.inputs)[:, :7], np.eye(op.inputs)[:, :7].sum(axis=1)])
    centre, variance = op.functionals(shares, n, theta, c)
    assert np.allclose(centre, op.invert(shares) @ c)
    starts = np.cumsum(lengths) - lengths
    reports = single.invert(np.eye(single.outputs)[op._positions]) @ c
    lists = np.add.reduceat(reports, starts) / lengths[:, None]
    assert np.allclose(centre, shares @ lists)
    assert np.allclose(variance, (shares @ lists**2 - (shares @ lists) ** 2) / (n[:, None] - 1))


@pytest.mark.parametrize("text", ["krr(1, [1, 2, 3])", "olh(1, [1, 2, 3, 4, 5, 6, 7, 8, 9])"])
def test_columns_of_some_reports_are_those_of_the_table(text: str) -> None:
    op = operator_of(registry().mechanism(text))
    some = np.array([2, 0, 2])
    assert np.array_equal(op.of_reports(some), op.matrix()[:, some])


# --- several reports of a user, each by the mechanism of its level ---

COUNTED = [(low, high, 40 + 7 * i) for i, (low, high) in enumerate(product(CITIES, repeat=2))]


def test_reports_of_a_user_by_several_mechanisms_have_the_product_of_their_likelihoods(mixed: DuckDBPyConnection) -> None:
    # section V: the probability of a user's reports is the product of those of its mechanisms
    low, high = (operator_of(registry().mechanism({"mechanism": "krr", "epsilon": e, "domain": CITIES})) for e in ("0.5", 3))
    at = [(CITIES.index(a), CITIES.index(b)) for a, b, _ in COUNTED]
    table = DenseOperator(np.array([low.matrix()[:, a] * high.matrix()[:, b] for a, b in at]).T)
    counts = np.array([[float(n) for *_, n in COUNTED]])
    expected = registry().estimator("ibu(tolerance=1e-12)").fit(Likelihood(table, counts)).theta
    rows = ", ".join(f"('{a}', '{b}', {n})" for a, b, n in COUNTED)
    lists = f"(SELECT [a, b] AS xs, ['low', 'high'] AS ls FROM (VALUES {rows}) v(a, b, n), range(n))"
    shares = one(mixed, f"SELECT ldp.ibu({{level: ls, report: xs}}, levels()) FROM {lists}")
    assert [share["estimate"] for share in shares] == pytest.approx(expected[0], abs=1e-8)
    swapped = f"SELECT ldp.ibu({{level: list_reverse(ls), report: list_reverse(xs)}}, levels()) FROM {lists}"
    assert [share["estimate"] for share in one(mixed, swapped)] == pytest.approx(expected[0], abs=1e-8)
    counted = one(mixed, f"SELECT ldp.ibu(ldp.counts({{level: ls, report: xs}}), levels()) FROM {lists}")
    assert counted == shares
    single = f"SELECT ldp.ibu({{level: [ls[1]], report: [xs[1]]}}, levels()) FROM {lists}"
    alone = one(mixed, f"SELECT ldp.ibu({{level: ls[1], report: xs[1]}}, levels()) FROM {lists}")
    assert [share["estimate"] for share in one(mixed, single)] == pytest.approx(
        [share["estimate"] for share in alone], abs=1e-8
    )


OPEN = "MAP {'low': ldp.krr(0.5, cities()), 'open': ldp.krr('infinity', cities())}"


def test_values_that_people_publish_are_read_and_never_drawn(mixed: DuckDBPyConnection) -> None:
    published = "FROM (SELECT unnest(['Lima', 'Oslo', 'Oslo', 'Kyiv']) AS x), range(100)"
    shares = one(mixed, f"SELECT ldp.ibu({{level: 'open', report: x}}, {OPEN}) {published}")
    assert [share["estimate"] for share in shares] == pytest.approx([0.25, 0.5, 0, 0.25])
    assert shares[1]["std_error"] == pytest.approx(np.sqrt(0.25 / 400))
    assert "[LDP301]" in error_of(mixed, f"SELECT ldp.perturb('Lima', {OPEN}, 'low')")
    assert "[LDP101]" in error_of(mixed, "SELECT ldp.perturb('Lima', ldp.krr('infinity', cities()))")
    message = error_of(mixed, f"SELECT ldp.ibu({{level: 'open', report: 'canary-7f3a'}}, {OPEN})")
    assert "[LDP401]" in message
    assert "canary" not in message


@pytest.mark.parametrize("name", ["ibu", "inv", "best", "uniform"])  # one of each base
def test_every_kind_of_estimator_takes_published_values_among_the_reports(mixed: DuckDBPyConnection, name: str) -> None:
    both = "SELECT ['Lima', 'Oslo', x] AS xs, ['low', 'low', 'open'] AS ls FROM (SELECT unnest(['Lima', 'Oslo', 'Oslo']) AS x)"
    shares = one(mixed, f"SELECT ldp.{name}({{level: ls, report: xs}}, {OPEN}, misfit := 'allow') FROM ({both})")
    assert sum(share["estimate"] for share in shares) == pytest.approx(1, abs=1e-6) or name == "base_cut"
    mixture = "SELECT unnest(['Lima', 'Oslo', 'Rome']) AS x, unnest(['low', 'open', 'open']) AS l FROM range(20)"
    assert len(one(mixed, f"SELECT ldp.{name}({{level: l, report: x}}, {OPEN}, misfit := 'allow') FROM ({mixture})")) == 4


LISTS = {
    "level: ['low'], report: ['Lima', 'Oslo']": "LDP403",
    "level: ['low'], report: 'Lima'": "LDP403",
    "level: 'low', report: ['Lima']": "LDP304",
    "level: ['canary-7f3a'], report: ['Lima']": "LDP401",
    "level: ['low'], report: ['canary-7f3a']": "LDP401",
    "level: ['open', 'open'], report: ['Lima', 'Rome']": "LDP401",  # no value gives both
}


@pytest.mark.parametrize("arguments", LISTS)
def test_lists_that_do_not_belong_together_are_refused(mixed: DuckDBPyConnection, arguments: str) -> None:
    message = error_of(mixed, f"SELECT ldp.ibu({{{arguments}}}, {OPEN}) FROM range(3)")
    assert f"[{LISTS[arguments]}]" in message
    assert "canary" not in message


def test_users_without_reports_count_nothing_in_lists_with_levels(mixed: DuckDBPyConnection) -> None:
    for levels, reports in (
        ("['low']", "[NULL::VARCHAR]"),
        ("NULL::VARCHAR[]", "NULL::VARCHAR[]"),
        ("[]::VARCHAR[]", "[]::VARCHAR[]"),
    ):
        assert one(mixed, f"SELECT ldp.ibu({{level: {levels}, report: {reports}}}, {OPEN}) FROM range(3)") is None
    some = (
        "SELECT CASE WHEN i < 2 THEN [NULL, 'Lima'] END AS xs, CASE WHEN i < 2 THEN [NULL, 'open'] END AS ls FROM range(3) t(i)"
    )
    diagnosis = one(mixed, f"SELECT ldp.diagnose({{level: ls, report: xs}}, {OPEN}) FROM ({some})")
    assert (diagnosis["reports"], diagnosis["impossible"]) == (2, 0)
    strange = one(mixed, f"SELECT ldp.diagnose({{level: ['low'], report: ['nowhere']}}, {OPEN}) FROM range(3)")
    assert (strange["reports"], strange["impossible"], strange["status"]) == (0, 3, "no reports")


# Numbers about the distribution


@pytest.mark.parametrize("text", ["square_wave(1, 0, 99, bins=64)", "hierarchy(2, 0, 99, step=1)", "krr(2, [0, 20, 40])"])
def test_the_errors_of_means_of_lists_of_reports_are_those_that_occur(text: str) -> None:
    """Nearly all lists differ, except for k-RR. The squares of z-scores add up to at most what chance allows at 1e-6."""
    mechanism, people, draws = registry().mechanism(text), 1000, 20
    values = np.repeat(np.array([0, 20, 20, 20, 40] * (people // 5)), 2)
    ends, z = pa.array(np.arange(0, 2 * people + 1, 2), pa.int32()), np.empty(draws)
    for draw in range(draws):
        lists = pa.ListArray.from_arrays(ends, certify(mechanism).perturb(pa.array(values)))
        _, estimates = next(
            estimated(Repeated(Perturbed(mechanism)), GroupedCounts.of_column(lists), registry().estimator("ibu"))
        )
        measure = Mean(unbiased=True).measure(estimates)
        z[draw] = (measure.estimate[0] - 20.0) / measure.std_error[0]
    assert (z**2).sum() < chi2.isf(1e-6, draws)


def domain(size: int) -> str:
    return "[" + ",".join(map(str, range(size))) + "]"


def of_lists(text: str, values: NDArray[np.int64], lengths: NDArray[np.int64], name: str) -> Estimates:
    """Return the estimate from so many reports of each value."""
    mechanism = registry().mechanism(text)
    reports = certify(mechanism).perturb(pa.array(np.repeat(values, lengths)))
    lists = pa.ListArray.from_arrays(pa.array(np.r_[0, lengths.cumsum()], pa.int32()), reports)
    source = Repeated(Perturbed(mechanism))
    return next(estimated(source, GroupedCounts.of_column(lists), registry().estimator(name)))[1]


def z_scores_are_normal(z: list[float]) -> None:
    """Fail with probability 1e-6 at most if these are independent standard normal numbers."""
    total = float(np.square(z).sum())
    assert chi2.isf(1 - 5e-7, len(z)) < total < chi2.isf(5e-7, len(z))


@pytest.mark.parametrize("text", ["hierarchy(2, 0, 59, step=1)", f"krr(1, {domain(40)})", f"olh(1, {domain(40)})"])
def test_the_errors_of_shares_of_lists_of_reports_are_those_that_occur(text: str) -> None:
    people, z = 800, []
    for _ in range(40):
        values = np.where(RNG.random(people) < 0.3, 7, RNG.integers(0, 40, people))
        estimates = of_lists(text, values, RNG.integers(1, 4, people), "inv")
        z.append((estimates.fit.theta[0, 7] - (0.3 + 0.7 / 40)) / estimates.intervals.std_error[0, 7])
    z_scores_are_normal(z)


def test_shares_of_lists_have_errors_if_there_are_more_values_than_people() -> None:
    """A value that nobody reports has an error too: .58, that of 200 reports; of a value that all have it would be .96."""
    values = RNG.integers(0, 200, 100)
    for name in ("inv", "ibu"):
        error = of_lists(f"krr(1, {domain(200)})", values, np.full(100, 2), name).intervals.std_error
        assert error.min() > 0.58
        assert error.max() < 1


def test_errors_hold_if_people_with_a_small_epsilon_give_fewer_reports() -> None:
    means, shares, texts = [], [], [f"krr({epsilon}, {domain(30)})" for epsilon in (1, 3)]
    mixed = Mixed(Domain(pa.array(["low", "high"])), tuple(registry().mechanism(text) for text in texts))
    lengths = np.tile([1, 3], 300)
    ends, level = pa.array(np.r_[0, lengths.cumsum()], pa.int32()), np.repeat(lengths // 2, lengths)
    for _ in range(40):
        people = np.where(RNG.random(600) < 0.3, 20, RNG.integers(0, 30, 600))
        values, reports = np.repeat(people, lengths), np.empty(len(level), dtype=np.int64)
        for place, text in enumerate(texts):
            own = certify(registry().mechanism(text)).perturb(pa.array(values[level == place]))
            reports[level == place] = own.to_numpy()
        names = pa.array(["low", "high"]).take(pa.array(level))
        lists = [pa.ListArray.from_arrays(ends, column) for column in (names, pa.array(reports))]
        counts = GroupedCounts.of_column(pa.StructArray.from_arrays(lists, ["level", "report"]))
        inverted, likeliest = (next(estimated(mixed, counts, registry().estimator(name)))[1] for name in ("inv", "ibu"))
        shares.append((inverted.fit.theta[0, 20] - (0.3 + 0.7 / 30)) / inverted.intervals.std_error[0, 20])
        mean = Mean(unbiased=True).measure(likeliest)
        means.append((mean.estimate[0] - (0.3 * 20 + 0.7 * 14.5)) / mean.std_error[0])
    z_scores_are_normal(shares)
    assert np.square(means).sum() < chi2.isf(1e-6, len(means))


@pytest.fixture
def ages(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    low, high = (f"ldp.hierarchy({epsilon}, 0, 99, step := 1)" for epsilon in (2, 4))
    con.execute(f"CREATE MACRO levels() AS MAP {{'low': {low}, 'high': {high}}}")
    con.execute("""CREATE TABLE people AS SELECT i % 2 AS g, 20 + i % 40 AS age, ['low', 'high'][i % 3 % 2 + 1] AS level
        FROM range(9000) t(i)""")
    con.execute("CREATE TABLE chosen AS SELECT g, level, ldp.perturb(age, levels(), level) AS age FROM people")
    con.execute("CREATE MACRO day() AS ldp.hierarchy(3, DATE '2024-01-01', DATE '2024-03-31')")
    con.execute("""CREATE TABLE twice AS SELECT [ldp.perturb(d, day()), ldp.perturb(d, day())] AS days
        FROM (SELECT DATE '2024-02-01' + (i % 20)::INTEGER AS d FROM range(3000) t(i))""")
    return con


def test_numbers_are_estimated_from_reports_of_several_levels(ages: duckdb.DuckDBPyConnection) -> None:
    mean = one(ages, "SELECT ldp.mean({level: level, report: age}, levels(), estimator := 'inv') FROM chosen")
    assert abs(mean["estimate"] - 39.5) < 5.5 * mean["std_error"]
    assert one(ages, "SELECT ldp.variance({level: level, report: age}, levels()) FROM chosen")["std_error"] > 0
    ranges = one(
        ages,
        "SELECT ldp.range_share({level: level, report: age}, levels(), [0, 20], [19, 59], estimator := 'inv') FROM chosen",
    )
    for part, share in zip(ranges, [0, 1], strict=True):  # `inv` is less exact than the interval, whose error is shown
        assert part["low"] - 4 * part["std_error"] < share < part["high"] + 4 * part["std_error"]
    (quartile,) = one(ages, "SELECT ldp.quantile({level: level, report: age}, levels(), [0.25]) FROM chosen")
    assert abs(quartile["estimate"] - 29) < 5.5 * quartile["std_error"] + 1
    for name, more in (("mean", ""), ("variance", ""), ("quantile", ", [0.5]"), ("range_share", ", [0], [9]")):
        numbers = one(ages, f"SELECT ldp.{name}({{level: level, report: age}}, levels(){more}, keep := g = 1) FROM chosen")
        counts = "(SELECT ldp.counts({level: level, report: age}) AS c FROM chosen WHERE g = 1)"
        assert one(ages, f"SELECT ldp.{name}(c, levels(){more}) FROM {counts}") == numbers
        assert one(ages, f"SELECT ldp.{name}({{level: level, report: age}}, levels(){more}) FROM chosen WHERE g > 1") is None


def test_numbers_are_estimated_from_lists_of_reports(ages: duckdb.DuckDBPyConnection) -> None:
    mean = one(ages, "SELECT ldp.mean(days, day(), estimator := 'inv') FROM twice")
    assert abs(mean["estimate"] - datetime(2024, 2, 10, 12)).total_seconds() < 5.5 * 86400 * mean["std_error"]
    (median,) = one(ages, "SELECT ldp.quantile(days, day(), [0.5]) FROM twice")
    assert type(median["estimate"]) is date
    assert abs((median["estimate"] - date(2024, 2, 10)).days) < 5.5 * median["std_error"] + 1
    bounds = "[DATE '2024-02-01'], [DATE '2024-02-20']"
    (share,) = one(ages, f"SELECT ldp.range_share(days, day(), {bounds}, estimator := 'inv') FROM twice")
    assert abs(share["estimate"] - 1.0) < 5.5 * share["std_error"]
    assert one(ages, "SELECT ldp.variance(days, day()) FROM twice")["std_error"] > 0
    assert one(ages, "SELECT ldp.mean(list_append(days, NULL), day()) FROM twice") == one(
        ages, "SELECT ldp.mean(ldp.counts(days), day()) FROM twice"
    )
    assert one(ages, "SELECT ldp.mean([], day())") is None


@pytest.mark.parametrize(
    ("name", "more"), [("mean", ""), ("variance", ""), ("quantile", ", [0.5]"), ("range_share", ", [20], [39]"), ("ibu", "")]
)
@pytest.mark.parametrize("reports", ["{level: level, report: age}, levels()", "days, day()"])
def test_intervals_hold_with_the_probability_that_was_asked_for(
    name: str, more: str, reports: str, ages: duckdb.DuckDBPyConnection
) -> None:
    table = "chosen" if "level" in reports else "twice"
    if table == "twice" and name == "range_share":
        more = ", [DATE '2024-02-01'], [DATE '2024-02-10']"
    found = [one(ages, f"SELECT ldp.{name}({reports}{more}, confidence := {p}) FROM {table}") for p in (0.51, 0.999999)]
    rows = [result if isinstance(result, list) else [result] for result in found]
    for narrow, wide in zip(*rows, strict=True):
        assert wide["low"] <= narrow["low"] <= narrow["high"] <= wide["high"]
    assert any(wide["high"] - wide["low"] > narrow["high"] - narrow["low"] for narrow, wide in zip(*rows, strict=True))


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("mean({level: 'l', report: 'a'}, MAP {'l': ldp.krr(1, ['a', 'b'])})", "LDP102"),
        ("mean(['a'], ldp.krr(1, ['a', 'b']))", "LDP102"),
        ("mean({level: 'l', report: 1}, MAP {'l': ldp.planar_geometric(1, 2, 2)})", "LDP102"),
        (
            "quantile({level: 'l', report: 1}, MAP {'l': ldp.krr(1, [1, 2, 3]), "
            "'m': ldp.krr(1, [1, 2], outside := 'as:1')}, [0.5])",
            "LDP103",
        ),
        ("range_share({level: 'l', report: 1}, MAP {'l': ldp.krr(1, [1, 2])}, [1], ['x'])", "LDP304"),
        ("mean({level: 'other', report: 1}, MAP {'l': ldp.krr(1, [1, 2])})", "LDP401"),
    ],
)
def test_numbers_that_reports_of_levels_do_not_have_are_refused(call: str, code: str, con: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error, match=code):
        con.execute(f"SELECT ldp.{call}")


def test_a_mapping_with_the_name_of_a_mechanism_is_not_one_of_levels() -> None:
    mechanism = {"mechanism": "krr", "epsilon": 1, "domain": ["a", "b"]}
    reports = ["a", "b"] * 50
    assert ldpsql.estimate(reports, mechanism).estimate.tolist() == pytest.approx([0.5, 0.5])
    by_level = {"low": mechanism, "high": mechanism}
    levels = [{"level": level, "report": report} for level in by_level for report in reports]
    assert ldpsql.estimate(levels, by_level).estimate.tolist() == pytest.approx([0.5, 0.5])
