"""Collections of google/rappor: shares of candidates from counts of Bloom bits."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest
from duckdb import DuckDBPyConnection
from scipy.stats import chi2
from typer.testing import CliRunner

import ldpsql
from ldpsql.errors import BadCounts, InvalidParameter, SourceRefused, WrongType
from ldpsql.estimates.rappor_files import BloomParameters, BloomShares, bloom_shares
from tests.commands import app
from tests.seeds import generator

SMALL = BloomParameters(k=16, h=2, m=4, p=0.25, q=0.75, f=0.5)
SHARES = np.array([0.4, 0.3, 0.2, 0.1, 0.0, 0.0])
SIZE = 20_000.0
RAPPOR = Path(__file__).parents[1].parent / "shared" / "data" / "rappor"


def members() -> np.ndarray:
    """Which bits each of six candidates sets: two different ones in each cohort."""
    out = np.zeros((6, 4, 16), dtype=bool)
    for candidate in range(6):
        for cohort in range(4):
            out[candidate, cohort, [(5 * candidate + 3 * cohort) % 16, (7 * candidate + cohort + 1) % 16]] = True
    return out


def estimated(ones: np.ndarray) -> BloomShares:
    return bloom_shares(SMALL, np.full(4, SIZE), ones, members())


def test_the_chances_of_a_bit_are_those_of_both_responses() -> None:
    # A set bit stays with probability 1 - f/2 = .75, and is then reported as 1 with q, else with p.
    assert SMALL.one == pytest.approx(0.75 * 0.75 + 0.25 * 0.25)
    assert SMALL.zero == pytest.approx(0.75 * 0.25 + 0.25 * 0.75)


def test_expected_counts_give_the_shares_back_and_only_these_are_detected() -> None:
    held = np.einsum("s,smk->mk", SHARES, members())
    result = estimated(SIZE * (SMALL.zero + (SMALL.one - SMALL.zero) * held))
    np.testing.assert_allclose(result.shares, [*SHARES, 0.0], atol=1e-6)
    np.testing.assert_allclose(result.debiased, [*SHARES, 0.0], atol=1e-6)
    assert result.detected(0.05).tolist() == [True, True, True, True, False, False]
    assert result.gap < 1e-3


def test_strings_that_are_no_candidates_are_the_last_share() -> None:
    chance = 1 - (1 - 1 / 16) ** 2
    result = estimated(np.full((4, 16), SIZE * (SMALL.zero + (SMALL.one - SMALL.zero) * chance)))
    np.testing.assert_allclose(result.shares, [0, 0, 0, 0, 0, 0, 1], atol=1e-3)  # the gap allows as much
    assert not result.detected(0.05).any()


def test_errors_are_those_of_reports_whose_bits_belong_to_one_string() -> None:
    """100 collections: the sum of z^2 of candidates 0 .. 3 in turn lies within the chi-square bounds of 1e-6."""
    rng, total = generator("collections"), 0.0
    for turn in range(100):
        ones = np.zeros((4, 16))
        for cohort in range(4):
            for candidate, count in enumerate(rng.multinomial(int(SIZE) // 10, SHARES)):
                chances = np.where(members()[candidate, cohort], SMALL.one, SMALL.zero)
                ones[cohort] += rng.binomial(count, chances)
        result = bloom_shares(SMALL, np.full(4, SIZE // 10), ones, members())
        total += ((result.debiased - np.append(SHARES, 0)) / result.std_error)[turn % 4] ** 2
    low, high = chi2.ppf([5e-7, 1 - 5e-7], 100)
    assert low < total < high
    # Equal candidates have no error.
    twice = members()
    twice[1] = twice[0]
    result = bloom_shares(SMALL, np.full(4, SIZE), np.full((4, 16), SIZE * 0.4), twice)
    assert np.isinf(result.std_error[:2]).all()
    assert np.isfinite(result.std_error[2:6]).all()
    low, high = result.intervals()
    assert (low[0], high[0]) == (0.0, 1.0)


@pytest.mark.parametrize("changed", [{"k": 0}, {"p": 1.5}, {"f": 1.0}, {"p": 0.75}])
def test_parameters_that_make_no_collection_are_refused(changed: dict[str, float], tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    parameters = pl.DataFrame([{"k": 16, "h": 2, "m": 4, "p": 0.25, "q": 0.75, "f": 0.5} | changed])
    with pytest.raises(InvalidParameter):
        ldpsql.rappor_shares(parameters, f"{folder}/counts.csv", f"{folder}/map.csv")


@pytest.mark.parametrize("ones", [np.zeros((4, 15)), np.full((4, 16), -1.0), np.full((4, 16), SIZE + 1)])
def test_counts_that_cannot_be_are_refused(ones: np.ndarray) -> None:
    with pytest.raises(BadCounts):
        estimated(ones)


def folder_of(tmp_path: Path) -> str:
    """Write a collection as google/rappor does."""
    held = np.einsum("s,smk->mk", SHARES, members())
    ones = np.rint(SIZE * (SMALL.zero + (SMALL.one - SMALL.zero) * held)).astype(int)
    (tmp_path / "params.csv").write_text('"k","h","m","p","q","f"\n16,2,4,0.25,0.75,0.5\n', encoding="utf-8")
    rows = (f"{int(SIZE)}," + ",".join(map(str, cohort)) for cohort in ones)
    (tmp_path / "counts.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    bits = (np.flatnonzero(candidate.ravel()) + 1 for candidate in members())
    lines = (f'"V_{i}",' + ",".join(map(str, row)) for i, row in enumerate(bits))
    (tmp_path / "map.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(tmp_path)


def test_sql_reads_the_files_of_a_collection(con: DuckDBPyConnection, tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    files = ", ".join(f"'{folder}/{name}.csv'" for name in ("params", "counts", "map"))
    rows = con.execute(
        f"SELECT candidate, estimate, low <= estimate, estimate <= high, detected FROM ldp.rappor_shares({files})"
    ).fetchall()
    assert [row[0] for row in rows] == [*(f"V_{i}" for i in range(6)), None]
    np.testing.assert_allclose([row[1] for row in rows], [*SHARES, 0], atol=1e-3)
    assert all(row[2] and row[3] for row in rows)
    assert [row[4] for row in rows] == [True] * 4 + [False] * 2 + [None]


def test_python_reads_files_and_frames_as_sql_does(con: DuckDBPyConnection, tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    names = ("params", "counts", "map")
    files = ", ".join(f"'{folder}/{name}.csv'" for name in names)
    expected = con.execute(f"FROM ldp.rappor_shares({files}, rate := 0.01)").fetchall()
    paths = [tmp_path / f"{name}.csv" for name in names]
    tables = [con.read_csv(path) for path in paths]
    for given in (
        paths,
        [str(path) for path in paths],
        [table.pl() for table in tables],
        [t.df() for t in tables],
        [con.read_csv(paths[0]), *paths[1:]],
    ):
        shares = ldpsql.rappor_shares(given[0], given[1], given[2], rate=0.01)
        assert shares.columns == ["candidate", "estimate", "std_error", "low", "high", "p_value", "detected", "gap"]
        assert shares.rows() == expected


def test_the_command_line_writes_what_python_returns(tmp_path: Path) -> None:
    paths = [str(Path(folder_of(tmp_path)) / f"{name}.csv") for name in ("params", "counts", "map")]
    done = CliRunner().invoke(app, ["rappor-shares", *paths, "--rate", "0.01", "--format", "json"])
    assert json.loads(done.stdout) == ldpsql.rappor_shares(paths[0], paths[1], paths[2], rate=0.01).to_dicts()
    done = CliRunner().invoke(app, ["rappor-shares", *paths[:2], "nowhere.csv"])
    assert isinstance(done.exception, SourceRefused)


@pytest.mark.parametrize(
    ("changed", "rate", "error"),
    [
        ({"params": pl.DataFrame({"k": [16]})}, 0.05, InvalidParameter),
        ({"counts": pl.DataFrame({"n": [1.5]})}, 0.05, BadCounts),
        ({"map": pl.DataFrame({"name": ["a"], "h1": [65]})}, 0.05, InvalidParameter),
        ({"map": "nowhere.csv"}, 0.05, SourceRefused),
        ({"map": 3}, 0.05, WrongType),
        ({}, 1, InvalidParameter),
    ],
)
def test_python_refuses_what_makes_no_collection(
    tmp_path: Path, changed: dict[str, object], rate: float, error: type[Exception]
) -> None:
    folder_of(tmp_path)
    files: dict[str, object] = {name: tmp_path / f"{name}.csv" for name in ("params", "counts", "map")}
    with pytest.raises(error):
        ldpsql.rappor_shares(**files | changed, rate=rate)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("UPDATE params SET k = NULL", "LDP103"),
        ("INSERT INTO params FROM params", "LDP103"),
        ("UPDATE counts SET column00 = NULL", "LDP"),
        ("DELETE FROM counts WHERE rowid = 0", "LDP"),
        ("DELETE FROM map", "LDP103"),
        ("UPDATE map SET column1 = 65", "LDP103"),
    ],
)
def test_tables_that_make_no_collection_are_refused(con: DuckDBPyConnection, tmp_path: Path, change: str, code: str) -> None:
    folder = folder_of(tmp_path)
    for name in ("params", "counts", "map"):
        con.execute(f"CREATE TABLE {name} AS FROM '{folder}/{name}.csv'")
    con.execute(change)
    with pytest.raises(duckdb.Error, match=code):
        con.execute("FROM ldp.rappor_shares('params', 'counts', 'map')").fetchall()


@pytest.mark.skipif(not RAPPOR.is_dir(), reason="the data of google/rappor are not here")
def test_candidates_of_the_authors_data_are_those_that_their_decode_r_detects(con: DuckDBPyConnection) -> None:
    """decode.R at a13fa96, R 4.2.2, quadprog for lsei: 115, 109 and 112 candidates, as it draws; V_1 to V_3 are its means."""
    files = ", ".join(f"'{RAPPOR}/{name}.csv'" for name in ("params", "counts", "map"))
    rows = con.execute(f"SELECT estimate, detected FROM ldp.rappor_shares({files})").fetchall()
    assert abs(sum(bool(row[1]) for row in rows) - 112) <= 0.05 * 112
    theirs = np.array([[0.0324518, 0.0004108], [0.0317288, 0.0002545], [0.0310694, 0.0003524]])
    assert (np.abs([row[0] for row in rows[:3]] - theirs[:, 0]) < 2 * theirs[:, 1]).all()
