"""Every mechanism through SQL: types of reports, rules for what is outside, estimates, audits, and bad input."""

from __future__ import annotations

import re
from typing import Any

import duckdb
import numpy as np
import pytest
from duckdb import DuckDBPyConnection
from hypothesis import given
from hypothesis import strategies as st

import ldpsql
from ldpsql import KeepOrSpread, LdpError, certify
from ldpsql.functions import registry
from ldpsql.mechanisms import audit
from ldpsql.testing import operator_of
from tests.laws.subjects import ESTIMATES_ONLY
from tests.properties import patient

CALLS = {
    "krr": "ldp.krr(3, range(10))",
    "truncated_geometric": "ldp.truncated_geometric(1, 0, 9)",
    "geometric": "ldp.geometric(1, 0, 9, margin := 5)",
    "planar_geometric": "ldp.planar_geometric(3, 5, 2)",
    "planar_laplace": "ldp.planar_laplace(3, 5, 2, side := 0.8)",
    "exponential": "ldp.exponential(5, range(10), columns := 5)",
    "gaussian_points": f"ldp.gaussian_points(3, 0.001, range(10), {[[i % 5, i // 5] for i in range(10)]})",
    "blahut_arimoto": "ldp.blahut_arimoto(1.5, range(10), [3, 2, 1, 1, 1, 1, 1, 1, 1, 1], columns := 5, iterations := 3)",
    "rappor": "ldp.rappor(3, range(10))",
    "oue": "ldp.oue(3, range(10))",
    "olh": "ldp.olh(3, range(10))",
    "olh_small": "ldp.olh(1, range(10))",
    "olh_private": "ldp.olh(1.5, range(10), seeds := 'private')",
    "optimal": "ldp.optimal(2, range(10), [3, 2, 1, 1, 1, 1, 1, 1, 1, 1])",
    "optimal_mean": "ldp.optimal_mean(1, 0, 9, [3, 2, 1, 1, 1, 1, 1, 1, 1, 1], step := 1)",
    "optimal_metric": "ldp.optimal_metric(1, range(10), [3, 2, 1, 1, 1, 1, 1, 1, 1, 1], columns := 10)",
    "subset_selection": "ldp.subset_selection(2, range(10))",
    "hadamard": "ldp.encoding(3, range(10), 'hadamard')",
    "hadamard_response": "ldp.hadamard_response(3, range(10), 4, 4)",
}
NUMBERS = {
    "stochastic_rounding": "ldp.stochastic_rounding(2, 0, 10)",
    "piecewise": "ldp.piecewise(3, 0, 10, bins := 20)",
    "square_wave": "ldp.square_wave(3, 0, 10, bins := 20)",
    "laplace": "ldp.laplace(3, 0, 10, bins := 20)",
    "gaussian": "ldp.gaussian(3, 0, 10, 0.001, bins := 20)",
}
TRUTH = np.array([0.3, 0.2, 0.15, 0.1, 0.1, 0.05, 0.05, 0.03, 0.02, 0.0])


@pytest.fixture(scope="module")
def people() -> DuckDBPyConnection:
    con = ldpsql.connect()
    con.execute(
        "CREATE TABLE people AS SELECT i % 2 AS half, i % 100 AS p, 0 AS x, (i % 100) / 10 AS number FROM range(40000) r(i)"
    )
    cumulative = (TRUTH.cumsum() * 100).round().astype(int)
    for value in range(9, 0, -1):
        con.execute(f"UPDATE people SET x = {value} WHERE p >= {cumulative[value - 1]} AND p < {cumulative[value]}")
    return con


