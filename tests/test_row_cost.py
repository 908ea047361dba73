"""A row costs the same for ten values and a million: values are found by an index, and SQL carries no list of the domain."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql import Domain
from ldpsql.domains import domain as domains
from ldpsql.domains.domain import Index, Listed
from ldpsql.errors import LdpError
from tests.seeds import generator

RNG = generator(__name__)
COUNT = 3_000
_DAY = dt.date(1600, 1, 1)
VALUES: dict[str, list[Any]] = {
    "text of any length": ["a" * n for n in range(60)] + [f"item {i}" for i in range(COUNT)],
    "text that differs in its last byte": [f"{'x' * n}{i}" for n in range(12) for i in range(200)],
    "text with zeros": ["\0" * n for n in range(40)] + [f"{i}\0" for i in range(COUNT)] + [f"{i}" for i in range(COUNT)],
    "text of other scripts": [f"{i} {'Žižkov' * (i % 5)} 東京" for i in range(COUNT)],
    "text of hundreds of bytes": ["x" * n for n in range(700)] + [f"{'x' * 248}{i}" for i in range(1_000)],
    "numbers": [i * 2**40 - 2**55 for i in range(COUNT)],
    "doubles": [i / 7 - 100 for i in range(COUNT)],
    "decimals": [Decimal(i) / 100 for i in range(COUNT)],
    "dates": [_DAY + dt.timedelta(days=i) for i in range(COUNT)],
    "times": [dt.datetime(2000, 1, 1) + dt.timedelta(microseconds=i * i) for i in range(COUNT)],
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_is_found_at_its_position_and_no_other_value_is(kind: str) -> None:
    values = pa.array(VALUES[kind])
    listed, others = values[::2], values[1::2]
    assert Index.of(listed) is not None
    domain = Domain.of(listed)
    order = RNG.permutation(len(listed))
    column = pa.concat_arrays([listed.take(pa.array(order)), others, pa.nulls(3, values.type)]).slice(5)
    found = domain.locate(column).to_pylist()
    assert found == [*order[5:].tolist(), *[None] * (len(others) + 3)]
    assert found == pc.index_in(column, value_set=listed).to_pylist()


def test_columns_of_other_types_are_found_too() -> None:
    domain = Domain.of(pa.array(range(0, 3 * COUNT, 3)))
    for kind in (pa.int16(), pa.uint32(), pa.float64(), pa.decimal128(22, 2)):
        assert domain.locate(pa.array([3, 4, None, 0], pa.int64()).cast(kind)).to_pylist() == [1, None, None, 0]
    words = Domain.of([f"item {i}" for i in range(COUNT)])
    encoded = pa.array(["item 7", "other", "item 7", None]).dictionary_encode()
    assert words.locate(encoded).to_pylist() == [7, None, 7, None]
    assert words.locate(pa.array(["item 7", "other"], pa.large_string())).to_pylist() == [7, None]
    assert words.locate(pa.array([], pa.string())).to_pylist() == []


@pytest.mark.parametrize("bits", [0, 3, 12])
def test_a_poor_hash_changes_no_position(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = domains._hashes
    monkeypatch.setattr(domains, "_hashes", lambda words: hashes(words) & np.uint64((1 << bits) - 1))
    values = pa.array([f"item {i}" for i in range(1_500)])
    listed = Listed(values[:1_000])
    assert listed.locate(values).to_pylist() == [*range(1_000), *[None] * 500]
    # Strings of very different lengths need no more memory than Arrow takes.
    long = pa.array(["x" * 100_000, *(str(i) for i in range(2_000))])
    assert Index.of(long) is None
    assert Listed(long).locate(long).to_pylist() == list(range(2_001))


_TYPES = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"), "i % 100"),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"), "i % 100"),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL(9,2)", "DECIMAL(38,4)"), "(i % 100) + .25"),
    **dict.fromkeys(("VARCHAR", "ENUM('place 0', 'place 1')"), "'place ' || (i % 2)"),
    "BOOLEAN": "i % 2 = 0",
    "DATE": "DATE '2020-01-01' + (i % 100)::INTEGER",
    **dict.fromkeys(
        ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ"),
        "TIMESTAMP '2020-01-01' + INTERVAL 1 HOUR * (i % 100)",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", _TYPES)
def test_reports_have_the_type_and_the_values_of_the_domain(con: DuckDBPyConnection, kind: str) -> None:
    con.execute(f"CREATE TABLE people AS SELECT ({_TYPES[kind]})::{kind} AS x FROM range(2000) t(i)")
    con.execute("SET VARIABLE m = ldp.krr(12, (SELECT list(DISTINCT x) FROM people))")
    con.execute("CREATE TABLE reports AS SELECT x, ldp.perturb(x, getvariable('m')) AS y FROM people")
    ((same, types, outside, kept),) = con.execute(
        """SELECT any_value(typeof(x)) = any_value(typeof(y)), count(DISTINCT typeof(y)),
                  count(*) FILTER (WHERE y NOT IN (SELECT x FROM people)), count(*) FILTER (WHERE x = y) FROM reports"""
    ).fetchall()
    assert (same, types, outside) == (True, 1, 0)
    assert kept > 1_900  # epsilon 12 keeps all but one in a thousand


def test_a_plan_holds_no_value_of_a_domain(con: DuckDBPyConnection) -> None:
    con.execute("SET VARIABLE m = ldp.krr(1, list_transform(range(5000), lambda i: 'item ' || i))")
    for mechanism in ("getvariable('m')", "ldp.olh(1, getvariable('m').domain)"):
        plan = con.execute(f"EXPLAIN SELECT ldp.perturb('item ' || i, {mechanism}) FROM range(5) t(i)").fetchall()
        assert "item 4" not in str(plan)


def test_permanent_reports_have_the_type_of_the_domain_too(tmp_path: Any) -> None:
    key = ldpsql.Key.create(tmp_path / "people.key")
    con = ldpsql.connect(key=key)
    con.execute("CREATE MACRO m() AS ldp.krr(1, list_transform(range(2000), lambda i: DATE '2000-01-01' + i::INTEGER))")
    query = "SELECT ldp.perturb_once(DATE '2000-01-01' + i::INTEGER, m(), i) AS y FROM range(100) t(i)"
    assert con.execute(query).fetchall() == con.execute(query).fetchall()
    assert con.execute(f"SELECT DISTINCT typeof(y) FROM ({query})").fetchall() == [("DATE",)]


def test_a_value_outside_a_long_domain_is_refused_without_showing_it(con: DuckDBPyConnection) -> None:
    con.execute("SET VARIABLE m = ldp.krr(1, list_transform(range(5000), lambda i: 'item ' || i))")
    with pytest.raises(Exception, match="LDP") as refused:
        con.execute("SELECT ldp.perturb(x, getvariable('m')) FROM (VALUES ('item 1'), ('secret')) t(x)").fetchall()
    assert "secret" not in str(refused.value)
    with pytest.raises(LdpError):
        Domain.of([f"item {i}" for i in range(5000)]).codes(pa.array(["item 1", None]))


def test_levels_of_a_mixture_are_drawn_in_the_type_of_the_domain(con: DuckDBPyConnection) -> None:
    con.execute("SET VARIABLE d = list_transform(range(900), lambda i: 'item number ' || i)")
    con.execute(
        """CREATE TABLE r AS SELECT ldp.perturb('item number ' || i, MAP {'low': ldp.krr(1, getvariable('d')),
            'high': ldp.krr(20, getvariable('d'))}, ['low', 'high'][1 + i % 2]) AS y, i FROM range(900) t(i)"""
    )
    kept = con.execute("SELECT count(*) FILTER (WHERE y = 'item number ' || i) FROM r WHERE i % 2 = 1").fetchall()
    assert kept[0][0] > 440


@pytest.mark.parametrize("longest", range(1, 60, 3))
def test_the_position_of_a_value_does_not_depend_on_the_other_rows(longest: int) -> None:
    """A column of short strings has fewer words than a domain with long ones, and one long value changes nothing."""
    listed = [f"w{i}" for i in range(600)] + ["x" * n for n in range(1, longest + 1)]
    domain = Domain.of(listed)
    for others in ([], ["y" * n for n in (4, 5, 12, 13, 20, 21, 28, 29, 37, 61)], listed[-1:]):
        for other in [None, *others]:
            column = pa.array(["w7", "w599", "x", *([other] if other else [])])
            assert domain.locate(column).to_pylist()[:3] == [7, 599, 600]


@pytest.mark.parametrize("of", ["float", "double", "int32", "decimal128(20, 1)"])
@pytest.mark.parametrize("kind", ["float", "double"])
def test_floats_are_found_in_long_domains(of: str, kind: str) -> None:
    types = {"float": pa.float32(), "double": pa.float64(), "int32": pa.int32(), "decimal128(20, 1)": pa.decimal128(20, 1)}
    domain = Domain.of(pa.array(range(600)).cast(types[of]))
    assert domain.locate(pa.array([0.0, -0.0, 7.0, 599.0, 600.0, 0.5], types[kind])).to_pylist() == [0, 0, 7, 599, None, None]
