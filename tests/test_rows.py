"""Rows of several columns: `row`, the joint estimate, and tables in long form."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from duckdb import DuckDBPyConnection
from typer.testing import CliRunner

import ldpsql
from ldpsql import Domain, Epsilon, Mechanism, certify, spark
from ldpsql.channels import Rows
from ldpsql.errors import (
    IllConditioned,
    ImpossibleReport,
    InvalidDomain,
    InvalidParameter,
    InvalidSpec,
    MissingValue,
    NoReports,
    NotReports,
    OtherMechanism,
    OutsideDomain,
    UnknownName,
    WrongType,
)
from ldpsql.functions import fingerprint, registry, text_literal
from ldpsql.ledger import Ledger, Policy
from ldpsql.mechanisms import TOTAL, Product, audit, exp_below
from ldpsql.polars import LdpExpr, LdpFrame
from ldpsql.testing import check_mechanism
from tests import seeds
from tests.commands import app
from tests.seeds import generator

RNG = generator(__name__)
CITIES = ["Lima", 'It\'s {a} "city"', "Rome"]
CITY, ADULT, AGE = f"krr(1, {CITIES!r})", "krr(0.5, [false, true])", "square_wave(2, 0, 100, bins=4)"
TWO = f"row(city={CITY}, adult={ADULT})"
OBSERVED = "row(city=krr(1, ['a', 'b', 'c']), n=oue(2, [1, 2, 3, 4]))"


def mechanism(text: str) -> Mechanism:
    return registry().mechanism(text)


def row(**columns: object) -> Mechanism:
    return registry().mechanism({"mechanism": "row", "columns": columns})


def cells(of: str) -> Product:
    values = mechanism(of).values()
    assert isinstance(values, Product)
    return values


def people(count: int, of: str = TWO) -> pa.Array:
    cells = mechanism(of).values().listed.values
    return cells.take(pa.array(RNG.integers(0, len(cells), count)))


def reports(count: int, of: str = TWO) -> pa.Array:
    return ldpsql.perturb(people(count, of), of)


# --- the mechanism ---
def test_texts_json_and_python_name_the_same_row() -> None:
    parts = {"city": mechanism(CITY), "adult": mechanism(ADULT)}
    made = row(**parts)
    spellings = [TWO, f"row({{city: {CITY}, adult: {ADULT}}})", f"row({{'city': {CITY}, 'adult': {ADULT}}})", str(made)]
    spellings.append(f"row(columns={{'city': {CITY}, 'adult': {ADULT}}})")
    assert all(mechanism(text) == made for text in spellings)
    assert registry().mechanism(json.loads(json.dumps(made.to_json()))) == made
    assert str(made).startswith("row(city=krr(epsilon='1', domain=")


def test_a_column_may_have_any_name() -> None:
    made = row(**{"it's": CITY, "epsilon": ADULT, "nulls": AGE})
    assert mechanism(str(made)) == made
    drawn = ldpsql.perturb([{"it's": "Lima", "epsilon": True, "nulls": 3.0}], made)
    assert [field.name for field in drawn.type] == ["it's", "epsilon", "nulls"]


def test_the_settings_may_name_the_mechanisms_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        registry(), "named", {"town": CITY, "person": {"mechanism": "row", "columns": {"a": CITY, "b": "town"}}}
    )
    monkeypatch.setattr(registry(), "_settled", {})
    assert mechanism("row(city=town, adult=" + ADULT + ")") == mechanism(TWO)
    assert cells("person").names == ("a", "b")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"row(city={CITY})", InvalidParameter),
        (f"row({{a: {CITY}, A: {CITY}}})", InvalidParameter),
        ("row()", InvalidParameter),
        ("row(3)", InvalidSpec),
        ("row(city=krrr(1, ['a', 'b']), b=krr(1, [1, 2]))", UnknownName),
        (f"row(city={CITY}, adult={ADULT}, nulls='as:Lima')", UnknownName),
        (f"row(city={CITY}, keys=pckv(1, [1, 2]))", InvalidParameter),
        (f"row(city={CITY}, inner={TWO})", InvalidParameter),
        (f"row(city={CITY}, text=pem(1))", InvalidParameter),
        (f"row(city={CITY}, x=geometric(1, 0, 10))", InvalidParameter),
        (f"row(city={CITY}, x=krr(31.5, [1, 2]))", InvalidParameter),
        ("krr(1, domain=krr)", InvalidSpec),
        ("krr(1, {'a': krr(1, [1, 2])})", InvalidDomain),
    ],
)
def test_a_row_that_makes_no_sense_is_refused(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        certify(mechanism(text))


# --- privacy ---
def test_epsilon_is_the_exact_sum_of_the_columns() -> None:
    columns = {f"c{i}": f"krr('{epsilon}', [1, 2, 3])" for i, epsilon in enumerate(("0.1", "0.2", "0.000000000003"))}
    made = row(**columns)
    proof = certify(made).certificate
    assert proof.claim.epsilon.value == Fraction(3, 10) + Fraction(3, 10**12)
    assert made.claim() == proof.claim
    assert audit.analytic(made).claim == "0.300000000003-LDP"


def test_the_certificate_is_that_of_the_product_channel_by_enumeration() -> None:
    """Enumerate all pairs of rows and all reports; the sampler's own words decide the probabilities of each column."""
    certified: Any = certify(mechanism(TWO))
    weights = [part.channel.weights() for part in certified.parts]
    rows = list(product(*(range(len(w)) for w in weights)))
    joint = [[prod(int(w[x, y]) for w, x, y in zip(weights, row, report, strict=True)) for report in rows] for row in rows]
    assert all(sum(chances) == TOTAL**2 for chances in joint)
    largest = max(Fraction(one[y], other[y]) for one in joint for other in joint for y in range(len(rows)))
    assert certified.certificate.ratio == largest <= exp_below(Fraction(3, 2))


