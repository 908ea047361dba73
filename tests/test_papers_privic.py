"""Each verdict on the page of PRIVIC follows from numbers of the paper: a changed measurement turns it."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

PAPERS = Path(__file__).parents[1] / "examples" / "papers"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import scripts as ``python examples/papers`` does."""
    monkeypatch.syspath_prepend(str(PAPERS))
    return import_module


def test_a_round_measures_its_estimate_and_its_raw_reports(script: Any) -> None:
    privic, shared = script("privic"), script("reproduction")
    city = replace(privic.BAY, columns=2, rows=2)
    with shared.connect() as con:
        shared.people(con, [400, 100, 200, 300])
        one = privic.round_of(con, city, 1, 1)
        counts = ", ".join(f"count(*) FILTER (cell = {c}) / 1000" for c in range(4))
        estimate = "list_transform(ldp.ibu(cell, getvariable('drawn'), stop := 5), lambda e: e.estimate)"
        far = []
        for shares in (estimate, f"[{counts}]"):
            sql = f"SELECT ldp.distance_between((SELECT {shares} FROM reports), p, 'emd', getvariable('m')) AS d FROM truth"
            far.append(shared.frame(con, sql)["d"][0])
    assert [*one.distances, *one.raw] == pytest.approx(far)
    assert one.estimate["estimate"].sum() == pytest.approx(1)


def rounds(table: np.ndarray, factor: float = 1.0) -> np.ndarray:
    """Return two rounds with the means of a published table, shape (2, cycles)."""
    return np.tile(factor * table.mean(axis=1), (2, 1))


@pytest.mark.parametrize("name", ["PARIS", "BAY"])
@pytest.mark.parametrize("beta", [0.5, 1])
def test_tables_2_and_3_agree_within_the_noise_of_their_rounds_only(script: Any, name: str, beta: float) -> None:
    privic = script("privic")
    table, other = (getattr(privic, name).published[at] for at in (beta, 1.5 - beta))
    assert privic.in_table("table", table, rounds(table)).verdict == "agrees"
    assert privic.in_table("table", table, table.T[:1]).verdict == "agrees"  # a round of the paper alone
    for mutated in (rounds(other), rounds(table, 1.3), rounds(table)[:, ::-1]):
        assert privic.in_table("table", table, mutated).verdict == "differs"


@pytest.mark.parametrize("name", ["PARIS", "BAY"])
def test_figures_8_and_9_want_distances_that_fall_as_far_as_the_papers(script: Any, name: str) -> None:
    privic = script("privic")
    table = getattr(privic, name).published[1]
    fallen = rounds(table)
    assert privic.falling("fig. 8", table, fallen).verdict == "agrees"
    for mutated in (fallen[:, ::-1], np.full_like(fallen, 0.3), fallen * np.linspace(1, 0.5, fallen.shape[1])):
        assert privic.falling("fig. 8", table, mutated).verdict == "differs"


@pytest.mark.parametrize(
    ("name", "total", "measured", "verdict"),
    [
        ("PARIS", 10_078, 2.022618, "agrees"),
        ("PARIS", 10_078, 2.5465, "differs"),  # a grid of 16 x 12
        ("BAY", 123_025, 7.37610, "agrees"),
        ("BAY", 123_108, 7.37610, "differs"),  # with everybody, nothing is left to explain a difference
        ("BAY", 123_025, 6.14949, "differs"),  # rows and columns exchanged
    ],
)
def test_row_1_agrees_only_as_far_as_the_missing_people_can_move_it(
    script: Any, name: str, total: int, measured: float, verdict: str
) -> None:
    privic = script("privic")
    assert privic.first_row(getattr(privic, name), total, measured).verdict == verdict


def test_figure_7_wants_the_papers_ratio_of_the_two_betas(script: Any) -> None:
    privic = script("privic")
    last = {beta: np.full(2, table[-1].mean()) for beta, table in privic.BAY.published.items()}
    assert privic.better_with_one(privic.BAY, last).verdict == "agrees"
    for mutated in ({1: last[0.5], 0.5: last[1]}, {1: last[1], 0.5: last[1]}, {1: 1.1 * last[1], 0.5: last[0.5]}):
        assert privic.better_with_one(privic.BAY, mutated).verdict == "differs"


