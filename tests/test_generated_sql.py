"""What is generated of SQL: aggregates, and what forms of reports add to macros."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection

from ldpsql.engine import forms
from ldpsql.engine.forms import KINDS, mark_of
from ldpsql.functions import Macros, registry
from ldpsql.reports import FORMS, MarkedReports

SIGNATURES = Path(__file__).parent / "data" / "signatures.txt"
_CREATED = re.compile(r"MACRO ldp\.([a-z]\w*)\((.*?)\) AS", re.DOTALL)
AS_BEFORE = {
    "estimator := NULL": "estimator := 'ibu'",  # the same for all that 0.1.0 could estimate: not for large maps
    "m := NULL": "m",
    "m := false": "m",
}
_WRITTEN = re.compile(r"(\w+)\((.*)\)")


def parameters(text: str) -> list[str]:
    return " ".join(text.split()).split(", ")


def test_names_parameters_and_defaults_of_0_1_0_are_kept() -> None:
    texts = [offered.text for _, functions in registry().functions() for offered in functions if isinstance(offered, Macros)]
    created = {name: parameters(listed) for text in texts for name, listed in _CREATED.findall(text.replace('"', ""))}
    for name, listed in _WRITTEN.findall(SIGNATURES.read_text(encoding="utf-8")):
        now = iter([AS_BEFORE.get(parameter, parameter) for parameter in created[name]])
        assert all(AS_BEFORE.get(parameter, parameter) in now for parameter in parameters(listed)), (
            name
        )  # in this order; others may stand between them


COUNTED = {
    "another aggregate": "SELECT {}(ldp.counts(x), m()) FROM r",
    "a column": "SELECT {}(c, m()) FROM (SELECT ldp.counts(x) AS c FROM r)",
    "the sum of a column": "SELECT {}(ldp.counts(c), m()) FROM (SELECT ldp.counts(x) AS c FROM r GROUP BY g)",
    "a subquery": "SELECT {}((SELECT ldp.counts(x) FROM r), m())",
    "a map of reports and numbers": "SELECT {}(map(list(x), list(n)), m()) FROM (SELECT x, count(*) AS n FROM r GROUP BY x)",
}


@pytest.mark.parametrize("mechanism", ["krr", "oue", "olh"])
@pytest.mark.parametrize("written", COUNTED)
def test_counts_are_told_from_reports_by_their_type(con: DuckDBPyConnection, mechanism: str, written: str) -> None:
    con.execute(f"CREATE MACRO m() AS ldp.{mechanism}(1, range(4))")
    con.execute("CREATE TABLE r AS SELECT i % 3 AS g, ldp.perturb(i % 4, m()) AS x FROM range(3000) t(i)")
    expected = con.execute("SELECT ldp.inv(x, m()) FROM r").fetchall()
    assert con.execute(COUNTED[written].format("ldp.inv")).fetchall() == expected


def test_keep_chooses_among_counts_as_among_reports(con: DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE r AS SELECT i % 3 AS g, ldp.perturb(i % 4, ldp.krr(1, range(4))) AS x FROM range(3000) t(i)")
    counted = "(SELECT g, ldp.counts(x) AS c FROM r GROUP BY g ORDER BY g)"
    kept = con.execute(f"SELECT ldp.inv(c, ldp.krr(1, range(4)), keep := g = 1) FROM {counted}").fetchall()
    (own,) = con.execute("SELECT ldp.inv(x, ldp.krr(1, range(4)), keep := g = 1) FROM r").fetchall()
    assert kept == [(None,), own, (None,)]


@pytest.mark.parametrize(
    "report", ["NULL", "$1", "NULL::UBIGINT[]", "[1]::UBIGINT[]", "{'seed': 1::UBIGINT, 'y': 1::UINTEGER}"]
)
def test_reports_of_every_type_are_counted(con: DuckDBPyConnection, report: str) -> None:
    query = f"SELECT map_values(ldp._counted({report}, true))"
    (counted,) = con.execute(query, [3] if "$" in report else None).fetchone() or ()
    assert counted is None if "NULL" in report else counted == [1]


@pytest.mark.parametrize("values", [2, 64, 65, 200])
def test_sets_counted_as_bytes_give_what_counts_of_lists_give(con: DuckDBPyConnection, values: int) -> None:
    con.execute(f"CREATE MACRO m() AS ldp.oue(1, range({values}))")
    con.execute(f"CREATE TABLE r AS SELECT i % 3 AS g, ldp.perturb(i % {values}, m()) AS x FROM range(300) t(i)")
    con.execute("INSERT INTO r VALUES (0, NULL), (3, NULL)")
    both = "SELECT g, ldp.inv(x, m()), ldp.inv(ldp.counts(x), m()) FROM r WHERE {} GROUP BY g ORDER BY g"
    for where in ("true", "g = 1", "x IS NULL"):
        assert all(direct == from_counts for _, direct, from_counts in con.execute(both.format(where)).fetchall())


def test_a_list_with_null_cannot_be_a_report(con: DuckDBPyConnection) -> None:
    rows = "FROM (SELECT unnest([[1], [NULL], [2, NULL], [], NULL]::UBIGINT[][]) AS r)"
    (row,) = con.execute(f"SELECT ldp.diagnose(r, ldp.oue(1, [7, 8])).impossible {rows}").fetchall()
    assert row == (3,)
    with pytest.raises(Exception, match="LDP40"):
        con.execute(f"SELECT ldp.inv(r, ldp.oue(1, [7, 8])) {rows}").fetchall()


def marked(kind: type[MarkedReports]) -> set[type[MarkedReports]]:
    below = {form for child in kind.__subclasses__() for form in marked(child)}
    return below | ({kind} if hasattr(kind, "mark") and kind.__module__.startswith("ldpsql.reports.") else set())


def test_forms_with_one_mark_agree_on_what_sql_sees(con: DuckDBPyConnection) -> None:
    for form in marked(MarkedReports):
        other = FORMS[form.mark]
        assert (form.marker, form.sql_type, form.type, form.counted) == (
            other.marker,
            other.sql_type,
            other.type,
            other.counted,
        )
        assert form.marker == f"{{'{form.mark}': 1}}"
        con.register("reports", pa.table({"report": pa.nulls(1, form.type)}))
        assert con.execute("SELECT typeof(report) FROM reports").fetchall() == [(form.sql_type,)]


def test_a_form_gets_its_functions_and_overloads(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bytes(MarkedReports):
        mark = "bytes"
        sql_type = "BLOB"
        type = pa.binary()
        counted = "count(report) FILTER (WHERE keep)"

    assert Bytes.marker == "{'bytes': 1}"
    monkeypatch.setattr(forms, "FORMS", {"bytes": Bytes})
    made = forms.scalars_by_form("__ldp_perturb", lambda _, kind: lambda: kind)
    assert [(one.name, one.function(), one.returns, one.draws) for one in dict.fromkeys(made.values())] == [
        ("__ldp_perturb_bytes", pa.binary(), "BLOB", True),
        *((f"__ldp_perturb_{mark_of(kind)}", arrow, kind, True) for kind, arrow in KINDS.items()),
        ("__ldp_perturb_columns", pa.string(), "VARCHAR", True),  # of rows, as JSON
        ("__ldp_perturb", pa.int32(), "INTEGER", True),
    ]
    macro = forms.drawn_by_form("_report", made, ("x",), "x, number(m)").text
    assert "(x, m, kind STRUCT(bytes INTEGER)) AS __ldp_perturb_bytes(x, number(m))" in macro
    assert "(report BLOB, keep) AS count(report) FILTER (WHERE keep)" in forms.counted_by_form().text


def test_numbered_forms_are_repeated_like_lists_of_values(con: DuckDBPyConnection) -> None:
    mechanism = "ldp.olh(4, range(40))"
    query = f"SELECT ldp.ibu([ldp.perturb(7, {mechanism}), ldp.perturb(7, {mechanism})], {mechanism}) FROM range(300)"
    (rows,) = con.execute(query).fetchone() or ()
    assert max(rows, key=lambda row: row["estimate"])["value"] == 7