def test_all_columns_are_drawn_with_words_of_their_own() -> None:
    asked: list[int] = []

    def words(count: int) -> np.ndarray:
        asked.append(count)
        return seeds.words(count)

    channel: Any = certify(mechanism(TWO)).channel
    channel.draw(np.zeros((7, 2), dtype=np.int32), words)
    assert asked == [7, 7]


def test_a_row_whose_columns_share_words_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(self: Rows, values: np.ndarray, words: object = None) -> np.ndarray:
        shared = seeds.words(len(values))
        return np.column_stack(
            [part.draw(values[:, j].copy(), lambda count: shared[:count]) for j, part in enumerate(self.parts)]
        )

    monkeypatch.setattr(Rows, "draw", draw)
    with pytest.raises(AssertionError, match="not independent"):
        check_mechanism(mechanism("row(a=krr(1, [1, 2, 3]), b=krr(1, [1, 2, 3]))"), draws=20_000)


def test_a_class_that_claims_less_than_its_columns_spend_is_overruled() -> None:
    base = registry().mechanisms["row"]

    class Cheap(base):  # type: ignore[misc, valid-type]
        def claim(self) -> object:
            return type(super().claim())(Epsilon(Fraction(1, 100)))

    cheap = Cheap(columns={"a": CITY, "b": ADULT})
    assert certify(cheap).certificate.claim.epsilon.value == Fraction(3, 2)


def test_the_empirical_audit_finds_nothing_above_the_claim() -> None:
    result = audit.empirical(mechanism(TWO), draws=20_000)
    assert result.passed
    assert "of city: " in result.event