@pytest.mark.parametrize(
    ("distances", "verdict"), [([1.6, 0.7, 0.2], "agrees"), ([0.2, 0.7, 1.6], "differs"), ([1.6, 1.3, 0.2], "differs")]
)
def test_figure_10_wants_a_sharp_fall_and_then_little(script: Any, distances: list[float], verdict: str) -> None:
    rows = pl.DataFrame({"beta": [0.1, 0.3, 1.0], "EMD": distances})
    assert script("privic").settles("fig. 10", rows).verdict == verdict


@pytest.mark.parametrize(
    ("ours", "laplace", "verdicts"),
    [
        ([0.2, 0.01], [0.3, 0.02], ["agrees", "agrees"]),
        ([0.3, 0.01], [0.3, 0.02], ["differs", "agrees"]),
        ([0.2, 0.01], [0.3, 0.20], ["agrees", "differs"]),
    ],
)
def test_figure_3_wants_the_better_mechanism_and_the_fall(
    script: Any, ours: list[float], laplace: list[float], verdicts: list[str]
) -> None:
    columns = {
        f"{name}, {steps} steps": values
        for name, values in (("Blahut-Arimoto", ours), ("Laplace", laplace))
        for steps in (10, 100)
    }
    by = pl.DataFrame({"beta": [0.6, 3.0], **columns})
    assert [finding.verdict for finding in script("privic_mechanism").served("fig. 3b", by, 1)] == verdicts


@pytest.mark.parametrize(
    ("top", "verdict"),
    [
        ({0.4: 7, 1.2: 4, 2: 4}, "agrees"),
        ({0.4: 4, 1.2: 7, 2: 7}, "differs"),  # farther for larger epsilon
        ({0.4: 7, 1.2: 4, 2: 3}, "differs"),  # itself
        ({0.4: 5, 1.2: 5, 2: 5}, "differs"),  # where few are
    ],
)
def test_figure_2_wants_crowded_places_nearer_and_nearer(script: Any, top: dict[float, int], verdict: str) -> None:
    """Cells of one row: 3 is the lonely one, 4 and 7 are crowded."""
    mechanism = script("privic_mechanism")
    counts = [10, 10, 10, 1, 80, 2, 10, 90]
    assert mechanism.drawn_to_crowds(mechanism.PARIS, counts, 3, top).verdict == verdict


def test_figure_1_wants_an_island_and_a_crowd(script: Any) -> None:
    mechanism = script("privic_mechanism")
    city, counts = mechanism.PARIS, np.full(mechanism.PARIS.cells, 5)
    counts[[51, 52, 53, 37, 67]] = 50
    emptied = mechanism.island(counts.tolist(), city, 93)
    assert sum(emptied) == counts.sum()
    assert mechanism.planted(emptied, city, 93, 52).verdict == "agrees"
    assert mechanism.planted(counts.tolist(), city, 93, 52).verdict == "differs"  # nobody was moved
    assert mechanism.planted(emptied, city, 93, 10).verdict == "differs"  # not crowded


@pytest.mark.parametrize(
    ("information", "left", "verdict"), [(1.0, 3.0, "agrees"), (1.1, 3.0, "differs"), (1.0, 1.5, "differs")]
)
def test_section_3_wants_the_least_information_for_the_distortion(
    script: Any, information: float, left: float, verdict: str
) -> None:
    common = {"entropy": 4.0, "least_information": 1.0, "average_distortion": 2.0}
    measured = {
        "Blahut-Arimoto": {**common, "mutual_information": information, "residual_entropy": left},
        "Laplace": {**common, "mutual_information": 2.0, "residual_entropy": 2.0},
    }
    assert script("privic_mechanism").reveals_least(1, measured).verdict == verdict


def test_every_figure_and_table_of_the_paper_is_listed(script: Any) -> None:
    assert set(script("privic").CONTENTS) == {f"fig. {i}" for i in range(1, 11)} | {f"table {i}" for i in range(1, 4)}
    assert set(script("iterative_bayesian_update").CONTENTS) == {f"fig. {i}" for i in range(1, 15)} | {"table I", "table II"}
