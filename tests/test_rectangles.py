"""Rectangles of a map: the hierarchy of squares, and shares of longitudes and latitudes with errors that hold."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import ldpsql
from ldpsql import Epsilon, Estimate, KeepOrSpread, Mechanism, certify
from ldpsql.errors import InvalidDomain, InvalidParameter, OutsideDomain
from ldpsql.estimates.spans import Rectangle
from ldpsql.functions import registry
from ldpsql.mechanisms import Levels, PureLdp, Region
from ldpsql.mechanisms.trees import counts_of_levels, rectangle_error, scatter
from ldpsql.questions import Estimates, RectangleShares
from ldpsql.testing import estimate_counts, operator_of
from tests import seeds
from tests.commands import run

RNG = seeds.generator(__name__)
SIDE = Region(west=0, south=0, east=6, north=4, columns=6, rows=4)  # cells of one unit
BAY = "ldp.grid(-122.5, 37.7, -122.3, 37.8, 8, 4)"


def mechanism(text: str) -> Mechanism:
    return registry().mechanism(text)


# The mechanism


@pytest.mark.parametrize("text", ["1, 6, 4", "0.5, 3, 3", "2, 2, 9, fanout=3, levels=2", "4, 12, 5", "0.1, 40, 30"])
def test_the_mechanism_keeps_its_epsilon_in_whole_numbers(text: str) -> None:
    made = mechanism(f"grid_hierarchy({text})")
    proof = certify(made).certificate
    assert isinstance(proof.claim, PureLdp)
    assert proof.ratio is not None
    assert proof.ratio <= proof.claim.epsilon.exp_below()


def test_the_largest_ratio_is_that_of_all_pairs_of_cells_and_reports() -> None:
    channel = mechanism("grid_hierarchy(1, 4, 3, levels=2)").channel()
    assert isinstance(channel, Levels)
    rows = [[channel.probability(x, y) for y in range(channel.outputs)] for x in range(channel.inputs)]
    assert all(sum(row) == 1 for row in rows)
    assert max(max(column) / min(column) for column in zip(*rows, strict=True)) == channel.widest().ratio
    assert channel.widest().ratio <= Epsilon.parse("1").exp_below()


def test_a_report_is_of_a_square_of_cells() -> None:
    channel = mechanism("grid_hierarchy(1, 6, 4, fanout=2, levels=2)").channel()
    assert isinstance(channel, Levels)
    assert channel.counts == [24, 6]
    assert channel.nodes(np.arange(24), 1).reshape(4, 6).tolist() == [[0, 0, 1, 1, 2, 2]] * 2 + [[3, 3, 4, 4, 5, 5]] * 2
    assert isinstance(channel.responses[1], KeepOrSpread)


@pytest.mark.parametrize(("shape", "fanout", "levels"), [((8, 8), 2, 3), ((6, 12), 3, 2), ((4, 8), 2, 2), ((5, 7), 2, 1)])
def test_the_expected_error_is_that_of_all_rectangles_under_the_inverse_of_the_information(
    shape: tuple[int, int], fanout: int, levels: int
) -> None:
    epsilon, (row, column) = Epsilon.parse("1"), np.divmod(np.arange(shape[0] * shape[1]), shape[1])
    variances = [levels * scatter(epsilon, count) for count in counts_of_levels(shape, fanout, levels)]
    information = np.full((len(row), len(row)), 1e7)  # the total is known
    for level, variance in enumerate(variances):
        along, across = (place // fanout**level for place in (row, column))
        information += ((along[:, None] == along) & (across[:, None] == across)) / variance
    inverse = np.linalg.inv(information).reshape(*shape, *shape)
    running = np.pad(inverse, ((1, 0),) * 4).cumsum(0).cumsum(1).cumsum(2).cumsum(3)
    rows, columns = ([(a, b) for a in range(size) for b in range(a + 1, size + 1)] for size in shape)
    errors = []
    for a, b in rows:
        for c, d in columns:
            inside = running[b, d] - running[a, d] - running[b, c] + running[a, c]
            errors.append(inside[b, d] - inside[a, d] - inside[b, c] + inside[a, c])
    assert rectangle_error(variances, shape, fanout) == pytest.approx(np.mean(errors), rel=1e-4)


def test_fanout_and_levels_are_chosen_and_part_of_the_mechanism() -> None:
    chosen = mechanism("grid_hierarchy(1, 24, 16)")
    assert (chosen.fanout, chosen.levels) == (2, 4)  # type: ignore[attr-defined]
    assert mechanism(str(chosen)) == chosen
    assert mechanism("grid_hierarchy(1, 24, 16, fanout=3)").fanout == 3  # type: ignore[attr-defined]
    assert mechanism("grid_hierarchy(1, 24, 16, levels=1)").levels == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", ["1, 4, 4, levels=5", "1, 4, 4, fanout=4, levels=2", "1, 1000, 400", "1, 1, 9", "0, 4, 4"])
def test_a_tree_that_the_grid_does_not_fill_is_refused(text: str) -> None:
    with pytest.raises(ldpsql.LdpError):
        certify(mechanism(f"grid_hierarchy({text})"))


def test_a_cell_outside_the_grid_is_refused_without_its_number() -> None:
    with pytest.raises(OutsideDomain) as refused:
        ldpsql.perturb(pa.array([977]), mechanism("grid_hierarchy(1, 6, 4)"))
    assert "977" not in str(refused.value)


# Rectangles


def covered(*sides: Any) -> NDArray[np.float64]:
    """Return which part of each cell a rectangle covers, the northern row first."""
    return RectangleShares(SIDE, ())._covered(Rectangle.of(sides)).reshape(4, 6)[::-1]


def test_a_rectangle_covers_whole_cells_and_parts_of_those_that_a_side_cuts() -> None:
    assert covered(1, 1, 3, 2).tolist() == [[0] * 6, [0] * 6, [0, 1, 1, 0, 0, 0], [0] * 6]
    assert covered(None, None, None, None).min() == 1
    assert covered(-9, 3, "0.5", 99).tolist() == [[0.5, 0, 0, 0, 0, 0], *([[0] * 6] * 3)]
    assert covered(7, 0, 8, 1).max() == 0
    assert covered("2.25", 0, "2.5", "0.5").sum() == covered("2.25", 0, "2.5", "0.5")[3, 2] == 0.125


def test_a_side_next_to_an_edge_cuts_a_cell_however_little() -> None:
    little = Fraction(1, 10**40)
    part = covered(1 - little, 0, 3 - little, 1)[3]
    assert 0 < part[0] < 1e-39
    assert part[1] == 1
    assert 0.99 < part[2] < 1


def test_rectangles_that_share_a_side_share_no_cell() -> None:
    parts = [covered(0, 0, 3, 4), covered(3, 0, 6, 4)]
    assert (parts[0] * parts[1] == 0).all()
    assert (parts[0] + parts[1] == 1).all()


@pytest.mark.parametrize(
    "sides", [(1, 0, 1, 4), (2, 0, 1, 4), (0, 4, 1, 0), ("x", 0, 1, 1), (float("nan"), 0, 1, 1), (1, 2, 3)]
)
def test_what_is_not_a_rectangle_is_refused(sides: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidParameter):
        shares(estimates(mechanism("grid_hierarchy(1, 6, 4)"), crowd(SIDE), 100, 1)[0], sides)


@pytest.mark.parametrize(
    ("bounds", "sides"),
    [((0, 0, 6), [(0, 0, 1, 1)]), (None, [(0, 0, 1, 1)]), ((0, 0, 6, 4), []), ((0, 0, 6, 4), [5]), ((0, 0, 6, 4), [(0, 0, 1)])],
)
def test_python_refuses_bounds_and_rectangles_of_other_shapes(bounds: Any, sides: Any) -> None:
    estimate = ldpsql.estimate(list(range(24)), "planar_geometric(1, 6, 4)")
    with pytest.raises(InvalidParameter):
        ldpsql.rectangle_shares(estimate, bounds, sides)


def shares(one: Estimate, *sides: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Return a row for each rectangle with these sides."""
    return list(ldpsql.rectangle_shares(one, (0, 0, 6, 4), sides).to_pylist())