def test_the_ledger_charges_the_sum(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", Policy(epsilon_budget=Fraction(2)))
    pq.write_table(pa.table({"who": people(50)}), tmp_path / "people.parquet")
    charge = ldpsql.Charge(ledger, "people")
    with duckdb.connect() as con:
        ldpsql.perturb_copy(con, str(tmp_path / "people.parquet"), str(tmp_path / "out.parquet"), {"who": TWO}, charge=charge)
    assert float(ledger.balances()[0].spent) == 1.5


# --- values ---
def test_each_column_keeps_its_rules() -> None:
    text = "row(city=krr(1, ['a', 'b'], nulls='as:b'), n=krr(1, [1, 2], outside='as:2'))"
    drawn: Any = certify(mechanism(text))
    column = pa.array([{"city": None, "n": 7}, {"city": "a", "n": 1}])
    assert drawn.codes(column).tolist() == [[1, 1], [0, 0]]


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ([{"city": None, "adult": True}], MissingValue),
        ([None], MissingValue),
        ([{"city": "Berlin", "adult": True}], OutsideDomain),
        ([{"city": "Lima"}], WrongType),
        ([{"city": "Lima", "adult": True, "more": 1}], WrongType),
        ([{"city": 3, "adult": True}], WrongType),
        (["Lima"], WrongType),
    ],
)
def test_values_that_cannot_be_perturbed_are_refused_and_not_shown(values: list[object], error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        ldpsql.perturb(values, TWO)
    assert "Berlin" not in str(caught.value)


def test_fields_may_come_in_any_order_and_case() -> None:
    drawn = ldpsql.perturb([{"ADULT": True, "City": "Lima"}] * 3, TWO)
    assert drawn.type.names == ["city", "adult"]


def test_nothing_is_drawn_from_no_rows() -> None:
    assert len(ldpsql.perturb(people(0), TWO)) == 0


def test_a_table_of_cells_is_not_listed_until_it_is_needed() -> None:
    wide = Product(tuple(f"c{i}" for i in range(12)), (Domain.of(list(range(100))),) * 12)
    assert wide.cells == 100**12
    with pytest.raises(InvalidParameter, match="too large"):
        wide.values  # noqa: B018
    twelve = row(**dict.fromkeys(wide.names, "krr(1, [1, 2, 3, 4, 5, 6, 7, 8])"))
    assert len(ldpsql.perturb([dict.fromkeys(wide.names, 3)] * 4, twelve)) == 4
    with pytest.raises(InvalidParameter, match="fewer columns"):
        ldpsql.estimate([dict.fromkeys(wide.names, 3)] * 4, twelve)


# --- operators ---
@pytest.mark.parametrize("text", [TWO, f"row(age={AGE}, n=olh(2, [1, 2, 3]))", OBSERVED])
@pytest.mark.parametrize("isotropic", [False, True])
def test_operators_do_what_their_tables_do(text: str, isotropic: bool) -> None:
    op = ldpsql.estimate(reports(500, text), text, "uniform").likelihood.operator
    op.isotropic = isotropic
    table, theta, w = op.matrix(), RNG.dirichlet(np.ones(op.inputs), 2), RNG.random((2, op.outputs))
    some = RNG.choice(op.inputs, 3, replace=False)
    assert op.forward(theta) == pytest.approx(theta @ table)
    assert op.adjoint(w) == pytest.approx(w @ table.T)
    assert op.curvature(w[0]) == pytest.approx((table * w[0]) @ table.T)
    assert op.curvature(w[0], some) == pytest.approx(((table * w[0]) @ table.T)[np.ix_(some, some)])
    assert op.rows(some) == pytest.approx(table[some])
    assert op.of_reports(np.array([2, 0])) == pytest.approx(table[:, [2, 0]])
    assert op.reachable().all()


def test_the_inverse_of_a_product_is_the_product_of_inverses() -> None:
    text = f"row(age={AGE}, n=olh(2, [1, 2, 3]))"
    op = ldpsql.estimate(reports(500, text), text, "uniform").likelihood.operator
    table, theta, n = op.matrix(), RNG.dirichlet(np.ones(op.inputs), 1), np.array([100.0])
    inverse, shares = np.linalg.pinv(table), RNG.dirichlet(np.ones(op.outputs), 1)
    assert op.condition == pytest.approx(np.linalg.cond(table))
    assert op.influence == pytest.approx((inverse.max(axis=0) - inverse.min(axis=0)).max())
    assert op.invert(shares) == pytest.approx(shares @ inverse / (shares @ inverse).sum())
    assert op.scatter(theta) == pytest.approx(theta @ table @ inverse**2 - theta**2)
    op.isotropic = True
    c = RNG.random((op.inputs, 2))
    centre, variance = op.functionals(shares, n, theta, c)
    assert centre == pytest.approx(shares @ inverse @ c)
    assert variance == pytest.approx((theta @ table @ (inverse @ c) ** 2 - (theta @ table @ inverse @ c) ** 2) / 100)


# --- estimates ---
def test_the_joint_estimate_is_the_certified_maximum_and_finds_dependent_columns() -> None:
    """A cell is off by at most 6 standard errors with probability 1 - 2e-9."""
    text = "row(a=krr(2, ['x', 'y']), b=krr(2, [1, 2, 3]))"
    shares = {("x", 1): 0.5, ("y", 2): 0.3, ("y", 3): 0.2}
    cells = RNG.choice(3, 20_000, p=list(shares.values()))
    values = pa.array([dict(zip("ab", list(shares)[cell], strict=True)) for cell in cells])
    one = ldpsql.estimate(ldpsql.perturb(values, text), text)
    truth = np.array([shares.get((row["a"], row["b"]), 0.0) for row in one.values.values.to_pylist()])
    assert one.diagnosis.status == "certified"
    assert one.diagnosis.gap <= 1e-9
    assert (np.abs(one.estimate - truth) <= 6 * one.std_error + 1e-6).all()


def test_reports_that_were_drawn_column_by_column_are_reports_of_the_row() -> None:
    values = people(3000)
    each = [ldpsql.perturb(column, text) for column, text in zip(values.flatten(), (CITY, ADULT), strict=True)]
    table = pa.table(each, ["city", "adult"])
    struct = pa.StructArray.from_arrays(each, ["city", "adult"])
    expected = ldpsql.estimate(struct, TWO).estimate
    with duckdb.connect() as con:
        con.register("t", table)
        frames = [
            table,
            pl.DataFrame(table),
            pl.DataFrame(table).lazy(),
            table.to_pandas(),
            table.to_reader(700),
            con.table("t"),
        ]
        for frame in frames:
            assert ldpsql.estimate(frame, TWO, column=["city", "adult"]).estimate == pytest.approx(expected, abs=1e-7)
    assert ldpsql.estimate(pa.table({"r": struct}), TWO, column="r").estimate == pytest.approx(expected, abs=1e-7)


def test_columns_that_are_not_those_of_the_row_are_refused() -> None:
    table = pa.table({"city": ["Lima"], "adult": [True], "x": [1]})
    for names, text in ((["city", "x"], TWO), (["city", "adult"], CITY), (["adult"], TWO)):
        with pytest.raises((InvalidParameter, ImpossibleReport)):
            ldpsql.estimate(table, text, column=names)


def test_a_row_that_reports_some_columns_says_something_about_these() -> None:
    """The margin of a column that everybody reported has the error of that column, not of the rows that are complete."""
    drawn = reports(4000)
    city, adult = drawn.flatten()
    hidden = pa.array(np.arange(4000) % 4 > 0)
    partial = pa.StructArray.from_arrays(
        [city, pa.array(adult.to_pylist(), mask=hidden.to_numpy(zero_copy_only=False))], ["city", "adult"]
    )
    one = ldpsql.estimate(partial, TWO)
    assert one.diagnosis.reports == 4000
    margin = one.estimate.reshape(3, 2).sum(axis=1)
    assert margin == pytest.approx(ldpsql.estimate(city, CITY).estimate, abs=0.02)
    with pytest.raises(IllConditioned):
        ldpsql.estimate(partial, TWO, "inv")


def test_rows_of_nothing_but_null_are_left_out() -> None:
    nothing = pa.array([{"city": None, "adult": None}, None], reports(1).type)
    whole = pa.concat_arrays([reports(50), nothing])
    assert ldpsql.estimate(whole, TWO).diagnosis.reports == 50
    with pytest.raises(NoReports):
        ldpsql.estimate(nothing, TWO)


def test_raw_rows_are_not_taken_for_reports() -> None:
    raw = pa.array([{"city": "Lima", "adult": True}] * 5000)
    with pytest.raises(NotReports):
        ldpsql.estimate(raw, TWO)
    with pytest.raises(ImpossibleReport):
        ldpsql.estimate(pa.array([{"city": "Berlin", "adult": True}]), TWO)


def test_reports_of_one_column_are_not_taken_for_rows_and_the_message_says_how_to_write_them() -> None:
    with pytest.raises(ImpossibleReport, match=r"structs of city, adult\. Hint: write \{city: city, adult: adult\}"):
        ldpsql.estimate(pa.array(["Lima"]), TWO)


def test_a_large_table_is_certified_without_a_matrix_of_pairs_of_cells() -> None:
    text = f"row(a=krr(2, {list(range(60))}), b=krr(2, {list(range(40))}))"
    one = ldpsql.estimate(reports(20_000, text), text, "ibu(tolerance=1e-6)")
    assert one.likelihood.operator.isotropic
    assert one.diagnosis.status == "certified"
    assert np.isfinite(one.std_error).all()


# --- SQL ---
@pytest.fixture
def sql(con: DuckDBPyConnection) -> DuckDBPyConnection:
    con.register("people", pa.table({"who": people(4000), "region": ["n", "s"] * 2000}))
    cities = ", ".join(map(text_literal, CITIES))
    con.execute(f"CREATE MACRO person() AS ldp.row({{city: ldp.krr(1, [{cities}]), adult: ldp.krr(0.5, [false, true])}})")
    con.execute(
        "CREATE TABLE reports AS SELECT region, ldp.perturb({city: who.city, adult: who.adult}, person()) AS r FROM people"
    )
    return con


def test_sql_estimates_what_python_estimates_with_values_in_their_own_types(sql: DuckDBPyConnection) -> None:
    drawn = sql.sql("SELECT r FROM reports").to_arrow_table()["r"]
    expected = ldpsql.estimate(drawn, TWO)
    rows = sql.execute("SELECT unnest(ldp.ibu(r, person()), recursive := true) FROM reports").fetchall()
    assert [row[:2] for row in rows] == [tuple(cell.values()) for cell in expected.values.values.to_pylist()]
    assert [row[2] for row in rows] == pytest.approx(expected.estimate, abs=1e-7)
    by_column = "SELECT unnest(ldp.ibu({adult: r.adult, city: r.city}, person()), recursive := true) FROM reports"
    assert [row[2] for row in sql.execute(by_column).fetchall()] == pytest.approx(expected.estimate, abs=1e-7)


def test_margin_has_a_column_for_each_variable(sql: DuckDBPyConnection) -> None:
    table = sql.sql("FROM ldp.margin(reports, r, person())")
    assert table.columns == ["city", "adult", "estimate", "std_error", "low", "high", "n"]
    assert [str(kind) for kind in table.types[:2]] == ["VARCHAR", "BOOLEAN"]
    assert sum(row[2] for row in table.fetchall()) == pytest.approx(1.0)
    assert sql.sql("FROM ldp.margin('reports', {city: r.city, adult: r.adult}, person(), estimator := 'inv_p')").fetchall()


def test_groups_counts_and_filters_work_as_for_one_column(sql: DuckDBPyConnection) -> None:
    grouped = "SELECT region, unnest(ldp.ibu(r, person()), recursive := true) FROM reports GROUP BY region ORDER BY ALL"
    kept = "SELECT unnest(ldp.ibu(r, person(), keep := region = 'n'), recursive := true) FROM reports ORDER BY ALL"
    of_group = [row[1:] for row in sql.execute(grouped).fetchall() if row[0] == "n"]
    alone = sql.execute(kept).fetchall()
    assert [row[:2] for row in of_group] == [row[:2] for row in alone]
    assert np.array([row[2:] for row in of_group]) == pytest.approx(np.array([row[2:] for row in alone]), abs=1e-6)
    merged = """SELECT unnest(ldp.ibu(ldp.counts(c), person()), recursive := true)
        FROM (SELECT ldp.counts(r) AS c FROM reports GROUP BY region)"""
    whole = sql.execute("SELECT unnest(ldp.ibu(r, person()), recursive := true) FROM reports").fetchall()
    assert [row[2] for row in sql.execute(merged).fetchall()] == pytest.approx([row[2] for row in whole])
    (found,) = sql.execute("SELECT ldp.diagnose(r, person()) FROM reports").fetchall()[0]
    assert found["identified"][0]["value"] == {"city": "Lima", "adult": False}
    assert sql.execute("SELECT ldp.ibu(r, person()) FROM reports WHERE false").fetchall() == [(None,)]


def test_a_row_is_read_from_a_variable_a_text_and_a_declaration(sql: DuckDBPyConnection) -> None:
    sql.execute("SET VARIABLE m = person()")
    sql.execute("CREATE TABLE listed AS SELECT ['a', 'b'] AS cities")
    sql.execute("SELECT ldp.declare('town', ldp.krr(1, (SELECT cities FROM listed)))")
    sql.execute(f"SELECT ldp.declare('human', {text_literal(TWO)})")
    for written in ("getvariable('m')", text_literal(TWO), "ldp.declared('human')"):
        kind = sql.sql(f"SELECT ldp.perturb({{city: 'Lima', adult: true}}, {written}) AS r").types[0]
        assert str(kind) == "STRUCT(city VARCHAR, adult BOOLEAN)"
    mixed = "ldp.row({town: ldp.declared('town'), age: 'square_wave(1, 0, 100)'})"
    assert sql.execute(f"SELECT ldp.perturb({{town: 'a', age: 3}}, {mixed})").fetchall()


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    ["ldp.krr(1, [DATE '2026-01-01', DATE '2026-01-02'])", "ldp.krr(1, [1.50, 2.25])", "ldp.olh(1, [1, 2, 3])",
     "ldp.oue(1, ['a', 'b'])", "ldp.rappor(1, ['a', 'b'])", "ldp.square_wave(1, 0, 1, bins := 16)",
     "ldp.olh(1, [1, 2], seeds := 'private')", "ldp.krr(1, [TIMESTAMPTZ '2026-01-01', TIMESTAMPTZ '2026-01-02'])",
     "ldp.subset_selection(1, range(9))"],
)  # fmt: skip
def test_columns_of_every_type_are_drawn_and_estimated(con: DuckDBPyConnection, part: str) -> None:
    con.execute(f"CREATE MACRO twin() AS ldp.row({{x: {part}, y: ldp.krr(1, ['u', 'v'])}})")
    raw = f"ldp._domain({part})[1]"
    con.execute(f"CREATE TABLE one AS SELECT ldp.perturb({raw}, {part}) AS x, {raw} AS raw FROM range(300)")
    con.execute("CREATE TABLE r AS SELECT x, ldp.perturb({x: raw, y: 'u'}, twin()) AS r FROM one")
    own, row = con.sql("SELECT x, r FROM r").types
    assert row.children[0][1] == own
    values = con.execute("SELECT unnest(ldp.ibu(r, twin())).value.x::VARCHAR FROM r").fetchall()
    assert [v for (v,) in values[::2]] == [v for (v,) in con.execute(f"SELECT unnest(ldp._domain({part}))::VARCHAR").fetchall()]


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("SELECT ldp.perturb({city: 'Lima'}, person())", "LDP304"),
        ("SELECT ldp.perturb({city: NULL, adult: true}, person())", "LDP303"),
        ("SELECT ldp.perturb({city: 'x', adult: true}, person())", "LDP302"),
        ("SELECT ldp.mean(r, person()) FROM reports", "LDP103"),
        ("FROM ldp.channel(person())", "LDP103"),
        ("SELECT ldp.row({city: ldp.krr(1, ['a', 'b'])})", "LDP103"),
        ("SELECT ldp.row(3)", "LDP104"),
        ("SELECT ldp.row({a: 3, b: 4})", "LDP104"),
        ("FROM ldp.perturb_rows(people, {who: person()})", "LDP103"),
        ("SELECT ldp.perturb(who, ldp.row({city: ldp.krr(1 + who.adult::INT, ['a']), adult: 'b'})) FROM people", "constant"),
    ],
)  # fmt: skip
def test_sql_refuses_what_makes_no_sense(sql: DuckDBPyConnection, statement: str, code: str) -> None:
    with pytest.raises(duckdb.Error, match=code):
        sql.execute(statement).fetchall()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("row(ldp.krr(1, ['a', 'b']))", "LDP104.*this is one mechanism"),
        ("joint_olh(1, ldp.krr(1, ['a', 'b']))", "LDP104.*this is one mechanism"),
        ("joint_krr(1, ['a', 'b'])", "LDP104.*a struct with the name of each column"),
        ("row('krr')", "LDP104.*a struct with the name of each column"),
        ("joint_krr(1, {a: ['x', 'y'], b: 3})", "LDP104.*a mechanism, or the list of its values"),
        ("row({a: NULL, b: 'krr(1, [1, 2])'})", "LDP104.*a mechanism, or the list of its values"),
        ("row({a: 'krr(1, [1, 2])', b: ldp.joint_krr(1, {x: [1, 2], y: [1, 2]})})", "LDP103.*cannot be a row itself"),
        (
            "row({a: 'krr(1, [1, 2])', b: ldp.row({x: 'krr(1, [1, 2])', y: 'krr(1, [1, 2])'})})",
            "LDP103.*cannot be a row itself",
        ),
    ],
)
def test_a_constructor_of_rows_says_what_it_needs(con: DuckDBPyConnection, call: str, words: str) -> None:
    with pytest.raises(duckdb.Error, match=words):
        con.execute(f"SELECT ldp.{call}").fetchall()


