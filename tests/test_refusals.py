"""No parameter of a mechanism, however absurd, fills the memory, hangs, or shows an error that is not one of ldpsql's."""

from __future__ import annotations

import sys
from importlib import import_module
from itertools import chain, product

import duckdb
import pytest
from duckdb import DuckDBPyConnection

from ldpsql.channels import costs
from ldpsql.errors import InvalidParameter
from tests import commands

NUMBERS = [
    "1e9",
    "1e8",
    "-1e9",
    "1e999",
    "1e99999999",
    "1e-99999999",
    "4611686018427387903",
    "9" * 40,
    "nan",
    "inf",
    "",
    "1e300",
]
SCRIPT = """
import resource, sys, warnings
import duckdb, ldpsql
from ldpsql.errors import LdpError
from ldpsql.mechanisms.base import certify
from ldpsql.functions import registry

warnings.simplefilter("ignore")
GOOD = dict(epsilon="1", domain=["a", "b", "c", "d"], keys=["a", "b"], low="0", high="9", columns="2", rows="2")
GOOD |= dict(bins="4", margin="2")
NUMBERS, con = sys.argv[2:], ldpsql.connect()
con.execute("SET threads = 1; SELECT ldp.perturb('a', ldp.krr(1, ['a', 'b']))")
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (512 << 20),) * 2)


def refused(call):
    try:
        call()
    except LdpError:
        return True
    except duckdb.Error as error:
        return "[LDP" in str(error) and "[LDP900]" not in str(error)
    return True


kind = registry().mechanisms[sys.argv[1]]
parameters = kind.parameters()
some = ("bins", "margin", "columns")
good = {p.name: GOOD[p.name] for p in parameters if p.name in GOOD and (p.required or p.name in some)}
if kind.name == "matrix":
    good = {"domain": ["a", "b"], "rows": [["3/4", "1/4"], ["1/4", "3/4"]]}
for parameter in parameters:
    for number in [] if parameter.is_list or parameter.name in ("nulls", "outside") else NUMBERS:
        spec = good | {parameter.name: number}
        literals = {name: repr(value) if isinstance(value, list) else f"'{value}'" for name, value in spec.items()}
        made = ", ".join(f'"{name}" := {value}' for name, value in literals.items())
        if not refused(lambda: certify(registry().mechanism({"mechanism": kind.name, **spec}))):
            sys.exit(f"Python, {parameter.name} = {number}")
        if not refused(lambda: con.execute(f"SELECT ldp.perturb(NULL, ldp.{kind.name}({made}))")):
            sys.exit(f"SQL, {parameter.name} = {number}")
"""
FAMILIES = ["krr", "laplace", "geometric", "planar_laplace", "exponential", "matrix", "pckv_pm"]  # one of each


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process")
@pytest.mark.parametrize("name", FAMILIES)
def test_absurd_numbers_are_refused_in_little_time_and_memory(name: str) -> None:
    done = commands.python(SCRIPT, name, *NUMBERS)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"[-2000:]