def estimates(made: Mechanism, theta: NDArray[np.float64], n: int, groups: int, name: str = "inv") -> Estimates:
    """Return the estimates of several groups of n honest reports."""
    law = operator_of(made).forward(theta)
    return estimate_counts(made, RNG.multinomial(n, law / law.sum(), groups).astype(np.float64), registry().estimator(name))


def crowd(region: Region) -> NDArray[np.float64]:
    row, column = np.divmod(np.arange(len(region)), region.columns)
    weight = np.exp(-((row - 2) ** 2 + (column - 3) ** 2) / 4) + 0.02
    return np.asarray(weight / weight.sum())


@pytest.mark.parametrize("text", ["grid_hierarchy(1, 6, 4)", "planar_geometric(1, 6, 4)", f"olh(1, {list(range(24))})"])
def test_errors_of_rectangles_hold(text: str) -> None:
    groups, theta = 400, crowd(SIDE)
    asked = RectangleShares(SIDE, tuple(map(Rectangle.of, [(0, 0, 3, 2), (1, 1, 5, 4), (4, 3, 6, 4)])))
    measured = asked.measure(estimates(mechanism(text), theta, 20_000, groups))
    truth = np.array([theta @ asked._covered(one) for one in asked.rectangles])
    held = ((measured.low <= truth) & (truth <= measured.high)).sum(axis=0)
    assert (held >= 352).all()  # a count of 400 with probability .95 is below with probability 4e-7
    assert (measured.std_error < 0.15).all()