# --- other engines ---
def test_several_columns_in_bulk_are_the_columns_of_the_row(tmp_path: Path) -> None:
    source, out = tmp_path / "people.parquet", tmp_path / "reports.parquet"
    table = pa.Table.from_struct_array(pa.chunked_array([people(500)]))
    pq.write_table(table, source)
    with duckdb.connect() as con:
        ldpsql.perturb_copy(con, str(source), str(out), TWO)
    drawn = pq.read_table(out)
    assert drawn.column_names == ["city", "adult"]
    assert ldpsql.estimate(drawn, TWO, column=["city", "adult"]).diagnosis.reports == 500
    assert ldpsql.estimate(out, column=["city", "adult"]).diagnosis.realised_epsilon == pytest.approx(1.5)
    with pytest.raises(OtherMechanism):
        ldpsql.estimate(drawn, TWO.replace("krr(1,", "krr(2,"), column=["city", "adult"])
    assert LdpFrame(pl.DataFrame(table)).perturb(TWO).columns == ["city", "adult"]
    assert ldpsql.perturb_batches(table, TWO).read_all().column_names == ["city", "adult"]
    with pytest.raises(InvalidParameter, match="name of its column"):
        ldpsql.perturb_batches(table, CITY)


def test_polars_perturbs_struct_columns() -> None:
    frame = pl.DataFrame(pa.Table.from_struct_array(pa.chunked_array([people(200)])))
    drawn = frame.select(LdpExpr(pl.struct("city", "adult")).perturb(TWO))["city"]
    assert drawn.dtype == pl.Struct({"city": pl.String, "adult": pl.Boolean})
    assert ldpsql.estimate(drawn, TWO).diagnosis.reports == 200
    assert ldpsql.perturb(frame.to_struct("p"), TWO).dtype == drawn.dtype