@pytest.mark.parametrize("mechanism", ["ldp.krr(3, ['a', 'b'])", "ldp.oue(3, ['a', 'b'])", "ldp.olh(3, ['a', 'b'])"])
def test_a_function_for_reports_of_another_form_refuses_the_mechanism(mechanism: str, con: DuckDBPyConnection) -> None:
    names = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE starts_with(function_name, '__ldp_perturb')"
    failures = []
    for (name,) in con.execute(names).fetchall():
        for value in ("'a'", "'a'::ENUM('a', 'b')"):
            try:
                con.execute(f"SELECT {name}({value}, ldp._draws({mechanism}))").fetchall()
            except duckdb.Error as refused:
                failures.append(str(refused))
    assert len(failures) > 4
    assert not [failure for failure in failures if "LDP900" in failure]


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_estimated_in_their_own_unit(people: DuckDBPyConnection, name: str) -> None:
    call = NUMBERS[name]
    people.execute(f"CREATE OR REPLACE TABLE reports AS SELECT ldp.perturb(number, {call}) AS r FROM people")
    rows = people.execute(f"SELECT unnest(ldp.ibu(r, {call}, stop := 5), recursive := true) FROM reports").fetchall()
    values = np.array([row[0] for row in rows])
    centres = certify(registry().mechanism(_spec(call))).values.listed.values.to_pylist()
    assert values.tolist() == centres, "SQL and Python compute the same centres"
    assert values[0] > 0
    assert values[-1] < 10
    mean = float(values @ [row[1] for row in rows])
    assert mean == pytest.approx(5, abs=0.6)


def _spec(call: str) -> str:
    return re.sub(r" := ", "=", call.removeprefix("ldp."))


TYPES = {
    "ldp.oue(1, ['a', 'b'])": ("'a'", "UBIGINT[]"),
    "ldp.rappor(1, range(70))": ("3", "UBIGINT[]"),
    "ldp.subset_selection(1, ['a', 'b', 'c'])": ("'a'", "UBIGINT[]"),
    "ldp.olh(1, ['a', 'b', 'c'])": ("'a'", "STRUCT(seed UBIGINT, y UINTEGER)"),
    "ldp.olh(1, ['a', 'b'], seeds := 'private')": ("'a'", "STRUCT(seed UBIGINT, y UINTEGER)"),
    "ldp.truncated_geometric(1, -3, 3)": ("-2", "BIGINT"),
    "ldp.square_wave(1, 0, 1)": ("0.5", "BIGINT"),
    "ldp.stochastic_rounding(1, 0, 1)": ("0.5", "INTEGER"),
    "ldp.exponential(1, [DATE '2020-01-01', DATE '2020-01-02'], distances := [[0, 1], [1, 0]])": ("DATE '2020-01-01'", "DATE"),
}


@pytest.mark.parametrize("call", TYPES)
def test_reports_have_their_type_also_through_variables_and_parameters(con: DuckDBPyConnection, call: str) -> None:
    value, expected = TYPES[call]
    con.execute(f"SET VARIABLE m = {call}")
    for mechanism in (call, "getvariable('m')"):
        assert con.execute(f"SELECT typeof(ldp.perturb({value}, {mechanism}))").fetchone() == (expected,)
    spec = con.execute("SELECT getvariable('m')").fetchone()
    assert spec is not None
    drawn = con.execute(f"SELECT typeof(ldp.perturb({value}, $m))", {"m": spec[0]}).fetchone()
    assert drawn == (expected,) or (drawn, expected) == (("INTEGER",), "BIGINT")  # Python's whole numbers come in as INTEGER


def test_every_row_draws_a_new_report(con: DuckDBPyConnection) -> None:
    query = "SELECT count(DISTINCT ldp.perturb(1, {})) FROM range(1000)"
    for call in ("ldp.oue(1, range(40))", "ldp.subset_selection(1, range(40))", "ldp.olh(1, range(9), seeds := 'private')"):
        row = con.execute(query.format(call)).fetchone()
        assert row is not None
        assert row[0] > 900


def test_reports_of_words_are_chosen_level_by_level(con: DuckDBPyConnection) -> None:
    levels = "MAP {'bold': ldp.oue(32, [0, 1]), 'shy': ldp.oue(0.5, [0, 1])}"
    con.execute("CREATE TABLE t AS SELECT i, ['bold', 'shy'][1 + i % 2] AS level FROM range(4000) r(i)")
    share = f"avg((ldp.perturb(0, {levels}, level)[1] & 2 > 0)::INT)"
    rows = con.execute(f"SELECT i % 2, {share} FROM t GROUP BY 1 ORDER BY 1").fetchall()
    assert rows[0][1] < 0.001  # the other bit is hardly ever set at epsilon 32
    assert rows[1][1] > 0.2


