"""Roads: SQL, Python, counts and the command line give the same estimate, and read no reports of another mechanism."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql.errors import LdpError, NotApplicable, OtherMechanism
from ldpsql.functions import text_literal
from tests.commands import rows
from tests.laws.subjects import ESTIMATORS, LISTED, SMALL, mechanism, of_pairs, reports, truth

VALUES = [name for name in LISTED if not of_pairs(name)]
NEED_GROUPS_OR_TABLES = {"independent", "shared", "table_bayes", "tree"}
EACH = [name for name in ESTIMATORS if name not in NEED_GROUPS_OR_TABLES]


@pytest.fixture(scope="module")
def con() -> Iterator[DuckDBPyConnection]:
    with ldpsql.connect() as connection:
        yield connection


def column(name: str, n: int = 400) -> pa.Array:
    """Return about n reports, as often as expected, in no order."""
    listed = reports(name)
    numbers = np.rint(n * (truth(len(listed.chances)) @ listed.probabilities)).astype(np.int64)
    places = np.repeat(np.arange(len(listed.reports)), numbers)
    return listed.reports.take(pa.array(places[np.argsort(places * 7919 % 101, kind="stable")]))


@pytest.mark.parametrize("name", VALUES)
def test_every_road_leads_to_the_same_estimate(con: DuckDBPyConnection, tmp_path: Path, name: str) -> None:
    """Each mechanism meets one estimator here, in turn: which estimate it is does not depend on the road."""
    one, drawn = mechanism(name), column(name)
    turn = VALUES.index(name)
    estimator = next(text for text in [*EACH[turn % len(EACH) :], "ibu"] if applies(drawn, name, text))
    expected = ldpsql.estimate(drawn, one, estimator)
    shares, errors = expected.estimate, expected.std_error
    frame = pl.DataFrame({"x": pl.Series(drawn.to_pylist())}) if turn % 2 else pa.table({"x": drawn})
    assert (ldpsql.estimate(frame, one, estimator, column="x").estimate == shares).all()
    counts = ldpsql.merge(ldpsql.partial_counts(pa.table({"x": part}), "x") for part in (drawn[:150], drawn[150:]))
    assert (ldpsql.estimate(counts, one, estimator).estimate == shares).all()
    m, path = text_literal(str(one)), tmp_path / "reports.parquet"
    pq.write_table(pa.table({"x": drawn}), path)
    sql = (
        f"SELECT unnest(ldp.{estimator}(x, {m})) AS row FROM '{path}'",
        f"SELECT unnest(ldp.{estimator}(ldp.counts(c), {m})) AS row "
        f"FROM (SELECT ldp.counts(x) AS c FROM (SELECT x, row_number() OVER () % 3 AS g FROM '{path}') GROUP BY g)",
    )
    for query in sql:
        found = [row for (row,) in con.execute(query).fetchall()]
        assert [row["value"] for row in found] == expected.values.values.to_pylist()
        assert [row["estimate"] for row in found] == pytest.approx(shares, abs=1e-12)
        assert [row["std_error"] or np.inf for row in found] == pytest.approx(errors, rel=1e-9)
    if turn % 4 == 0:
        printed = rows("estimate", str(path), "-c", "x", "-m", str(one), "--estimator", estimator)
        assert [row["estimate"] for row in printed] == pytest.approx(shares, abs=1e-9)


def applies(drawn: pa.Array, name: str, estimator: str) -> bool:
    try:
        ldpsql.estimate(drawn, mechanism(name), estimator)
    except NotApplicable:
        return False
    except LdpError as refused:
        return refused.code not in {"LDP102", "LDP402"}
    return True


@pytest.mark.parametrize("name", [name for name in SMALL if name != "pem"])
def test_reports_of_another_mechanism_are_refused(name: str) -> None:
    """A column that records what drew it is read by no other mechanism; one that records nothing, by none of another form."""
    one = mechanism(name)
    raw = ldpsql.certify(one).values.listed.values
    if of_pairs(name):
        raw = pa.array([[{"key": key, "value": 0.5}] for key in raw.to_pylist()] * 60)  # all of them dummies: below 1e-6
    drawn = ldpsql.perturb_batches(pa.table({"x": raw}), {"x": one}).read_all()
    counts = ldpsql.partial_counts(drawn, "x")
    for other in ("krr('0.25', ['p', 'q'])", "oue('0.25', range(90))", "pckv_grr('0.25', ['p', 'q'])"):
        read = ldpsql.key_value if other.startswith("pckv") else ldpsql.estimate
        with pytest.raises(OtherMechanism):
            read(counts, other)
        with pytest.raises(LdpError) as refused:
            read(drawn["x"].combine_chunks(), other)
        assert refused.value.code in {"LDP304", "LDP305", "LDP401"}