def test_spark_has_a_type_for_rows() -> None:
    kind = spark._type(certify(mechanism("row(a=krr(1, ['x', 'y']), b=olh(1, [1, 2]))")))
    assert kind == pa.struct([("a", pa.string()), ("b", pa.struct([("seed", pa.int64()), ("y", pa.int32())]))])


def test_the_command_line_perturbs_and_estimates_rows(tmp_path: Path) -> None:
    source, out = tmp_path / "people.parquet", tmp_path / "reports.parquet"
    pq.write_table(pa.Table.from_struct_array(pa.chunked_array([people(500)])), source)
    drawn = CliRunner().invoke(app, ["perturb", str(source), str(out), "-m", TWO], catch_exceptions=False)
    assert drawn.exit_code == 0
    arguments = ["estimate", str(out), "-c", "city", "-c", "adult", "--format", "json"]
    rows = json.loads(CliRunner().invoke(app, arguments, catch_exceptions=False).stdout)
    assert [row["city"] for row in rows[::2]] == CITIES
    assert sum(row["estimate"] for row in rows) == pytest.approx(1.0)


def test_fingerprints_tell_rows_apart_and_follow_what_is_drawn() -> None:
    same = row(adult=ADULT, city=f"krr(1, {CITIES[::-1]!r}, nulls='as:Lima')")
    digits = fingerprint(mechanism(TWO)).split()[0]
    assert fingerprint(same).split()[0] == digits
    assert fingerprint(mechanism(TWO.replace("krr(1,", "krr(2,"))).split()[0] != digits
    assert fingerprint(mechanism(TWO.replace("adult=", "grown="))).split()[0] != digits


