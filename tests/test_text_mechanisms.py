"""A mechanism as text in SQL: everything that takes a mechanism takes ``'krr(1, [...])'`` and a name of the settings."""

from __future__ import annotations

import duckdb
import pytest
from duckdb import DuckDBPyConnection

from ldpsql import perturb
from ldpsql.errors import InvalidDomain, InvalidParameter, InvalidSpec
from ldpsql.functions import registry
from ldpsql.mechanisms import certify_values

KRR = "krr(1, ['Lima', 'Oslo', 'Rome', 'Kyiv'])"
# text -> SQL types of the domain and of a report
TYPES = {
    KRR: ("VARCHAR", "VARCHAR"),
    "krr(1, [1, 2])": ("BIGINT", "BIGINT"),
    "krr(1, [true, false])": ("BOOLEAN", "BOOLEAN"),
    "krr(1, [0.1, 1e300])": ("DOUBLE", "DOUBLE"),
    "krr(1, {'type': 'decimal128(4, 2)', 'values': ['1.00', '2.50']})": ("DECIMAL(4,2)", "DECIMAL(4,2)"),
    "krr(1, {'type': 'date32[day]', 'values': ['2020-01-01', '2020-02-01']})": ("DATE", "DATE"),
    "krr(1, {'type': 'timestamp[us]', 'values': ['2020-01-01 00:00:00.5', '2020-02-01 00:00:00']})": ("TIMESTAMP", "TIMESTAMP"),
    "oue(1, [0, 1, 2])": ("BIGINT", "UBIGINT[]"),
    "olh(1, [0, 1, 2])": ("BIGINT", "STRUCT(seed UBIGINT, y UINTEGER)"),
    "square_wave(1, 0, 100, bins=4)": ("DOUBLE", "BIGINT"),
    "geometric(1, 0, 3)": ("BIGINT", "BIGINT"),
    "matrix([1, 2], [['3/4', '1/4'], ['1/4', '3/4']], reports=['x', 'y'])": ("BIGINT", "VARCHAR"),
}


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@pytest.mark.parametrize("text", TYPES)
def test_reports_of_a_mechanism_given_as_text_keep_the_type_of_the_domain(con: DuckDBPyConnection, text: str) -> None:
    value, report = TYPES[text]
    con.execute(f"CREATE TABLE r AS SELECT ldp.perturb(ldp._domain({quoted(text)})[1], {quoted(text)}) AS r FROM range(2000)")
    assert con.execute("SELECT DISTINCT typeof(r) FROM r").fetchall() == [(report,)]
    estimated = con.execute(f"SELECT DISTINCT typeof(value) FROM ldp.estimate(r, r, {quoted(text)})").fetchall()
    assert estimated == [(value,)]


@pytest.mark.parametrize(
    "text",
    [
        "pckv_grr(4, ['a', 'b'])",
        "pckv_pm(4, [1, 2], bins=3)",
        "pckv_pm_ue(4, [1, 2], bins=3)",
        "pckv_ue(4, ['a', 'b'])",
        "pckv_grr(4, ['a', 'b'], steps=1)",
    ],
)
def test_sets_of_pairs_are_perturbed_and_estimated_by_text(con: DuckDBPyConnection, text: str) -> None:
    pairs = f"MAP {{ldp._domain({quoted(text)})[1]: 1.0}}"
    con.execute(f"CREATE TABLE r AS SELECT ldp.perturb({pairs}, {quoted(text)}) AS r FROM range(2000)")
    frequencies = con.execute(
        f"SELECT list_transform(ldp.key_value(r, {quoted(text)}), lambda k: k.frequency) FROM r"
    ).fetchone()
    assert frequencies is not None
    assert frequencies[0][0] > frequencies[0][1]


EVERYWHERE = [
    "SELECT ldp.ibu(city, {m}) FROM r",
    "SELECT ldp.inv(ldp.counts(city), {m}) FROM r",
    "SELECT ldp.diagnose(city, {m}) FROM r",
    "SELECT ldp.ibu([city], {m}) FROM r",
    "SELECT ldp.ibu({{level: 0, report: city}}, MAP {{0: {m}}}) FROM r",
    "SELECT ldp.describe({m})",
    "FROM ldp.channel({m})",
    "FROM ldp.estimate(r, city, {m})",
    "FROM ldp.estimate(r, city, {m}, by := g) ORDER BY ALL",
    "SELECT ldp.information({m}, [0.25, 0.25, 0.25, 0.25])",
]