def test_a_matrix_may_report_values_of_another_type_than_its_domain(con: DuckDBPyConnection) -> None:
    rows = "[['3/4', '1/4'], ['1/4', '3/4']]"
    con.execute(f"CREATE MACRO m() AS ldp.matrix([1, 2], {rows}, reports := ['x', 'y'])")
    con.execute("CREATE TABLE r AS SELECT ldp.perturb(1, m()) AS r FROM range(1000)")
    assert con.execute("SELECT DISTINCT r, typeof(r) FROM r ORDER BY 1").fetchall() == [("x", "VARCHAR"), ("y", "VARCHAR")]
    for shares in ("ldp.ibu(r, m())", "ldp.inv(ldp.counts(r), m())", "ldp.diagnose(r, m()).identified"):
        values = con.execute(f"SELECT list_transform({shares}, lambda s: s.value) FROM r").fetchone()
        assert values == ([1, 2],), shares
    assert con.execute("SELECT value FROM ldp.estimate(r, r, m())").fetchall() == [(1,), (2,)]
    cells = con.execute("SELECT value, report FROM ldp.channel(m())").fetchall()
    assert cells == [(1, "x"), (1, "y"), (2, "x"), (2, "y")]
    assert con.execute("SELECT ldp.describe(m()).outputs").fetchone() == (2,)
    plain = f"ldp.matrix([1, 2], {rows})"
    assert con.execute(f"SELECT ldp.perturb(1, {plain})").fetchone() in {(1,), (2,)}  # IN of SQL would draw twice
    with pytest.raises(duckdb.Error, match="LDP103"):
        con.execute(f"SELECT ldp.perturb(1, ldp.matrix([1, 2], {rows}, reports := 'x'))")


# --- what is outside ---

LIMITS = ["ldp.truncated_geometric(1, 0, 9{})", "ldp.square_wave(1, 0, 9{})", "ldp.laplace(1, 0, 9, bins := 16{})"]


@pytest.mark.parametrize("call", LIMITS)
@pytest.mark.parametrize(
    ("value", "code"),
    [("10", "LDP302"), ("-1", "LDP302"), ("'NaN'::DOUBLE", "LDP302"), ("'inf'::DOUBLE", "LDP302"), ("NULL", "LDP303"),
     ("'x'", "LDP304"), ("true", "LDP304"), ("1e300", "LDP302")],
)  # fmt: skip
def test_numbers_outside_are_refused_without_a_rule(con: DuckDBPyConnection, call: str, value: str, code: str) -> None:
    with pytest.raises(duckdb.Error, match=code):
        con.execute(f"SELECT ldp.perturb({value}, {call.format('')})").fetchall()


@pytest.mark.parametrize("call", LIMITS)
def test_numbers_outside_are_clipped_or_replaced_by_a_rule(con: DuckDBPyConnection, call: str) -> None:
    """At epsilon 32 the median of 201 reports is that of the value that stands for what is outside."""
    clip = call.format(", outside := 'clip', nulls := 'as:9'").replace("(1,", "(32,")
    replaced = call.format(", outside := 'as:9'").replace("(1,", "(32,")
    cases = [("100", "9"), ("-5", "0"), ("'-inf'::DOUBLE", "0"), ("NULL::INTEGER", "9"), ("9", "9")]
    for value, same, m in [*((v, w, clip) for v, w in cases), ("100", "9", replaced)]:
        medians = con.execute(f"SELECT median(ldp.perturb({value}, {m})), median(ldp.perturb({same}, {m})) FROM range(201)")
        row = medians.fetchone()
        assert row is not None
        assert row[0] == pytest.approx(row[1], abs=1)
    with pytest.raises(duckdb.Error, match="LDP302"):
        con.execute(f"SELECT ldp.perturb('NaN'::DOUBLE, {clip})").fetchall()


def test_a_fraction_is_not_a_whole_number(con: DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error, match="LDP302"):
        con.execute("SELECT ldp.perturb(1.5, ldp.truncated_geometric(1, 0, 9, outside := 'clip'))").fetchall()
    assert con.execute("SELECT typeof(ldp.perturb(2.0, ldp.truncated_geometric(1, 0, 9)))").fetchone() == ("BIGINT",)


