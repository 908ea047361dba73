"""Reports that multi-freq-ldpy 0.2.5 and pure-ldp 1.2.0 drew: `data/peers.json` holds forty of each protocol, and estimates.

Those of pure-ldp are what its servers return; multi-freq-ldpy's are its published formula, before it clips.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection
from typer.testing import CliRunner

import ldpsql
from ldpsql import DenseChannel
from ldpsql.channels import signs_of
from ldpsql.channels.randomness import Words
from ldpsql.errors import ImpossibleReport, InvalidParameter, UnknownName
from ldpsql.functions import registry
from ldpsql.mechanisms import TOTAL, Hadamard, certify_values, signs_in_blocks
from ldpsql.mechanisms.foreign import xxh32
from tests.commands import app

PEERS = json.loads((Path(__file__).parent / "data" / "peers.json").read_text(encoding="utf-8"))
FOUR = "['a', 'b', 'c', 'd']"
OUE = f"encoding(1, {FOUR}, 'oue')"


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: str(peer["library"]))
def test_the_inversion_of_read_reports_is_the_formula_of_the_library_that_drew_them(peer: dict[str, Any]) -> None:
    reports = ldpsql.read(peer["reports"], peer["mechanism"], peer["format"])
    estimate = ldpsql.estimate(reports, peer["mechanism"], "inv")
    np.testing.assert_allclose(estimate.estimate, peer["theirs"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: str(peer["library"]))
def test_sql_reads_reports_as_python_does(con: DuckDBPyConnection, peer: dict[str, Any]) -> None:
    con.register("theirs", pa.table({"x": pa.array([*peer["reports"], None])}))
    made = "ldp." + peer["mechanism"].replace("=", ":=")
    query = f"SELECT ldp.read(x, {made}, format := '{peer['format']}') FROM theirs"
    (column,) = con.sql(query).to_arrow_table().columns
    assert column.to_pylist() == [*ldpsql.read(peer["reports"], peer["mechanism"], peer["format"]).to_pylist(), None]


def test_hashes_are_those_of_xxhash() -> None:
    hashes = xxh32(np.array([7, 2**40 + 7, 0], dtype=np.uint64), 12346)
    assert (hashes[0] == hashes[1]).all()  # a seed has 32 bits
    # xxhash 4.1.0: xxh32(b"5", seed=7), xxh32(b"123", seed=7), xxh32(b"12345", seed=0)
    assert [hashes[0, 5], hashes[0, 123], hashes[2, 12345]] == [2514871820, 3315430999, 3003995828]


def test_every_format_is_read(con: DuckDBPyConnection) -> None:
    row = con.execute(
        f"""SELECT ldp.read('0100', ldp.{OUE}), ldp.read([false, true, false, false], ldp.{OUE}, format := 'array'),
            ldp.read(2, ldp.krr(1, {FOUR}), format := 'position'), ldp.read([3], ldp.subset_selection(1, {FOUR}), 'positions'),
            ldp.read({{y: 1, seed: 5}}, ldp.encoding(1, {FOUR}, 'olh'), 'xxhash')
                = ldp.read([1, 5], ldp.encoding(1, {FOUR}, 'olh'), 'xxhash'),
            ldp.read(NULL, ldp.{OUE})"""
    ).fetchone()
    assert row == ([2], [2], "c", [8], True, None)


@pytest.mark.parametrize(
    ("report", "mechanism", "form", "error"),
    [
        ("010", OUE, "bits", ImpossibleReport),
        ("0120", OUE, "bits", ImpossibleReport),
        ("é10", OUE, "bits", ImpossibleReport),
        (4, OUE, "bits", ImpossibleReport),
        ([0, 1, 0], OUE, "array", ImpossibleReport),
        ([0, 1, 0, 0.5], OUE, "array", ImpossibleReport),
        ([0, 1, 0, None], OUE, "array", ImpossibleReport),
        (4, f"krr(1, {FOUR})", "position", ImpossibleReport),
        (-1, f"krr(1, {FOUR})", "position", ImpossibleReport),
        (8, f"encoding(1, {FOUR}, 'hadamard')", "position", ImpossibleReport),
        (16, f"hadamard_response(2, {FOUR}, 4, 4)", "position", ImpossibleReport),
        ([1, 1], f"subset_selection(0.1, {FOUR})", "positions", ImpossibleReport),
        ([1, 2], f"subset_selection(1, {FOUR})", "positions", ImpossibleReport),
        ([4, 7], f"encoding(1, {FOUR}, 'olh')", "xxhash", ImpossibleReport),
        ([1, 7, 7], f"encoding(1, {FOUR}, 'olh')", "xxhash", ImpossibleReport),
        ([1, 7], OUE, "xxhash", InvalidParameter),
        ("0100", f"krr(1, {FOUR})", "bits", InvalidParameter),
        (1, OUE, "position", InvalidParameter),
        ("0100", "pckv_grr(1, ['a', 'b'])", "bits", InvalidParameter),
        ("0100", OUE, "bit", UnknownName),
    ],
)
def test_what_is_not_a_report_in_the_format_is_refused(
    report: object, mechanism: str, form: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        ldpsql.read([report], mechanism, form)


def test_a_series_stays_a_series_with_its_name_and_its_nulls() -> None:
    series = ldpsql.read(pl.Series("bits", ["0100", None, "1111"]), OUE)
    assert (series.name, series.to_list()) == ("bits", [[2], None, [15]])
    pandas = ldpsql.read(pd.Series(["0100", None], index=[7, 9]), OUE)
    assert list(pandas.index) == [7, 9]
    assert ldpsql.read([None, None], OUE).null_count == 2
    assert len(ldpsql.read([], OUE)) == 0


def test_hadamard_response_draws_each_mask_as_often_as_its_weight_says() -> None:
    channel = Hadamard(6, 3 * (TOTAL // 4))
    masks = np.repeat(np.arange(8, dtype=np.uint64), 4)  # three bits, in the highest places, and four of the weight
    kept = np.tile(np.arange(4, dtype=np.uint64) << np.uint64(62), 8)
    for value in range(6):
        drawn = channel.draw(np.full(32, value, dtype=np.int32), in_turn(masks << np.uint64(61), kept))
        numbers, counts = np.unique(drawn[:, 0], return_counts=True)
        inside = (numbers >> np.uint64(value)) & np.uint64(1) == 1
        assert set(counts[inside].tolist()) == {6}  # 32 * 3/4 / 4
        assert set(counts[~inside].tolist()) == {2}


@pytest.mark.parametrize(
    ("blocks", "size", "refused"),
    [
        (1, 8, "at least 2 blocks"),
        (2, 6, "power of 2"),
        (4, 1, "power of 2"),
        (3, 2, "no room"),
        (1 << 20, 1 << 10, "would take"),
    ],
)
def test_blocks_that_cannot_hold_the_values_are_refused(blocks: int, size: int, refused: str) -> None:
    with pytest.raises(InvalidParameter, match=refused):
        registry().mechanism(f"hadamard_response(2, {FOUR}, {blocks}, {size})")


def test_only_a_table_of_blocks_has_signs() -> None:
    channel = certify_values(registry().mechanism("hadamard_response(2, [0, 1, 2, 3, 4, 5, 6], 3, 4)")).channel
    assert isinstance(channel, DenseChannel)
    weights = channel.weights()
    expected = signs_in_blocks(7, 4, 3)
    np.testing.assert_array_equal(signs_of(weights), expected)
    np.testing.assert_array_equal(signs_of(weights[::-1]), expected[::-1])  # in any order
    other, twice = weights.copy(), weights.copy()
    other[0, [0, 1]] = other[0, [1, 0]]
    twice[1] = twice[0]
    assert [signs_of(table) for table in (other, twice, weights[:, ::-1], weights[:, :-1])] == [None] * 4


def in_turn(*columns: np.ndarray) -> Words:
    """A source of bits that returns these words, one call after the other."""
    waiting = iter(columns)
    return lambda _: next(waiting)


def test_only_the_sets_of_a_mask_are_reports_of_hadamard_response() -> None:
    channel = Hadamard(5, TOTAL // 3)
    every = np.arange(32, dtype=np.uint64)[:, None]
    assert channel.possible(every).sum() == 8
    assert channel.possible(channel.sets(np.arange(8, dtype=np.uint64))).all()


def test_the_command_line_reads_reports_of_others(tmp_path: Path) -> None:
    file, reports = tmp_path / "theirs.parquet", pl.DataFrame({"report": ["0100", "1000", "0110"] * 20})
    reports.write_parquet(file)
    options = ["-m", OUE, "--estimator", "inv", "--read", "bits", "--format", "json"]
    done = CliRunner().invoke(app, ["estimate", str(file), "report", *options])
    assert done.exit_code == 0, done.output
    estimates = [row["estimate"] for row in json.loads(done.stdout)]
    np.testing.assert_allclose(estimates, ldpsql.estimate(ldpsql.read(reports["report"], OUE), OUE, "inv").estimate)


def test_words_that_json_writes_as_text_are_reports() -> None:
    oue, hashed = "oue(1, ['a', 'b', 'c'])", "loloha(2, 1, ['a', 'b', 'c'])"
    for mechanism, words, text in (
        (oue, [[1], [2], [6]], [["1"], ["2"], ["6"]]),
        (hashed, [{"seed": 2**63 + 1, "y": 1}] * 3, [{"seed": str(2**63 + 1), "y": 1}] * 3),
    ):
        kind = pa.list_(pa.uint64()) if mechanism == oue else pa.struct([("seed", pa.uint64()), ("y", pa.uint32())])
        expected = ldpsql.estimate(pa.array(words, kind), mechanism, "inv").to_arrow()
        assert ldpsql.estimate(pa.array(text), mechanism, "inv").to_arrow().equals(expected)
    for wrong in (["a"], [None]):
        with pytest.raises(ImpossibleReport):
            ldpsql.estimate(pa.array([wrong], pa.list_(pa.string())), oue)


def test_a_format_that_does_not_fit_names_the_others() -> None:
    with pytest.raises(InvalidParameter, match="position"):
        ldpsql.read([1], "krr(1, ['a', 'b'])")


def test_a_format_that_is_null_is_refused_with_the_names_of_the_formats(con: DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error, match=r"LDP201.*array, bits, position, positions, xxhash"):
        con.sql(f"SELECT ldp.read('0100', ldp.{OUE}, format := NULL)").fetchall()
