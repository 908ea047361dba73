"""Maps of up to 160,000 cells: noise on the plane that is certified once, drawn from one table and read by transforms."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from math import exp
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql import Certificate, DenseChannel, Epsilon, Estimate, Likelihood, Status
from ldpsql.channels import PlanarNoise
from ldpsql.channels.noise import PlanarDecay
from ldpsql.errors import InvalidParameter, NotApplicable, NotPrivate
from ldpsql.estimates.estimate import estimator_of_shares
from ldpsql.functions import registry
from ldpsql.inference.operators import PlaneOperator
from ldpsql.mechanisms import TOTAL, Grid, MetricLdp, Region, certify, certify_values, clamped_plane, reduced
from ldpsql.questions import distances
from ldpsql.testing import DenseOperator, certificate, estimate_counts, operator_of
from tests.commands import printed, run
from tests.seeds import generator

RNG = generator(__name__)
SIDE = 70
SMALL = [(2, 2, "1", 1), (3, 2, "3", 5), (5, 4, "0.7", 3), (9, 9, "8", 9), (12, 7, "0.2", 3), (3, 3, "32", 65)]


def noise(columns: int, rows: int, epsilon: str, points: int) -> PlanarNoise:
    return PlanarDecay.within(columns, rows, reduced(Epsilon.parse(epsilon).value), points).noise()


def claim(columns: int, rows: int, epsilon: str) -> MetricLdp:
    return MetricLdp(Epsilon.parse(epsilon), Grid(columns, rows, Fraction(1)))


def only_own_cell(floor: int) -> PlanarNoise:
    """Four cells: the own one has the weight 2**64 - 3 floor, the others the floor."""
    return PlanarNoise(np.array([TOTAL - 4 * floor], dtype=np.uint64), 2, 2, 1, np.full((2, 2), floor, dtype=np.uint64))


def falling_by(logs: list[float]) -> PlanarNoise:
    """Noise with these logarithms of weights at squared distances 0, 1, .., 80 in a large rectangle, whose corner is likely."""
    unit, floor, size = 2**40, round(2**40 * exp(logs[-1] - 0.01)), 12
    heights = [round(unit * exp(log)) - floor for log in logs]
    floors = np.full((size, size), 100 * floor, dtype=np.uint64)
    floors[1:-1, 1:-1] = floor
    points = [i * i + j * j for i in range(-9, 10) for j in range(-9, 10)]
    floors[0, 0] += np.uint64(TOTAL - int(floors.sum()) - sum(heights[n] for n in points if n < len(heights)))
    return PlanarNoise(np.array(heights, dtype=np.uint64), size, size, 1, floors)


def in_turn(words: np.ndarray) -> Callable[[int], np.ndarray]:
    """Return a source of bits that gives these words, one after the other."""
    left = iter(words.tolist())
    return lambda count: np.array([next(left) for _ in range(count)], dtype=np.uint64)


def bumps(columns: int, rows: int) -> np.ndarray:
    row, column = np.mgrid[:rows, :columns]
    mass = sum(np.exp(-((column - columns * x) ** 2 + (row - rows * y) ** 2) / 60) for x, y in ((0.2, 0.3), (0.7, 0.6)))
    return np.asarray(mass / np.sum(mass)).ravel()


def reported(people: int, columns: int = SIDE, rows: int = SIDE, epsilon: str = "0.5") -> tuple[np.ndarray, np.ndarray]:
    """Return the true shares and the counts of reports."""
    truth, size = bumps(columns, rows), columns * rows
    channel = certify_values(registry().mechanism(f"planar_geometric({epsilon}, {columns}, {rows})")).channel
    drawn = channel.draw(RNG.choice(size, people, p=truth).astype(np.int32))
    return truth, np.bincount(drawn, minlength=size)[None].astype(np.float64)


def estimated(counts: np.ndarray, estimator: str) -> Estimate:
    mechanism = registry().mechanism(f"planar_geometric(0.5, {SIDE}, {SIDE})")
    return estimate_counts(mechanism, counts, registry().estimator(estimator))[0]


# --- the channel ---


@pytest.mark.parametrize(("columns", "rows", "epsilon", "points"), SMALL)
def test_noise_on_the_plane_is_the_same_with_and_without_a_table(columns: int, rows: int, epsilon: str, points: int) -> None:
    channel = noise(columns, rows, epsilon, points)
    table = clamped_plane(columns, rows, reduced(Epsilon.parse(epsilon).value), points)
    assert channel.probabilities() == pytest.approx(table / table.sum(axis=1, keepdims=True), abs=1e-10)
    assert {sum(row) for row in channel.weights().tolist()} == {TOTAL}


@pytest.mark.parametrize(("decay", "points"), [(0.05, 1), (0.7, 3), (2.0, 17), (31.9, 65), (100.0, 1)])
def test_a_weight_in_whole_numbers_is_the_exact_one_rounded_down_by_less_than_ten(decay: float, points: int) -> None:
    numbers = PlanarDecay.within(4, 4, decay, points)
    falling = numbers.falling()
    with localcontext(prec=50):
        step = Decimal(numbers.step) / 2**44
        for n in {0, *RNG.integers(0, len(falling), 300).tolist()}:
            exact = numbers.peak * (-step * Decimal(n).sqrt()).exp()
            assert -1e-9 * float(exact) < float(exact - int(falling[n])) < 10


@pytest.mark.parametrize(("columns", "rows", "epsilon", "points"), SMALL)
def test_the_sampler_moves_every_value_by_its_weights(columns: int, rows: int, epsilon: str, points: int) -> None:
    """The weights of the entries are recounted from the table by its definition, and one word of each part is drawn with."""
    channel = noise(columns, rows, epsilon, points)
    packed, bits = [int(w) for w in channel.tables.packed[0]], channel.tables.bits
    starts, weights = [], []
    for column, entry in enumerate(packed):
        threshold, start = entry >> bits, column << (64 - bits)
        starts += [start] * (threshold > 0) + [start + threshold]
        weights += [threshold] * (threshold > 0) + [(1 << (64 - bits)) - threshold]
    words = np.array(starts, dtype=np.uint64)
    for value in {0, columns * rows // 2, columns * rows - 1}:
        drawn = channel.draw(np.full(len(words), value, dtype=np.int32), in_turn(words))
        recounted = Counter[int]()
        for report, weight in zip(drawn.tolist(), weights, strict=True):
            recounted[report] += weight
        assert [recounted[z] for z in range(columns * rows)] == channel.weights()[value].tolist()


@pytest.mark.parametrize(("columns", "rows", "epsilon", "points"), SMALL)
def test_the_certificate_of_the_noise_bounds_that_of_all_pairs(columns: int, rows: int, epsilon: str, points: int) -> None:
    channel, claimed = noise(columns, rows, epsilon, points), claim(columns, rows, epsilon)
    proof, all_pairs = certificate(channel, claimed), certificate(DenseChannel(channel.weights()), claimed)
    assert all_pairs.epsilon <= proof.epsilon + 1e-12 <= float(epsilon) + 1e-12
    assert proof.ratio is not None
    high, low = (int(w) for w in channel.weights()[[proof.value, proof.other], proof.report])
    assert proof.ratio == Fraction(high, low)
    assert proof.ratio <= claimed.limit(proof.value, proof.other)


def test_noise_of_one_point_a_cell_wastes_nothing() -> None:
    for text in ("planar_geometric(0.2, 300, 20)", "planar_geometric('0.05', 70, 90, side=2)"):
        proof = certify(registry().mechanism(text)).certificate
        assert 0 <= proof.slack < 1e-10


# --- planted bugs ---


def test_a_ratio_that_is_one_unit_too_large_is_refused() -> None:
    limit = claim(2, 2, "1").limit(0, 1)
    floor = -(-TOTAL // (limit + 3))  # the smallest one that keeps the ratio (2**64 - 3 floor) / floor
    assert certificate(only_own_cell(floor), claim(2, 2, "1")).slack < 1e-15
    with pytest.raises(NotPrivate, match="above the claimed 1 per unit of distance"):
        certificate(only_own_cell(floor - 1), claim(2, 2, "1"))


def test_noise_that_falls_too_fast_over_more_than_one_cell_is_refused() -> None:
    """From the own cell to the next one, and from that to the diagonal one, it falls by e: by e^2 over a distance of 1.41."""
    gentle = [-0.99 * n**0.5 for n in range(81)]
    assert certificate(falling_by(gentle), claim(12, 12, "1")).epsilon == pytest.approx(0.99, abs=1e-6)
    steep = gentle[:2] + [gentle[4]] * 2 + gentle[4:]
    with pytest.raises(NotPrivate, match="above the claimed"):
        certificate(falling_by(steep), claim(12, 12, "1"))


def test_noise_that_falls_too_fast_within_one_cell_is_refused() -> None:
    """From the diagonal cell to the next one it falls by e^1.02; pairs that are farther apart keep the claim."""
    far = [-1.82 - 0.9 * (n**0.5 - 7**0.5) for n in range(8, 81)]
    kept, exceeded = (falling_by([0, -0.6, -0.8, -1.0, -1.3, fifth, -1.82, -1.82, *far]) for fifth in (-1.78, -1.82))
    assert certificate(kept, claim(12, 12, "1")).epsilon < 1
    with pytest.raises(NotPrivate, match="above the claimed"):
        certificate(exceeded, claim(12, 12, "1"))


def test_noise_that_does_not_fit_its_definition_is_refused() -> None:
    channel = noise(5, 4, "0.7", 1)
    rising = channel.falling.copy()
    rising[1], rising[2] = rising[2], rising[1]
    heavy = np.full(10, 2**63, dtype=np.uint64)  # sums that overflow
    for falling, floor in (
        (rising, channel.floor),
        (channel.falling, channel.floor + np.uint64(1)),
        (heavy, channel.floor),
        (channel.falling, channel.floor.T),
        (channel.falling.astype(np.int64), channel.floor),
    ):
        with pytest.raises(InvalidParameter):
            PlanarNoise(falling, 5, 4, 1, floor)  # type: ignore[arg-type]  # on purpose
    # A corner collects the spread of all points beyond it.
    low = channel.floor.copy()
    low[1, 1] += low[0, 0] - np.uint64(1)
    low[0, 0] = 1
    lower = PlanarNoise(channel.falling, 5, 4, 1, low)
    assert lower.spread == 0
    with pytest.raises(NotPrivate):
        certificate(lower, claim(5, 4, "0.7"))


@pytest.mark.parametrize("wrong", [claim(4, 5, "0.7"), claim(10, 2, "0.7")])
def test_noise_on_another_grid_is_refused(wrong: MetricLdp) -> None:
    with pytest.raises(NotPrivate, match="grid of its cells"):
        certificate(noise(5, 4, "0.7", 1), wrong)


def test_pairs_that_doubles_cannot_decide_are_decided_by_whole_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    def proven(doubt: float) -> Certificate:
        monkeypatch.setattr("ldpsql.privacy.certificate._DOUBT", doubt)
        monkeypatch.setattr("ldpsql.privacy.certificate._MOST_DECIDED", 10**6)
        return certificate(noise(3, 3, "8", 1), claim(3, 3, "8"))

    assert proven(1e-12) == proven(1e-3)


# --- estimates ---


@pytest.mark.parametrize("name", ["planar_geometric", "planar_laplace"])
@pytest.mark.parametrize(("columns", "rows", "epsilon"), [(3, 2, "1"), (40, 25, "0.3"), (31, 17, "2")])
def test_noise_on_the_plane_by_transforms_is_the_same_map(name: str, columns: int, rows: int, epsilon: str) -> None:
    mechanism = registry().mechanism(f"{name}({epsilon}, {columns}, {rows})")
    channel: Any = certify_values(mechanism).channel
    op, table = operator_of(mechanism), channel.probabilities()
    theta, w = RNG.dirichlet(np.ones(op.inputs), 3), RNG.random((3, op.outputs))
    for groups in (0, slice(0, 1), slice(None)):
        assert op.forward(theta[groups]) == pytest.approx(theta[groups] @ table, rel=1e-9, abs=1e-15)
        assert op.adjoint(w[groups]) == pytest.approx(w[groups] @ table.T, rel=1e-10)


def by_transforms(epsilon: str) -> tuple[Likelihood, Likelihood]:
    """Return the same likelihood of a map twice, by transforms and by the table of all pairs of cells."""
    channel = noise(40, 25, epsilon, 1)
    counts = np.random.default_rng(1).poisson(3_000 * (bumps(40, 25) @ channel.probabilities()))[None].astype(np.float64)
    return Likelihood(PlaneOperator(channel), counts), Likelihood(DenseOperator(channel.probabilities()), counts)


@pytest.mark.parametrize("epsilon", ["0.2", "0.5", "2"])
def test_the_maximum_of_a_map_by_transforms_is_certified(epsilon: str) -> None:
    one, other = by_transforms(epsilon)
    fit = registry().estimator("ibu").fit(one)
    assert fit.status == (Status.CERTIFIED,)
    assert other.gap(fit.theta)[0] < 2e-9


def test_held_out_steps_and_best_are_closer_to_the_truth_than_the_reports() -> None:
    truth, counts = reported(100_000)
    error = {name: float(np.abs(estimated(counts, name).estimate - truth).sum()) / 2
             for name in ("observed", "ibu(stop='held_out')", "best")}  # fmt: skip
    assert error["ibu(stop='held_out')"] < 0.5 * error["observed"]
    assert error["best"] < 0.5 * error["observed"]


def test_the_curvature_of_a_corner_is_that_of_the_table_of_all_cells(capfd: pytest.CaptureFixture[str]) -> None:
    channel, corner, weights = noise(50, 40, "4", 1), np.array([0, 1, 50]), RNG.uniform(1.0, 2.0, 2000)
    table = channel.probabilities()[corner]
    rough = PlaneOperator(channel).rough_curvature(weights, corner)
    assert rough == pytest.approx((table * weights) @ table.T, rel=1e-3)  # without rare noise that reaches far
    assert capfd.readouterr() == ("", "")  # of parts that noise does not reach, BLAS would print that they are empty


def test_reports_with_two_epsilons_are_read_together(con: DuckDBPyConnection) -> None:
    levels = "{'far': ldp.planar_geometric(0.5, 70, 70), 'near': ldp.planar_geometric(2, 70, 70)}"
    con.execute(f"""CREATE TABLE mixed AS SELECT level, ldp.perturb(i % 100, {levels}, level) AS cell
                    FROM (SELECT i, ['far', 'near'][1 + i % 2] AS level FROM range(2000) t(i))""")
    rows = con.execute(
        f"SELECT unnest(ldp.ibu({{level: level, report: cell}}, {levels}, stop := 3), recursive := true) FROM mixed"
    )
    assert sum(row[1] for row in rows.fetchall()) == pytest.approx(1)


def test_the_maximum_of_a_large_map_has_an_honest_status() -> None:
    _, counts = reported(20_000)
    with_time, cut = estimated(counts, "ibu(max_iterations=20)"), estimated(counts, "ibu(deadline=1e-6)")
    assert not with_time.diagnosis.unique
    assert [ends.max() for ends in with_time.identified] == [0, 1]
    assert [one.diagnosis.status for one in (with_time, cut)] == ["out of steps", "out of time"]
    assert with_time.diagnosis.gap > 1e-9
    assert "held_out" in with_time.diagnosis.remedy
    assert np.isinf(with_time.std_error).all()
    assert (with_time.low <= with_time.estimate).all()
    assert (with_time.high == 1).all()


@pytest.mark.parametrize("name", ["inv", "inv_n", "inv_p", "iiw", "base_cut", "empirical_bayes", "pool", "em_mr"])
def test_estimators_that_need_all_pairs_refuse_a_large_map(name: str) -> None:
    with pytest.raises(NotApplicable, match=r"4,900 cells is not computed.*held_out"):
        estimated(np.ones((1, SIDE**2)), name)


def test_nothing_lists_all_pairs_of_cells_of_a_large_map(con: DuckDBPyConnection) -> None:
    mechanism = registry().mechanism("planar_laplace(0.5, 300, 300)")
    channel = certify_values(mechanism).channel
    even = np.full(90_000, 1 / 90_000)
    for listing in (channel.weights, lambda: distances.emd(even, even, Grid(300, 300, Fraction(1)))):  # type: ignore[attr-defined]
        with pytest.raises(NotApplicable, match="90,000"):
            listing()
    for sql in ("ldp.information(ldp.planar_laplace(0.5, 300, 300), list_transform(range(90000), lambda x: 1))",):
        with pytest.raises(duckdb.Error, match="LDP103"):
            con.execute(f"SELECT {sql}").fetchall()


def test_a_large_map_is_perturbed_and_read_in_sql(con: DuckDBPyConnection) -> None:
    con.execute(f"CREATE MACRO place() AS ldp.planar_geometric(0.5, {SIDE}, {SIDE})")
    con.execute("CREATE TABLE people AS SELECT 1000 + i % 50 AS cell FROM range(4000) t(i)")
    con.execute("CREATE TABLE noisy AS SELECT ldp.perturb(cell, place()) AS cell FROM people ORDER BY random()")
    rows = con.execute("SELECT unnest(ldp.ibu(cell, place(), stop := 5), recursive := true) FROM noisy").fetchall()
    assert len(rows) == SIDE**2
    assert sum(row[1] for row in rows) == pytest.approx(1)
    with pytest.raises(duckdb.Error, match=r"LDP103.*at most 160000 cells"):
        con.execute("SELECT ldp.describe(ldp.planar_laplace(1, 401, 400))")


@pytest.mark.slow
def test_a_large_map_is_read_up_to_the_step_that_predicts_best_unless_an_estimator_is_named(con: DuckDBPyConnection) -> None:
    con.execute(f"CREATE MACRO place() AS ldp.planar_geometric(2, {SIDE}, {SIDE})")
    con.execute(
        "CREATE TABLE noisy AS SELECT ldp.perturb(1000 + i % 50, place()) AS cell FROM range(2000) t(i) ORDER BY random()"
    )
    stopped = "'ibu(stop=''held_out'')'"
    for query in (
        "SELECT ldp.top(cell, place(), 3{}) FROM noisy",
        "FROM ldp.top(noisy, cell, place(), 3{})",
        "FROM ldp.estimate(noisy, cell, place(){}) ORDER BY ALL",
    ):
        named = con.execute(query.format(f", estimator := {stopped}")).fetchall()
        assert con.execute(query.format("")).fetchall() == named


@pytest.mark.parametrize(
    ("text", "estimator"),
    [
        ("planar_geometric(2, 64, 32)", "ibu"),
        ("planar_geometric(2, 65, 32)", "ibu(stop='held_out')"),
        ("krr(2, ['a', 'b'])", "ibu"),
        ("oue(2, ['a', 'b'])", "ibu"),
        ("row(a=krr(2, ['a', 'b']), b=krr(2, ['a', 'b']))", "ibu"),
    ],
)
def test_only_a_large_map_has_another_estimator_by_default(text: str, estimator: str) -> None:
    assert estimator_of_shares(registry().mechanism(text)) == estimator


def test_the_commands_read_large_maps_up_to_the_step_that_predicts_best(tmp_path: Path) -> None:
    mechanism = registry().mechanism(f"planar_geometric(2, {SIDE}, {SIDE})")
    source = tmp_path / "cells.parquet"
    pq.write_table(pa.table({"cell": ldpsql.perturb([1000, 1001] * 500, mechanism)}), source)
    page, named = tmp_path / "page.html", [str(source), "cell", "--mechanism", str(mechanism)]
    assert run("report", *named, "--output", str(page)).returncode == 0
    assert "held_out" in page.read_text("utf-8")
    default = run("estimate", *named, "--format", "csv")
    assert default.returncode == 0
    assert default.stdout == run("estimate", *named, "--estimator", "ibu(stop='held_out')", "--format", "csv").stdout


def test_a_region_of_160000_cells_finds_cells_and_centres(con: DuckDBPyConnection) -> None:
    con.execute("CREATE MACRO whole_city() AS ldp.grid(0, 0, 400, 400, 400, 400)")
    (row,) = con.execute("SELECT ldp.cell_centre(ldp.cell(399.9, 123.4, whole_city()), whole_city()) FROM range(1)").fetchall()
    assert row[0] == {"lon": 399.5, "lat": 123.5}
    assert len(Region(west=0, south=0, east=1, north=1, columns=400, rows=400)) == 160_000


def test_the_page_of_a_large_map_draws_every_cell(tmp_path: Path) -> None:
    columns, rows = 92, 90
    mechanism = registry().mechanism(f"planar_geometric(1, {columns}, {rows})")
    pq.write_table(pa.table({"cell": ldpsql.perturb(np.arange(5_000), mechanism)}), tmp_path / "reports.parquet")
    files = (str(tmp_path / "reports.parquet"), "cell", "--output", str(tmp_path / "page.html"))
    printed("report", *files, "-m", str(mechanism), "--estimator", "ibu(stop=5, misfit='allow')")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert len(page) < 12_000_000
    (map_of_cells,) = re.findall(r'<svg[^>]*class="cells">(.*?)</svg>', page)
    drawn = sum(int(width) for width in re.findall(r"h(\d+)v1", map_of_cells))
    assert drawn == columns * rows


def test_ldpsql_names_the_limit_of_the_reach_of_noise() -> None:
    with pytest.raises(InvalidParameter, match="epsilon is too small for cells of this side"):
        ldpsql.certify(registry().mechanism("planar_geometric('0.001', 300, 300)"))
