"""What is generated of SQL: pairs of aggregates, and what forms of reports add to macros."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from duckdb import DuckDBPyConnection

from ldpsql.engine.aggregates import COUNTS, Aggregate, aggregates
from ldpsql.engine.functions import Macros
from ldpsql.registry.registry import registry

SIGNATURES = Path(__file__).parent / "data" / "signatures.txt"
_CREATED = re.compile(r"MACRO ldp\.([a-z]\w*)\((.*?)\) AS", re.DOTALL)
_WRITTEN = re.compile(r"(\w+)\((.*)\)")


def parameters(text: str) -> list[str]:
    return " ".join(text.split()).split(", ")


def test_names_parameters_and_defaults_of_0_1_0_are_kept() -> None:
    texts = [offered.text for _, functions in registry().functions() for offered in functions if isinstance(offered, Macros)]
    created = {name: parameters(listed) for text in texts for name, listed in _CREATED.findall(text.replace('"', ""))}
    for name, listed in _WRITTEN.findall(SIGNATURES.read_text(encoding="utf-8")):
        now = iter(created[name])
        assert all(parameter in now for parameter in parameters(listed)), name  # in this order; others may stand between them


def test_an_aggregate_returns_the_same_over_counts(con: DuckDBPyConnection) -> None:
    result = f"list_sum(map_values({COUNTS})) * factor"
    pair = Aggregate("weighed", result, {"factor": None, "unit": "1"}, "the weight of the reports")
    assert list(pair.statements()) == [
        'CREATE OR REPLACE MACRO ldp.weighed("report", "factor", "unit" := 1, "keep" := true) AS '
        "list_sum(map_values(ldp._counted(report, keep))) * factor;",
        "COMMENT ON MACRO ldp.weighed IS 'aggregate: the weight of the reports';",
        'CREATE OR REPLACE MACRO ldp.weighed_counts("counts", "factor", "unit" := 1) AS list_sum(map_values(counts)) * factor;',
        "COMMENT ON MACRO ldp.weighed_counts IS 'the same from counts';",
    ]
    con.execute(aggregates(pair).statements("ldp"))
    rows = "FROM range(6) t(r)"
    (both,) = con.execute(f"SELECT [ldp.weighed(r, 2, keep := r > 1), ldp.weighed_counts(ldp.counts(r), 2)] {rows}").fetchall()
    assert both == ([8, 12],)


def test_keep_stands_where_it_is_declared() -> None:
    created = next(Aggregate("x", COUNTS, {"m": None, "keep": "true", "estimator": "'ibu'"}).statements())
    assert '("report", "m", "keep" := true, "estimator" := \'ibu\')' in created


@pytest.mark.parametrize(
    "report", ["NULL", "$1", "NULL::UBIGINT[]", "[1]::UBIGINT[]", "{'seed': 1::UBIGINT, 'y': 1::UINTEGER}"]
)
def test_reports_of_every_type_are_counted(con: DuckDBPyConnection, report: str) -> None:
    query = f"SELECT map_values(ldp._counted({report}, true))"
    (counted,) = con.execute(query, [3] if "$" in report else None).fetchone() or ()
    assert counted is None if "NULL" in report else counted == [1]