def test_rectangles_of_whole_cells_add_up_and_the_whole_grid_has_no_error() -> None:
    of = estimates(mechanism("grid_hierarchy(1, 6, 4)"), crowd(SIDE), 5_000, 1)[0]
    one, other, both, whole = shares(of, (1, 0, 3, 2), (3, 0, 5, 2), (1, 0, 5, 2), (None, None, 9, 9))
    assert one["estimate"] + other["estimate"] == pytest.approx(both["estimate"])
    assert [whole[name] for name in ("estimate", "low", "high")] == pytest.approx([1.0] * 3)
    assert whole["std_error"] == pytest.approx(0.0, abs=1e-9)


def test_a_cut_cell_widens_the_interval_to_both_of_its_cases() -> None:
    of = estimates(mechanism("grid_hierarchy(2, 6, 4)"), crowd(SIDE), 20_000, 1)[0]
    inner, cut, outer = shares(of, (1, 0, 3, 2), (1, 0, "3.5", 2), (1, 0, 4, 2))
    assert cut["low"] <= inner["low"]
    assert cut["high"] >= outer["high"] - 1e-12
    assert cut["estimate"] == pytest.approx((inner["estimate"] + outer["estimate"]) / 2)


def test_a_level_without_reports_and_a_single_report_give_no_certainty() -> None:
    made = mechanism("grid_hierarchy(1, 6, 4)")
    channel = certify(made).channel
    assert isinstance(channel, Levels)
    counts = np.zeros((2, channel.outputs))
    counts[0, channel.starts[-2] :] = 50.0  # the largest squares only
    counts[1, 0] = 1.0
    of = estimate_counts(made, counts, registry().estimator("inv(misfit='allow')"))
    for group in range(2):
        (share,) = shares(of[group], (1, 1, 2, 2))
        assert share["low"] <= 0
        assert share["high"] >= 1


@pytest.mark.parametrize("text", ["krr(1, [1, 2])", "krr(1, ['a', 'b'])", f"krr(1, {list(range(1, 25))})"])
def test_mechanisms_over_other_values_than_the_cells_are_refused(text: str) -> None:
    one = estimate_counts(mechanism(text), np.ones((1, operator_of(mechanism(text)).outputs)), registry().estimator("inv"))[0]
    with pytest.raises((InvalidDomain, InvalidParameter)):
        shares(one, (1, 1, 2, 2))


# SQL, Python and the command line


@pytest.fixture(scope="module")
def places() -> duckdb.DuckDBPyConnection:
    con = ldpsql.connect()
    con.execute(f"CREATE MACRO bay() AS {BAY}; CREATE MACRO place() AS ldp.grid_hierarchy(4, 8, 4)")
    con.execute("CREATE TABLE people AS SELECT i % 2 AS g, -122.5 + 0.2 * (i % 97) / 97 AS lon, 37.7 + (i % 89) / 890 AS lat"
                " FROM range(8000) t(i)")  # fmt: skip
    con.execute(
        "CREATE TABLE reports AS SELECT g, ldp.perturb(ldp.cell(lon, lat, bay()), place()) AS cell,"
        " ldp.perturb(ldp.cell(lon, lat, bay()), ldp.planar_geometric(2, 8, 4)) AS noisy FROM people"
    )
    return con


EAST = "{'lon': -122.4, 'lat': 37.7}, {'lon': -122.3, 'lat': 37.75}"


def test_sql_estimates_a_rectangle_of_longitudes_and_latitudes(places: duckdb.DuckDBPyConnection) -> None:
    ((truth,),) = places.execute("SELECT avg((lon >= -122.4 AND lat < 37.75)::INTEGER) FROM people").fetchall()
    for column, made in (("cell", "place()"), ("noisy", "ldp.planar_geometric(2, 8, 4)")):
        call = f"ldp.range_share({column}, {made}, {EAST}, grid := bay())"
        ((one,),) = places.execute(f"SELECT {call} FROM reports").fetchall()
        assert abs(one["estimate"] - truth) < 0.1
        assert one["low"] <= one["estimate"] <= one["high"]
        assert 0 < one["std_error"] < 0.05
    grouped = places.execute(f"SELECT g, ldp.range_share(cell, place(), {EAST}, grid := bay()) FROM reports GROUP BY g")
    assert len(grouped.fetchall()) == 2