@pytest.mark.parametrize(
    "call",
    [
        "ldp.oue(1, range(10))",
        "ldp.subset_selection(1, range(10))",
        "ldp.olh(1, range(10), seeds := 'private')",
        "ldp.olh(1, range(10))",
    ],
)
@pytest.mark.parametrize("column", ["[1::UBIGINT, 2]", "[5000::UBIGINT]", "3", "'x'", "{'seed': 1, 'y': 999}", "{'a': 1}"])
def test_what_cannot_be_reports_is_refused_and_not_shown(con: DuckDBPyConnection, call: str, column: str) -> None:
    with pytest.raises(duckdb.Error, match="LDP401") as caught:
        con.execute(f"SELECT ldp.ibu(r, {call}) FROM (SELECT {column} AS r)").fetchall()
    assert "5000" not in str(caught.value)


def test_a_report_that_blahut_arimoto_dropped_is_refused(con: DuckDBPyConnection) -> None:
    """At beta 10 nobody is ever reported in a cell where the prior has nobody."""
    m = "ldp.blahut_arimoto(10, range(4), [9, 0, 0, 1], columns := 2, iterations := 50)"
    count = con.execute(f"SELECT len(ldp.ibu(r, {m}, misfit := 'allow')) FROM (SELECT unnest([0, 0, 3]) AS r)").fetchone()
    assert count == (4,)
    for estimator in ("ibu", "inv"):
        with pytest.raises(duckdb.Error, match="LDP401"):
            con.execute(f"SELECT ldp.{estimator}(r, {m}, misfit := 'allow') FROM (SELECT unnest([0, 1]) AS r)").fetchall()


# --- catalog functions ---


def test_the_channel_is_listed_exactly(con: DuckDBPyConnection) -> None:
    rows = con.execute("FROM ldp.channel(ldp.krr(1, ['a', 'b', 'c']))").fetchall()
    assert {(value, report) for value, report, *_ in rows} == {(a, b) for a in "abc" for b in "abc"}
    total = con.execute("SELECT value, sum(probability) FROM ldp.channel(ldp.olh(1, range(5))) GROUP BY value").fetchall()
    assert len(total) == 5
    assert all(s == pytest.approx(1, abs=1e-12) for _, s in total)
    with pytest.raises(duckdb.Error, match="too many to list"):
        con.execute("FROM ldp.channel(ldp.oue(1, range(5)))").fetchall()


@pytest.mark.parametrize("call", [*CALLS.values(), *NUMBERS.values()])
def test_a_description_says_what_is_realised(con: DuckDBPyConnection, call: str) -> None:
    ((described,),) = con.execute(f"SELECT ldp.describe({call})").fetchall()
    proof = audit.analytic(registry().mechanism(_spec(call).replace("range(10)", str(list(range(10))))))
    assert described["realised_epsilon"] == proof.epsilon <= proof.claimed_epsilon * (1 + 1e-15)
    names = ("mechanism", "claim", "ratio", "slack", "delta", "exact_delta", "value", "other", "report")
    assert {name: described[name] for name in names} == {name: getattr(proof, name) for name in names}
    assert described["slack"] >= -1e-15
    assert described["mechanism"] == call.removeprefix("ldp.").split("(")[0]
    assert ("gaussian" in call) == (0 < described["delta"] <= 0.001)


@pytest.mark.parametrize("call", [*CALLS.values(), *NUMBERS.values()])
def test_the_empirical_audit_proves_most_of_the_epsilon_and_no_more(call: str) -> None:
    mechanism = registry().mechanism(_spec(call).replace("range(10)", str(list(range(10)))))
    result = audit.empirical(mechanism, 40_000)
    assert result.passed
    assert result.epsilon_at_least <= certify(mechanism).certificate.epsilon
    if "gaussian" not in call and "blahut" not in call:
        assert result.epsilon_at_least > 0.05 * result.claimed_epsilon