# --- whole rows, and plans ---
JOINT = ["joint_krr", "joint_olh"]


@pytest.mark.parametrize("name", JOINT)
def test_whole_rows_are_read_from_text_json_and_sql(con: DuckDBPyConnection, name: str) -> None:
    made = mechanism(f"{name}(2, {{city: {CITIES!r}, adult: [false, true]}})")
    assert mechanism(str(made)) == made == registry().mechanism(json.loads(json.dumps(made.to_json())))
    con.execute(f"CREATE MACRO person() AS {text_literal(str(made))}")
    con.execute("CREATE TABLE r AS SELECT ldp.perturb({city: 'Lima', adult: i % 2 = 0}, person()) AS r FROM range(3000) t(i)")
    table = con.sql("FROM ldp.margin(r, r, person())").fetchall()
    assert [row[:2] for row in table] == list(product(CITIES, [False, True]))
    assert sum(row[2] for row in table[:2]) == pytest.approx(1.0, abs=0.2)  # 6 standard errors are less
    kind = con.sql(f"SELECT ldp.perturb({{city: 'Lima', adult: true}}, {text_literal(str(made))}) AS r").types[0]
    assert kind == con.sql("SELECT r FROM r").types[0]


def test_a_whole_row_has_the_epsilon_of_one_report_by_enumeration() -> None:
    certified = certify(mechanism("joint_krr(2, {a: [1, 2, 3], b: [1, 2]})"))
    weights = certified.channel.weights().tolist()  # type: ignore[union-attr]
    largest = max(Fraction(x, z) for one in weights for other in weights for x, z in zip(one, other, strict=True))
    assert certified.certificate.ratio == largest <= exp_below(Fraction(2))