@pytest.mark.slow
def test_lists_that_are_too_long_and_tables_that_are_too_large_are_refused() -> None:
    script = """
import resource, pytest
from fractions import Fraction
from ldpsql.errors import InvalidParameter
from tests import commands
from ldpsql.mechanisms.base import certify
from ldpsql.functions import registry
resource.setrlimit(resource.RLIMIT_AS, (3 << 30,) * 2)
for spec in (
    {"mechanism": "krr", "epsilon": 1, "domain": range(10**8)},
    {"mechanism": "olh", "epsilon": 12, "domain": range(500_000)},
    {"mechanism": "exponential", "epsilon": 1, "domain": range(5000), "columns": 1},
    {"mechanism": "matrix", "domain": ["a", "b"], "rows": [["1e-99999999", 1], [0.5, 0.5]]},
    {"mechanism": "matrix", "domain": ["a", "b"], "rows": [["1/" + "7" * 4000, 1], [0.5, 0.5]]},
    {"mechanism": "blahut_arimoto", "beta": 1, "domain": range(4000), "prior": [1] * 4000, "columns": 40, "iterations": 10**6},
):
    with pytest.raises(InvalidParameter, match="most|too many"):
        certify(registry().mechanism(spec))
"""
    done = commands.python(script)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"[-2000:]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("-9223372036854775808, 9223372036854775807", "low of geometric must be a plain number of at most 17 digits"),
        ("0, 1e30", "high of geometric must be a whole number"),
        ("0, 9, margin := -1", "margin of geometric: input should be"),
    ],
)
def test_an_end_of_a_range_that_is_not_a_whole_number_is_named(con: DuckDBPyConnection, arguments: str, message: str) -> None:
    with pytest.raises(duckdb.Error, match=rf"\[LDP103\] parameter {message}"):
        con.execute(f"SELECT ldp.perturb(1, ldp.geometric(1, {arguments}))")


LONG = ["range(10000000000)", "generate_series(1, 3 * 10000000000, 3)", "[x * 2 for x in range(10000000000)]"]


@pytest.mark.slow
@pytest.mark.parametrize("function", ["inv(r, {m})", "top(r, {m}, 5)", "perturb(1, {m})", "describe({m})"])
@pytest.mark.parametrize("constructor", ["krr(1, {})", "olh(1, {})", "pckv_ue(1, {})"])
def test_a_long_list_in_a_query_is_refused_before_it_is_made(con: DuckDBPyConnection, constructor: str, function: str) -> None:
    for made in LONG:
        call = function.format(m=f"ldp.{constructor.format(made)}")
        with pytest.raises(duckdb.Error, match=r"\[LDP103\].*10,000,000,000"):
            con.execute(f"SELECT ldp.{call} FROM (SELECT 1 AS r)")


def test_a_long_list_in_a_prepared_statement_is_refused_before_it_is_made(con: DuckDBPyConnection) -> None:
    con.execute("PREPARE p AS SELECT ldp.perturb(1, ldp.krr(1, range($1)))")
    with pytest.raises(duckdb.Error, match=r"\[LDP103\].*10,000,000,000"):
        con.execute("EXECUTE p(10000000000)")
    assert con.execute("EXECUTE p(3)").fetchall()


@pytest.mark.parametrize(
    ("made", "length"),
    [
        ("range(10000000000, 10000000003)", 3),
        ("generate_series(0, 40000000000, 4000000000)", 11),
        ("range(9, 0, -3)", 3),
        ("generate_series(9, 0, -3)", 4),
        ("['range(10000000000)', 'it''s']", 2),
        ('["range(10000000000)", 2]', 2),
        ("(SELECT [1, 2])", 2),
        ("list(i)", 1),
        ("[i, i + 1]", 2),
        ("unnest([[1, 2]])", 2),
    ],
)
def test_lists_of_any_other_form_remain_domains(con: DuckDBPyConnection, made: str, length: int) -> None:
    source = '(SELECT 1 AS i, 1 AS "range(10000000000)")'
    assert con.sql(f"SELECT len((ldp.krr(1, {made})).domain) FROM {source}").fetchall() == [(length,)]


@pytest.mark.parametrize("wrong", ["city", "5", "'city'", "row(1)", "kind", "DATE '2026-01-01'", "t"])
@pytest.mark.parametrize("call", ["krr(4, {})", "olh(4, {})", "perturb(1, ldp.krr(4, {}))", "pckv(4, {})"])
def test_a_domain_that_is_not_a_list_is_refused_by_its_type(con: DuckDBPyConnection, call: str, wrong: str) -> None:
    source = "(SELECT 'Lima' AS city, 'Oslo'::ENUM ('Oslo', 'Rome') AS kind) t"
    with pytest.raises(duckdb.Error, match=r"\[LDP103\] (domain|keys) must be a list.*Hint: ") as refused:
        con.execute(f"SELECT ldp.{call.format(wrong)} FROM {source}")
    assert not any(value in str(refused.value).partition("Hint")[0] for value in ("Lima", "Oslo", "Rome"))


