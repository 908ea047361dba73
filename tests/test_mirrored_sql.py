"""The lists of values and reports that SQL computes are those of the domains and forms in Python, value by value."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection

from ldpsql import Domain, LdpError, Mechanism
from ldpsql.functions import read_mechanism, registry
from ldpsql.mechanisms import JointMechanism, RowMechanism, cells
from ldpsql.reports import FORMS, MarkedReports, RowReports
from tests.laws.subjects import ESTIMATES_ONLY

PLAIN = Mechanism.sql_reports

RANGES = [(0, 1), (-1, 1), (5, 5), (7, 3), (-100, -3), (-3, 250), (0, 19_999), (0, 20_000)]
RANGES += [(2**53 - 9, 2**53 - 1), (-(2**53) + 1, -(2**53) + 9), (-(2**53), -(2**53) + 9)]
MARGINS = [0, 1, 700]
INTERVALS = ["0,1", "-1,1", "0.1,0.7", "-3.3,1000000", "0,1e-9", "1e15,2e15", "-0.3,-0.1"]
INTERVALS += ["2,2", "2,1", "1e16,1.0000000000000002e16"]
BINS = [2, 3, 7, 511]
STEPS = ["0,1,0.1", "0,100,1", "-2.5,7.5,0.25", "0,100000,1", "0.1,0.7,0.2", "-9,-1,2", "0,1,0.3", "0,1,1"]
STEPS += ["3,3,1", "1,0,1", "0,3e9,1", "0,0.99,0.01", "0,0.0001,0.00001", "-3.7,12.4,0.1"]
MOST = [2, 3, 50, 101, 256]
GRIDS = [(2, 2), (2, 3), (64, 64), (2048, 2), (2049, 2), (1, 5)]
KEYS = ["['a', 'b']", "[3, 1, 2]", "['x', 'y']::VARCHAR[]", "[true, false]", "[DATE '2024-02-29', DATE '1970-01-01']", "['a']"]


def in_turn(each: Iterable[Any], others: list[Any]) -> list[tuple[Any, Any]]:
    """Return each with two of the others, in turn."""
    return [(one, others[(at + step) % len(others)]) for at, one in enumerate(each) for step in (0, len(others) // 2)]


def parted(text: str) -> list[str]:
    return text.split(",")


WHOLE = [f"{low}, {high}" for low, high in RANGES]
WIDER = [f"{low}, {high}, margin := {margin}" for (low, high), margin in in_turn(RANGES, MARGINS)]
CUT = [f"{ends}, bins := {bins}" for ends, bins in in_turn(INTERVALS, BINS)]
STEPPED = [f"{a}, {b}, step := {step}, bins := {bins}" for (a, b, step), bins in in_turn(map(parted, STEPS), MOST)]
SIGNED = [f"{keys}, padding := {padding}" for keys, padding in in_turn(KEYS, [1, 5])]
BLOCKS = [f"{keys}, {blocks}, {size}" for keys, (blocks, size) in in_turn(KEYS, [(2, 2), (3, 4), (2, 512), (0, 2)])]
BINNED = [f"{keys}, bins := {bins}" for keys, bins in in_turn(KEYS, [2, 5, 64])]
EVERY = {
    "truncated_geometric": WHOLE,
    "geometric": WIDER,
    "laplace": CUT + STEPPED,
    "square_wave": CUT[:8] + STEPPED[:8],
    "stochastic_rounding": CUT[:8] + STEPPED[:8],
    "hybrid": CUT[:8] + STEPPED[:8],
    "planar_laplace": [f"{columns}, {rows}" for columns, rows in GRIDS],
    "krr": KEYS,
    "hadamard_response": BLOCKS,
    "pckv_grr": SIGNED,
    "pckv_ue": SIGNED,
    "pckv_pm": BINNED,
    "pckv_pm_ue": BINNED,
}


def from_struct(spec: pa.Scalar) -> Mechanism | None:
    """Return the mechanism that a constructor's STRUCT stands for; None if Python refuses it, its values or its reports."""
    try:
        mechanism = read_mechanism(spec)
        mechanism.values()
        mechanism.alphabet()
    except LdpError:
        return None
    return mechanism


