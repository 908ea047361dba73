"""Longitudes and latitudes to cells: exact at the edges, refused outside, and back."""

from __future__ import annotations

from fractions import Fraction
from math import floor, inf, nextafter

import duckdb
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection
from hypothesis import given
from hypothesis import strategies as st

import ldpsql
from ldpsql import LdpError
from ldpsql.mechanisms import Region
from tests.properties import patient

BAY = Region(west="-122.5153", south="37.6919", east="-122.3499", north="37.8108", columns=24, rows=16)
GRID = "ldp.grid(-122.5153, 37.6919, -122.3499, 37.8108, 24, 16)"


def place(x: float, low: Fraction, high: Fraction, parts: int) -> int:
    """The definition, in fractions: a double is an exact binary fraction, the last part is closed."""
    return min(parts - 1, max(0, floor((Fraction(x) - low) * parts / (high - low))))


def near_edges(low: Fraction, high: Fraction, parts: int) -> st.SearchStrategy[float]:
    def moved(i: int, steps: int) -> float:
        x = float(low + (high - low) * i / parts)
        for _ in range(abs(steps)):
            x = nextafter(x, inf if steps > 0 else -inf)
        return x

    at_edges = st.builds(moved, st.integers(0, parts), st.integers(-2, 2))
    anywhere = st.floats(float(low), float(high))
    return (at_edges | anywhere).filter(lambda x: float(low) <= x <= float(high))


@patient(max_examples=300)
@given(
    lon=near_edges(BAY.west, BAY.east, BAY.columns),
    lat=near_edges(BAY.south, BAY.north, BAY.rows),
)
def test_every_double_lies_in_the_cell_that_fractions_say(lon: float, lat: float) -> None:
    column, row = place(lon, BAY.west, BAY.east, BAY.columns), place(lat, BAY.south, BAY.north, BAY.rows)
    assert BAY.cells(pa.array([lon]), pa.array([lat])).tolist() == [row * BAY.columns + column]


@pytest.mark.parametrize("kind", ["DECIMAL(18, 12)", "DECIMAL(9, 3)", "DECIMAL(4, 1)", "INTEGER", "BIGINT", "DOUBLE", "FLOAT"])
def test_a_point_on_an_inner_edge_belongs_to_the_cell_east_or_north_of_it(con: DuckDBPyConnection, kind: str) -> None:
    query = f"SELECT ldp.cell(x::{kind}, 1, ldp.grid(0, 0, 30, 2, 3, 2)) FROM (VALUES (0), (9), (10), (19), (20), (30)) t(x)"
    assert [cell for (cell,) in con.execute(query).fetchall()] == [3, 3, 4, 4, 5, 5]


def test_unsigned_numbers_beyond_those_of_64_bits_with_a_sign_lie_in_the_last_cell_or_outside(con: DuckDBPyConnection) -> None:
    cell = "SELECT ldp.cell(18446744073709551615::UBIGINT, 1::UTINYINT, ldp.grid(0, 0, 30, 2, 3, 2){})"
    assert con.sql(cell.format(", outside := 'nearest'")).fetchall() == [(5,)]
    with pytest.raises(duckdb.InvalidInputException, match="outside the grid") as refusal:
        con.sql(cell.format("")).fetchall()
    assert "18446744073709551615" not in str(refusal.value)


def test_decimals_are_not_rounded_to_doubles(con: DuckDBPyConnection) -> None:
    # 0.3 is the inner edge; the double nearest to it lies below, the decimal on it.
    query = "SELECT ldp.cell({}, 0, ldp.grid(0, 0, 0.6, 1, 2, 1))"
    assert con.execute(query.format("0.3::DECIMAL(3, 1)")).fetchone() == (1,)
    assert con.execute(query.format("0.3::DOUBLE")).fetchone() == (0,)
    assert con.execute(query.format("0.299999999999999999::DECIMAL(18, 18)")).fetchone() == (0,)


def test_the_outer_edges_belong_to_the_grid(con: DuckDBPyConnection) -> None:
    query = (
        f"SELECT ldp.cell(lon::{{0}}, lat::{{0}}, {GRID}) FROM (VALUES (-122.5153, 37.6919), (-122.3499, 37.8108)) t(lon, lat)"
    )
    for kind in ("DOUBLE", "DECIMAL(9, 4)"):
        assert con.execute(query.format(kind)).fetchall() == [(0,), (383,)]