def test_a_table_of_many_cells_is_drawn_from_without_being_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Product, "_check_listed", lambda self: None)
    monkeypatch.setattr(Product, "values", property(lambda self: pytest.fail("listed")))
    made = mechanism(f"joint_olh(2, {{a: {list(range(300))}, b: {list(range(400))}}})")
    assert len(ldpsql.perturb([{"a": 3, "b": 399}] * 5, made)) == 5
    wide = mechanism(f"joint_krr(9, {{a: {list(range(300))}, b: {list(range(400))}}})")
    with pytest.warns(ldpsql.errors.PrivacyLeakWarning):
        drawn = ldpsql.perturb([{"a": 3, "b": 399}] * 5, wide)
    assert drawn.type == pa.struct([("a", pa.int64()), ("b", pa.int64())])


@pytest.mark.parametrize("name", JOINT)
def test_a_value_that_a_whole_row_cannot_have_is_refused_with_its_column(name: str) -> None:
    made = f"{name}(2, {{city: ['a', 'b'], adult: [false, true]}})"
    for value, error in (({"city": None, "adult": True}, MissingValue), ({"city": "Berlin", "adult": True}, OutsideDomain)):
        with pytest.raises(error, match="column 'city'") as caught:
            ldpsql.perturb([value], made)
        assert "Berlin" not in str(caught.value)
    with pytest.raises(InvalidParameter, match="too large"):
        mechanism(f"{name}(2, {{a: {list(range(5000))}, b: {list(range(5000))}}})")
    with pytest.raises(InvalidParameter):
        mechanism(f"{name}(2, ['a', 'b'])")


class Planned(NamedTuple):
    """A row of ``FROM ldp.plan(...)``."""

    way: str
    mechanism: str
    table: str
    cells: int
    std_error: float | None
    l1: float | None
    best: bool


def planned_by_sql(arguments: str) -> list[Planned]:
    return [Planned(*row) for row in ldpsql.connect().sql(f"FROM ldp.plan({arguments})").fetchall()]


def test_a_plan_names_the_way_with_the_smallest_error_and_simulation_agrees() -> None:
    """The mean of the cells' squared errors over their expectation: 31 cells of 40 draws, within a factor of 2."""
    plans = planned_by_sql("{a: 8, b: 4}, 20_000, 2")
    assert [plan.best for plan in plans] == [True, *[False] * (len(plans) - 1)]
    assert [plan.l1 or 9.0 for plan in plans] == sorted(plan.l1 or 9.0 for plan in plans)
    texts = {name: f"{name}(2, {{a: [1,2,3,4,5,6,7,8], b: [1,2,3,4]}})" for name in JOINT}
    for plan in (plan for plan in plans if plan.way != "one"):
        text = texts.get(plan.mechanism.split("(")[0], "row(a=krr(1, [1,2,3,4,5,6,7,8]), b=krr(1, [1,2,3,4]))")
        errors = [ldpsql.estimate(reports(20_000, text), text, "inv").estimate - 1 / 32 for _ in range(5)]
        measured = np.sqrt(np.mean(np.square(errors)))
        factor = 3.0 if plan.way == "split" else 1.6  # the plan may choose better mechanisms for the columns
        assert 1 / factor < measured / (plan.std_error or 0) < factor


def test_a_plan_of_margins_allows_for_the_cells_that_are_added_up() -> None:
    n, plans = 20_000, planned_by_sql("{a: 4, b: 3, c: 2}, 20_000, 2, [['a', 'b'], ['a', 'c']]")
    assert {plan.way for plan in plans} == {"split", "one", "joint", "tables"}
    assert all(plan.l1 is None for plan in plans if plan.way == "one")
    for name in JOINT:
        text = f"{name}(2, {{a: [1, 2, 3, 4], b: [1, 2, 3], c: [1, 2]}})"
        margins = [ldpsql.estimate(reports(n, text), text, "inv").estimate.reshape(4, 3, 2).sum(axis=2) for _ in range(12)]
        measured = np.sqrt(np.mean(np.square(np.array(margins) - 1 / 12)))
        (planned,) = [p for p in plans if p.way == "joint" and p.mechanism.startswith(name) and p.table == "a x b"]
        assert 0.6 < measured / (planned.std_error or 0) < 1.6