@pytest.mark.parametrize("sql", EVERYWHERE)
def test_text_a_name_a_variable_and_the_constructor_give_the_same(
    con: DuckDBPyConnection, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry(), "named", {"village": KRR})
    con.execute(f"CREATE TABLE r AS SELECT i % 2 AS g, ldp.perturb('Lima', {quoted(KRR)}) AS city FROM range(2000) t(i)")
    con.execute(f"SET VARIABLE m = {quoted(KRR)}")
    expected = con.execute(sql.format(m="city()")).fetchall()
    for mechanism in (quoted(KRR), "'village'", "getvariable('m')"):
        assert con.execute(sql.format(m=mechanism)).fetchall() == expected
    assert con.execute(sql.replace("{m}", "$1").replace("{{", "{").replace("}}", "}"), [KRR]).fetchall() == expected


def test_a_mechanism_may_still_be_an_aggregate(con: DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE r AS SELECT ldp.perturb('Lima', city()) AS city, city() AS m FROM range(2000)")
    expected = con.execute("SELECT ldp.ibu(city, city()) FROM r").fetchone()
    assert con.execute("SELECT ldp.ibu(city, any_value(m)) FROM r").fetchone() == expected


@pytest.mark.parametrize(
    ("text", "code"),
    [("kr(1, [1, 2])", "LDP201"), ("krr(1, [1, 2]", "LDP104"), ("krr(99, [1, 2])", "LDP101"), ("krr(1, [1])", "LDP102"),
     ("canary-7f3a", "LDP201"), ("canary 7f3a", "LDP104"), ("krr(1, [1, 2], canary=1)", "LDP201")],
)  # fmt: skip
def test_a_text_that_is_not_a_mechanism_is_refused_without_showing_it(con: DuckDBPyConnection, text: str, code: str) -> None:
    for call in ("ldp.perturb(1, {})", "ldp.ibu(1, {})", "ldp.describe({})"):
        with pytest.raises(duckdb.Error, match=code) as caught:
            con.execute(f"SELECT {call.format(quoted(text))}").fetchall()
        assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "values"),
    [("range(3)", [0, 1, 2]), ("range(-1, 2)", [-1, 0, 1]), ("range(1, 10, 3)", [1, 4, 7]), ("range(10, 0, -4)", [10, 6, 2])],
)
def test_text_may_hold_a_range_as_sql_does(con: DuckDBPyConnection, text: str, values: list[int]) -> None:
    mechanism = registry().mechanism(f"krr(1, {text})")
    assert mechanism == registry().mechanism({"mechanism": "krr", "epsilon": 1, "domain": values})
    described = (f"ldp.describe(ldp.krr(1, {text}))", f"ldp.describe('krr(1, domain := {text})')")
    assert con.execute(f"SELECT {described[0]} = {described[1]}").fetchone() == (True,)


def test_a_range_of_a_million_values_is_a_domain() -> None:
    assert len(certify_values(registry().mechanism("olh(3, range(1000000))")).values) == 1_000_000


@pytest.mark.parametrize(
    ("text", "error"),
    [("range(1000000000000)", InvalidParameter), ("range(0, 4611686018427387904)", InvalidParameter), ("range(x)", InvalidSpec),
     ("range('a')", InvalidSpec), ("range(1, 2, 0)", InvalidSpec), ("range(9223372036854775808)", InvalidSpec),
     ("range(1.5)", InvalidSpec), ("list(range(3))", InvalidSpec), ("range(1, 1)", InvalidDomain)],
)  # fmt: skip
def test_a_range_that_is_no_domain_is_refused_before_it_is_made(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        registry().mechanism(f"krr(1, {text})")


@pytest.mark.parametrize("domain", ["'a' 'b', 'c'", '"a""b", "c"', "'a', 'b' \n 'c'", "'a'r'b', 'c'", "\"a\" # and\n 'b', 'c'"])
def test_two_strings_without_a_comma_are_not_joined(domain: str) -> None:
    with pytest.raises(InvalidSpec, match="next to each other"):
        perturb(["a"], f"krr(epsilon := 1, domain := [{domain}])")


def test_two_quotes_are_one_as_in_sql() -> None:
    texts = ["O'slo", "'", "it's '", "back\\slash's", "''"]
    written = ["'O''slo'", "''''", "'it''s '''", r"'back\\slash''s'", "''''''"]
    mechanism = registry().mechanism(f"krr(1, [{', '.join(written)}])")
    assert certify_values(mechanism).values.listed.values.to_pylist() == texts
    assert registry().mechanism(str(mechanism)) == mechanism


def test_quotes_and_commas_inside_of_strings_are_theirs() -> None:
    texts = ["", "O'slo", "it''s", 'say "x"', "a, b", "r", "#"]
    assert certify_values(registry().mechanism(f"krr(1, {texts})")).values.listed.values.to_pylist() == texts


def test_a_list_that_is_not_written_out_is_refused_with_what_to_write() -> None:
    with pytest.raises(InvalidSpec, match=r"lists are written out, or a range\(0, 100\): olh\(epsilon, domain"):
        registry().mechanism("olh(1, sequence(100))")