@pytest.mark.parametrize(
    ("point", "nearest"),
    [("-122.51531, 37.7", 24), ("-122.34989::DECIMAL(18, 5), 37.7", 47), ("-122.4, 90", 376), ("-1000000000, 37.7", 24)],
)
def test_a_point_outside_is_refused_without_a_word_about_it_or_taken_to_the_nearest_cell(
    con: DuckDBPyConnection, point: str, nearest: int
) -> None:
    with pytest.raises(Exception, match="a point lies outside the grid") as caught:
        con.execute(f"SELECT ldp.cell({point}, {GRID})")
    assert "LDP302" in str(caught.value)
    assert not any(digits in str(caught.value) for digits in ("122.", "37.7", "1000000000"))
    assert con.execute(f"SELECT ldp.cell({point}, {GRID}, outside := 'nearest')").fetchone() == (nearest,)


def test_null_stays_null_and_what_is_not_a_number_is_refused(con: DuckDBPyConnection) -> None:
    rows = con.execute(f"SELECT ldp.cell(NULL, 37.7, {GRID}), ldp.cell(-122.4, NULL::DOUBLE, {GRID})").fetchone()
    assert rows == (None, None)
    for bad, complaint in (
        ("'NaN'::DOUBLE", "LDP302"),
        ("'inf'::DOUBLE", "LDP302"),
        ("'x'", "LDP304"),
        ("1::DECIMAL(38, 20)", "LDP304"),
        ("true", "LDP304"),
    ):
        with pytest.raises(Exception, match=complaint):
            con.execute(f"SELECT ldp.cell({bad}, 37.7, {GRID}, outside := 'nearest')")
    with pytest.raises(Exception, match="outside must be 'nearest' or NULL"):
        con.execute(f"SELECT ldp.cell(-122.4, 37.7, {GRID}, outside := 'clip')")


def test_the_centre_of_every_cell_lies_in_it(con: DuckDBPyConnection) -> None:
    query = f"""SELECT count(*), count(DISTINCT c), bool_and(ldp.cell(c.lon, c.lat, {GRID}) = cell)
                FROM (SELECT cell, ldp.cell_centre(cell, {GRID}) AS c FROM (SELECT unnest(ldp.cells({GRID})) AS cell))"""
    assert con.execute(query).fetchone() == (384, 384, True)
    first = con.execute("SELECT unnest(ldp.cell_centre(x, ldp.grid(0, 0, 30, 2, 3, 2))) FROM (VALUES (4), (NULL)) t(x)")
    assert first.fetchall() == [(15.0, 1.5), (None, None)]
    for bad, code in (("6", "LDP302"), ("-1", "LDP302"), ("1.5", "LDP304")):
        with pytest.raises(Exception, match=code):
            con.execute(f"SELECT ldp.cell_centre({bad}, ldp.grid(0, 0, 30, 2, 3, 2))")


@pytest.mark.parametrize(
    "bounds",
    [
        "1, 0, 1, 1, 2, 2",
        "0, 2, 1, 1, 2, 2",
        "0, 0, 1, 1, 1, 1",
        "0, 0, 1, 1, 2.5, 2",
        "0, 0, 1, 1, 500, 500",
        "'x', 0, 1, 1, 2, 2",
    ],
)
def test_a_grid_that_is_none_is_refused(con: DuckDBPyConnection, bounds: str) -> None:
    with pytest.raises(Exception, match="LDP103"):
        con.execute(f"SELECT ldp.cell(0.5, 0.5, ldp.grid({bounds}))")
    with pytest.raises(Exception, match="LDP104"):
        con.execute("SELECT ldp.cell(0.5, 0.5, {'west': 1})")


def test_a_grid_in_python_says_what_is_wrong() -> None:
    with pytest.raises(LdpError, match="west before its east"):
        Region(west=2, south=0, east=1, north=1, columns=2, rows=2)
    with pytest.raises(LdpError, match="needs the parameter rows"):
        Region(west=0, south=0, east=1, north=1, columns=2)  # type: ignore[call-arg]


def test_a_million_points_and_none() -> None:
    with ldpsql.connect() as con:
        query = f"SELECT count(ldp.cell(-122.5 + i / 1e7, 37.7 + i / 1e7, {GRID})) FROM range({{}}) t(i)"
        assert con.execute(query.format(1_000_000)).fetchone() == (1_000_000,)
        assert con.execute(query.format(0)).fetchone() == (0,)