def listed(mechanism: Mechanism) -> pa.Array | None:
    """Return the reports that SQL lists; None if it knows their form by a mark."""
    reports = mechanism.alphabet()
    if isinstance(reports, Domain):
        return reports.values
    return None if isinstance(reports, MarkedReports | RowReports) else reports.distinct()


def check(con: DuckDBPyConnection, call: str) -> bool:
    """Compare one call; return whether Python accepts it."""
    spec = con.sql(f"SELECT ldp.{call} AS m").to_arrow_table()["m"].combine_chunks()[0]
    mechanism = from_struct(spec)
    if mechanism is None:
        with pytest.raises(duckdb.Error, match=r"\[LDP\d"):
            con.execute(f"SELECT ldp.describe(ldp.{call})")
        return False
    same(spec["domain"] if "domain" in spec.type.names else spec["keys"], mechanism.values().listed.values, call)
    if (reports := listed(mechanism)) is not None:
        same(spec["reports" if "reports" in spec.type.names else "domain"], reports, call)
    return True


def same(computed: pa.Scalar, values: pa.Array, call: str) -> None:
    assert computed.values.type == values.type or call.startswith("stochastic_rounding"), call  # whose -1 and 1 are INTEGER
    assert computed.values.to_pylist() == values.to_pylist(), call


@pytest.mark.parametrize("name", EVERY)
def test_sql_computes_the_values_and_reports_of_python(con: DuckDBPyConnection, name: str) -> None:
    accepted = [check(con, f"{name}(1, {arguments})") for arguments in EVERY[name]]
    assert any(accepted)


def test_every_mechanism_whose_lists_sql_computes_is_compared() -> None:
    own = {name for name, kind in registry().mechanisms.items() if (kind.sql_domain, kind.sql_reports) != (None, PLAIN)}
    computed = {(kind.sql_domain, kind.sql_reports) for name, kind in registry().mechanisms.items() if name in EVERY}
    marked = {form.marker for form in FORMS.values()}
    known_by_type = {"optimal_mean"}  # SQL has no list of its reports
    for name in own - EVERY.keys() - {"matrix", *ESTIMATES_ONLY} - known_by_type:
        kind = registry().mechanisms[name]
        if issubclass(kind, RowMechanism | JointMechanism):  # SQL has no lists of rows: it asks Python for their types
            continue
        assert (kind.sql_domain, kind.sql_reports) in computed or kind.sql_reports in marked, name


@pytest.mark.parametrize("reports", ["NULL", "['x', 'y']", "[1.5, 2.5]"])
def test_a_matrix_lists_its_reports_or_its_domain(con: DuckDBPyConnection, reports: str) -> None:
    assert check(con, f"matrix(['a', 'b'], [['3/4', '1/4'], ['1/4', '3/4']], reports := {reports})")


@pytest.mark.parametrize(("columns", "rows"), GRIDS)
def test_the_cells_of_a_grid_are_the_values_of_a_mechanism_on_it(con: DuckDBPyConnection, columns: int, rows: int) -> None:
    (computed,) = con.execute(f"SELECT ldp.cells(ldp.grid(0, 0, 1, 1, {columns}, {rows}))").fetchone() or ()
    assert computed == cells(columns, rows).values.to_pylist()


def test_files_of_mechanisms_hold_no_sql() -> None:
    words = ("CASE WHEN", "try_cast", "range(", "list_transform", "ldp._", "::")
    docstrings = re.compile(r"\n|^[A-Z].*\.$")
    for file in (Path(__file__).parents[1] / "plugins").rglob("*.py"):
        nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        assert not [text for text in texts if not docstrings.search(text) and any(word in text for word in words)], file


def test_a_grid_with_too_many_cells_is_refused_before_its_channel_is_made(con: DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error, match=r"LDP103.*at most 160000 cells"):
        con.execute("SELECT ldp.describe(ldp.planar_laplace(1, 80000, 3))")