def test_the_empirical_audit_catches_a_sampler_that_overspends(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """OLH that keeps with probability 1/2 whatever epsilon is."""
    monkeypatch.setattr(
        KeepOrSpread,
        "draw",
        lambda self, values, words=None: np.where(rng.random(len(values)) < 0.5, values, (values + 1) % self.size).astype(
            np.int32
        ),
    )
    result = audit.empirical(registry().mechanism("krr(epsilon=0.25, domain=['a', 'b', 'c'])"), 40_000)
    assert not result.passed


def test_influence_of_a_support_report_is_that_of_its_inversion() -> None:
    mechanism = registry().mechanism(f"olh(1, {list(range(20))})")
    channel: Any = certify(mechanism).channel
    assert operator_of(mechanism).influence == pytest.approx(1 / float(channel.hit - channel.miss))


# --- bad input, for every parameter of every mechanism ---

GOOD = {
    "epsilon": 1, "beta": 1, "domain": ["a", "b"], "low": 0, "high": 9, "bins": 8, "columns": 2, "rows": 2, "side": 1,
    "prior": [1, 1], "delta": "0.1", "margin": 2, "iterations": 2, "tolerance": 0, "seeds": "orthogonal",
    "distances": [[0, 1], [1, 0]], "keys": ["a", "b"], "permanent": 2, "once": 1, "protocol": "olh",
    "points": [[0], [1]], "blocks": 2, "size": 2,
}  # fmt: skip
BAD = st.one_of(
    st.sampled_from(
        [-1, 0.0, float("nan"), float("inf"), 800, "1e3", "1_0", " 1 ", "٣", "", True, b"x", {}, [], [[]], [[1]], ["a"], [None],
         [float("nan"), 1], [[0, -1], [-1, 0]], [[0, 1], [2, 0]], [[0, 0], [0, 0]], 10**30, -(10**30), "as:", "x", 2**63, "1/3"]
    ),
    st.text(max_size=5), st.integers(), st.floats(), st.lists(st.integers(), max_size=3), st.lists(st.floats(), max_size=3),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in registry().mechanisms if n not in {"matrix", *ESTIMATES_ONLY}])
@given(data=st.data())
@patient(max_examples=60)
def test_bad_input_is_refused_in_one_sentence_or_certified(name: str, data: st.DataObject) -> None:
    cls = registry().mechanisms[name]
    arguments: dict[str, Any] = {p.name: GOOD[p.name] for p in cls.parameters() if p.required}
    if name in ("exponential", "blahut_arimoto"):
        arguments["columns"] = 2
    wrong = data.draw(st.sampled_from([p.name for p in cls.parameters()]))
    arguments[wrong] = data.draw(BAD)
    if (
        wrong in ("bins", "margin", "iterations", "columns", "rows", "padding", "steps")
        and str(arguments[wrong]).isdecimal()
        and int(arguments[wrong]) > 64
    ):
        arguments[wrong] = 65  # large tables are not what is tested here
    if wrong in ("low", "high") and abs(np.float64(_float(arguments[wrong]))) > 99 and name.endswith("geometric"):
        arguments[wrong] = 10**15
    refusal = None
    try:
        assert certify(cls(**arguments)).certificate.slack >= -1e-12
    except LdpError as error:
        refusal = error
    if refusal is not None:
        assert re.fullmatch(r"\[LDP\d{3}\] [^\n]+", str(refusal)), str(refusal)
        assert refusal.code not in ("LDP900", "LDP301")


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("krr('abc', ['a', 'b'])", "LDP101"),
        ("oue(0, ['a', 'b'])", "LDP101"),
        ("geometric(-1, 0, 5)", "LDP101"),
        ("krr(1, ['a', 'a'])", "LDP102"),
        ("olh(1, [DATE '2020-01-01', DATE '2020-01-02', DATE '2020-01-01'])", "LDP102"),
    ],
)
def test_a_constructor_alone_refuses_an_epsilon_and_a_domain_that_nothing_can_have(
    con: DuckDBPyConnection, call: str, code: str
) -> None:
    with pytest.raises(duckdb.Error, match=code):
        con.execute(f"SELECT ldp.{call}")


def test_a_constructor_takes_an_epsilon_and_a_domain_that_are_computed(con: DuckDBPyConnection) -> None:
    con.execute("SET VARIABLE e = '0.5'")
    con.execute("SELECT MAP {'open': ldp.krr('infinity', ['a', 'b'])}")
    con.execute(
        "SELECT ldp.krr(getvariable('e'), ['a, b', 'a', ', ', 'b']), ldp.krr(0.5 + 0.5, [x, 'b']) FROM (SELECT 'a' AS x)"
    )
    con.execute("PREPARE made AS SELECT ldp.krr($1, ['it''s', 'it']); EXECUTE made('1')")