@pytest.mark.parametrize("name", ["range", "generate_series"])
def test_lengths_read_from_sql_are_those_of_duckdb(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    con = duckdb.connect()
    constructors = import_module("ldpsql.udfs.mechanisms")
    monkeypatch.setattr(constructors, "MOST_WRITTEN", -1)  # every list is too long, and the message has its length
    for numbers in chain.from_iterable(product((-3, 0, 2, 7), repeat=n) for n in (1, 2, 3)):
        call = f"{name}({', '.join(map(str, numbers))})"
        if numbers[2:] == (0,):
            continue
        ((text, length),) = con.execute(f"SELECT alias(CASE WHEN false THEN {call} END), len({call})").fetchall()
        with pytest.raises(InvalidParameter, match=rf"this would have {length}\."):
            constructors.check_written(text)


UNREADABLE = "SELECT [0::UBIGINT] AS y FROM range({}) AS t(i)"  # of the wrong length: an error once they are read


@pytest.mark.parametrize(
    "call", ["ldp.estimate('reports', y, wide(), estimator := 'inv')", "ldp.estimate('reports', y, wide())"]
)
def test_sets_beyond_the_limit_are_refused_before_they_are_counted(
    con: DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(costs, "BYTES", 12_500)
    con.execute("CREATE MACRO wide() AS ldp.oue(1, range(200))")
    con.execute(f"CREATE TABLE reports AS {UNREADABLE.format(500)}")
    with pytest.raises(duckdb.Error, match=r"cannot occur|not reports"):
        con.sql(f"FROM {call}").fetchall()
    con.execute(f"INSERT INTO reports {UNREADABLE.format(1)}")
    refused = r"LDP103\] a table of 501 different reports about 200 values would take .* limit is .*\. Hint: .*olh"
    with pytest.raises(duckdb.Error, match=refused):
        con.sql(f"FROM {call}").fetchall()


def test_rows_without_report_and_equal_reports_are_not_refused(
    con: DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With epsilon 9 most of the values are in hardly any set, so many reports are equal: only counting tells how many."""
    con.execute("CREATE MACRO wide() AS ldp.oue(1, range(200)); CREATE MACRO sure() AS ldp.oue(9, range(200))")
    con.execute("CREATE TABLE reports AS SELECT ldp.perturb(i % 9, wide()) AS y, true AS kept FROM range(400) AS t(i)")
    con.execute("CREATE TABLE alike AS SELECT ldp.perturb(0, sure()) AS y FROM range(2000)")
    monkeypatch.setattr(costs, "BYTES", 12_500)
    con.execute("INSERT INTO reports SELECT NULL, true FROM range(200)")
    assert len(con.sql("FROM ldp.estimate('reports', y, wide())").fetchall()) == 200
    con.execute("INSERT INTO reports SELECT y, false FROM reports")
    assert len(con.sql("FROM ldp.estimate('reports', y, wide(), estimator := 'inv', keep := kept)").fetchall()) == 200
    assert len(con.sql("FROM ldp.estimate('alike', y, sure(), estimator := 'inv')").fetchall()) == 200


@pytest.mark.parametrize("estimator", ["em_mr", "corrected_em"])
def test_estimators_that_are_slow_for_many_values_refuse_them(con: DuckDBPyConnection, estimator: str) -> None:
    con.execute("SELECT ldp.declare('word', ldp.olh(1, range(70000)))").fetchall()
    refused = rf"LDP103\] {estimator} takes at most \d+ values, and the domain has 70000\. Hint: use ibu"
    with pytest.raises(duckdb.Error, match=refused):
        con.execute(f"SELECT ldp.{estimator}(ldp.perturb(1, ldp.declared('word')), ldp.declared('word')) FROM range(9)")