def test_plans_are_made_in_sql_and_on_the_command_line(con: DuckDBPyConnection) -> None:
    query = "FROM ldp.plan({education: 16, income: 2}, 48842, 2, tables := [['education', 'income']])"
    rows = con.sql(query).to_arrow_table().to_pylist()
    assert rows[0]["best"]
    assert rows[0]["mechanism"].startswith("joint_olh(2, ")
    arguments = ["plan", "-n", "48842", "--epsilon", "2", "--column", "education=16", "--column", "income=2"]
    printed = json.loads(CliRunner().invoke(app, [*arguments, "--table", "education,income", "--format", "json"]).stdout)
    assert printed == rows
    for option in (["--values", "9"], ["--question", "mean"], ["--mechanism", "krr"]):
        assert "of several columns" in str(CliRunner().invoke(app, [*arguments, *option]).exception)
    for wrong in ([*arguments, "--epsilon", "1"], [*arguments[:-1], "income"], [*arguments, "--table", "x"], arguments[:-2]):
        assert CliRunner().invoke(app, wrong).exit_code
    for statement in ("FROM ldp.plan([1], 10, 2)", "FROM ldp.plan({a: 2, b: 1}, 10, 2)", "FROM ldp.plan({a: 2, b: 2}, 0, 2)"):
        with pytest.raises(duckdb.Error, match="LDP103"):
            con.execute(statement).fetchall()
    with pytest.raises(duckdb.Error, match="tables as lists of columns"):
        con.execute("FROM ldp.plan({a: 2, b: 2}, 10, 2, tables := ['a'])").fetchall()


# --- one column of a row ---
ONE = "one_of(city=krr(2, ['a', 'b']), n=oue(1, [1, 2, 3]))"


def test_one_column_is_reported_and_its_reports_are_those_of_its_mechanism() -> None:
    """The number of rows that report a column: 6 standard errors of 6,000 coins are 232."""
    drawn = ldpsql.perturb([{"city": "a", "n": 2}] * 6000, ONE)
    city, n = drawn.flatten()
    assert (city.is_valid().to_numpy(zero_copy_only=False) ^ n.is_valid().to_numpy(zero_copy_only=False)).all()
    assert abs(3000 - (6000 - city.null_count)) < 240
    one = ldpsql.estimate(city, "krr(2, ['a', 'b'])")
    assert one.diagnosis.reports == 6000 - city.null_count
    assert abs(one.estimate[0] - 1.0) <= 6 * one.std_error[0]
    varied = [{"city": "ab"[i % 2], "n": 1 + i % 3} for i in range(3000)]
    assert not ldpsql.estimate(ldpsql.perturb(varied, ONE), ONE).diagnosis.unique


def test_the_epsilon_of_one_column_is_the_largest_by_enumeration() -> None:
    certified: Any = certify(mechanism("one_of(a=krr(2, [1, 2, 3]), b=krr(0.5, [1, 2]))"))
    parts = [part.channel.weights().tolist() for part in certified.parts]
    rows = list(product(range(3), range(2)))
    joint = [[int(chance) for weights, x in zip(parts, row, strict=True) for chance in weights[x]] for row in rows]  # times 1/2
    assert all(sum(chances) == 2 * TOTAL for chances in joint)
    largest = max(Fraction(one[y], other[y]) for one in joint for other in joint for y in range(5))
    assert certified.certificate.ratio == largest <= exp_below(Fraction(2))
    assert certified.certificate.claim.epsilon.value == 2


def test_the_reported_column_does_not_depend_on_the_values() -> None:
    """Words decide it, whatever the row holds: the same words give the same columns."""
    channel: Any = certify(mechanism("one_of(a=krr(2, [1, 2, 3]), b=krr(0.5, [1, 2]), c=krr(1, [1, 2]))")).channel
    fixed = seeds.words(4000)

    def columns(value: int) -> np.ndarray:
        first = iter([fixed])
        drawn = channel.draw(np.full((4000, 3), value, dtype=np.int32), lambda count: next(first, seeds.words(count)))
        return np.asarray(drawn[:, 0])

    assert np.array_equal(columns(0), columns(1))


def test_two_reported_columns_are_not_reports_of_one() -> None:
    with pytest.raises(ImpossibleReport):
        ldpsql.estimate([{"city": "a", "n": [1]}], ONE)
    with pytest.raises(InvalidParameter, match="one column of each row"):
        ldpsql.perturb_batches(pa.table({"city": ["a"], "n": [1]}), ONE)


def test_sql_draws_one_column_of_a_row(con: DuckDBPyConnection) -> None:
    con.execute("CREATE MACRO one() AS ldp.one_of({city: ldp.krr(2, ['a', 'b']), n: ldp.olh(2, range(9))})")
    con.execute("CREATE TABLE r AS SELECT ldp.perturb({city: 'a', n: 3}, one()) AS r FROM range(2000)")
    assert con.sql("SELECT count(*) FROM r WHERE (r.city IS NULL) = (r.n IS NULL)").fetchall() == [(0,)]
    rows = con.execute("SELECT unnest(ldp.ibu(r.city, ldp.krr(2, ['a', 'b'])), recursive := true) FROM r").fetchall()
    assert rows[0][1] > 0.7
    assert con.execute("SELECT ldp.describe(one()).claim").fetchall() == [("2-LDP",)]


def test_a_plan_of_margins_may_choose_reports_of_one_column() -> None:
    names = [f"c{i}" for i in range(8)]
    plans = planned_by_sql(f"{{{', '.join(f'{name}: 20' for name in names)}}}, 50_000, 1, {[[name] for name in names]}")
    assert plans[0].way == "one"
    assert plans[0].best