def test_several_rectangles_counts_and_keep_agree_with_one(places: duckdb.DuckDBPyConnection) -> None:
    lists = "[{'lon': -122.4, 'lat': 37.7}, NULL], [{'lon': -122.3, 'lat': 37.75}, {'lon': NULL, 'lat': 37.75}]"
    ((several, counted, single, nothing),) = places.execute(f"""
        SELECT ldp.range_share(cell, place(), {lists}, grid := bay()),
            ldp.range_share(ldp.counts(cell), place(), {lists}, grid := bay()),
            ldp.range_share(cell, place(), {EAST}, grid := bay()),
            ldp.range_share(cell, place(), {EAST}, keep := g > 7, grid := bay()) FROM reports""").fetchall()
    assert several[0] == pytest.approx(counted[0])
    assert several[0] == pytest.approx(single)
    assert several[1] == pytest.approx(counted[1])
    assert several[1]["estimate"] >= single["estimate"]
    assert nothing is None


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (f"{EAST})", "no order"),
        (f"{EAST}, grid := 5)", "not a grid"),
        (f"{EAST}, grid := ldp.grid(-122.5, 37.7, -122.3, 37.8, 4, 8))", "8 columns and 4 rows"),
        ("3, 9, grid := bay())", "must be points"),
        ("3, 9)", "no order"),
        ("{'lon': -122.3, 'lat': 37.75}, {'lon': -122.4, 'lat': 37.7}, grid := bay())", "west before its east"),
        ("{'lon': 'canary', 'lat': 1}, NULL, grid := bay())", "four numbers"),
        (
            "{'lon': 37.7, 'lat': -122.4}, {'lon': 37.75, 'lat': -122.3}, grid := bay())",
            "outside the grid. Hint: longitude comes",
        ),
    ],
)
def test_what_is_not_a_rectangle_of_the_grid_is_refused_in_sql(
    call: str, words: str, places: duckdb.DuckDBPyConnection
) -> None:
    with pytest.raises(duckdb.Error, match=words) as refused:
        places.execute(f"SELECT ldp.range_share(cell, place(), {call} FROM reports").fetchall()
    assert "canary" not in str(refused.value)


def test_points_need_a_grid_also_if_the_values_are_ordered(con: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error, match="corners of a rectangle"):
        con.execute(f"SELECT ldp.range_share(x, ldp.krr(1, range(9)), {EAST}) FROM (SELECT 1 AS x)").fetchall()


def test_the_command_line_and_python_give_the_same_rectangles(places: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    reports = places.sql("SELECT g, cell FROM reports").to_arrow_table()
    pq.write_table(reports, tmp_path / "cells.parquet")
    bounds, made = (-122.5, 37.7, -122.3, 37.8), "grid_hierarchy(4, 8, 4)"
    grid = dict(zip(("west", "south", "east", "north", "columns", "rows"), (*bounds, 8, 4), strict=True))
    lows = [{"lon": -122.4, "lat": 37.7}, None]
    highs = [{"lon": -122.3, "lat": 37.75}, {"lon": -122.4, "lat": None}]
    given = [f"--{name}={json.dumps(one)}" for name, one in {"low": lows, "high": highs, "grid": grid}.items()]
    asked = ("ask", "range_share", str(tmp_path / "cells.parquet"), "cell", "-m", made, *given)
    done = run(*asked, "--format=json")
    assert done.returncode == 0, done.stderr
    table = ldpsql.rectangle_shares(
        ldpsql.estimate(reports["cell"], made), bounds, [(-122.4, "37.7", -122.3, 37.75), (None, None, -122.4, None)]
    )
    numbers = [[row[name] for name in ("estimate", "std_error", "low", "high")] for row in table.to_pylist()]
    assert [list(row.values())[:4] for row in json.loads(done.stdout)] == numbers
    assert len(run(*asked, "--by=g").stdout.splitlines()) == 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--low=[0, 1]", "--high=[2, 3]"], "must be points"),
        (['--low={"lon": 9, "lat": 9}', "--high=null"], "outside the grid"),
        (["--low=null"], "'range_share' needs high"),
    ],
)
def test_the_command_line_refuses_corners_that_do_not_fit(options: list[str], words: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"cell": [1, 2, 3]}), tmp_path / "cells.parquet")
    grid = '--grid={"west": 0, "south": 0, "east": 8, "north": 4, "columns": 8, "rows": 4}'
    asked = ("ask", "range_share", str(tmp_path / "cells.parquet"), "cell", "-m", "planar_geometric(1, 8, 4)")
    done = run(*asked, grid, *options)
    assert done.returncode != 0
    assert words in done.stderr
