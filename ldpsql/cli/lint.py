"""``ldpsql lint``: SQL files in, findings out, also as SARIF 2.1.0, which code review tools show next to the lines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from ldpsql.cli.options import Format, existing, opened, write_rows

if TYPE_CHECKING:
    from ldpsql.sql.scripts import Place


class LintFormat(StrEnum):
    """How findings are written: as rows are, as text, or for tools of code review."""

    TABLE = "table"
    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    SARIF = "sarif"


def lint(
    files: Annotated[list[Path] | None, typer.Argument(help="SQL files, or folders of them, such as a dbt project.")] = None,
    database: Annotated[
        str, typer.Option("--database", "-d", help="A DuckDB file, whose comments say which columns are reports.")
    ] = "",
    portable: Annotated[
        bool, typer.Option("--portable", help="Also find views and macros of the database that need ldpsql.")
    ] = False,
    form: Annotated[
        LintFormat,
        typer.Option("--format", envvar="LDPSQL_FORMAT", help="How to write the findings; sarif is for code review."),
    ] = LintFormat.TABLE,
) -> None:
    """Find statements in SQL files that perturb in a way that reveals values, or use reports as values; nothing is run.

    It finds views, macros, generated columns and checks that draw new reports whenever they are used, and reports that are
    stored in the order of the rows: CREATE TABLE AS, INSERT, COPY and UPDATE without ORDER BY random(). It also finds reports
    inside IN, NULLIF or CASE x WHEN, which DuckDB may draw several times for a row; rows that are drawn twice by a join, UNION
    or a CTE; values stored next to their reports; rows chosen by such a value, and mechanisms made from it.

    It also finds columns of reports in GROUP BY, WHERE, JOIN, DISTINCT, comparisons, aggregates and windows, and says what to
    write instead. Columns are reports if these files draw them, or if Parquet files or comments of the database record it.
    With --database, it also reads the views and macros of the database; with --portable, it finds those that other clients of
    DuckDB can neither use nor import. Exits with 3 if it finds anything.

    Example: ldpsql lint models/ reports.sql --database warehouse.duckdb --format json
    """
    from ldpsql.errors import InvalidParameter, PrivacyError

    if not files and not database:
        raise InvalidParameter("there is nothing to read", "name SQL files, folders or a database")
    if portable and not database:
        raise InvalidParameter("--portable is about a database", "name it with --database")
    rows = _rows(files or [], database) + (_needing(database) if portable else [])
    if form is LintFormat.SARIF:
        typer.echo(sarif(rows))
    else:
        write_rows(rows, Format.TABLE if form is LintFormat.TEXT else Format(form.value))
    if rows:
        raise typer.Exit(PrivacyError.exit_code)


def _rows(files: list[Path], database: str) -> list[dict[str, object]]:
    """Return the findings in files and in a database."""
    from ldpsql.sql.recorded import of_database
    from ldpsql.sql.scripts import lint_files

    if not database:
        return _placed(lint_files(files))
    with opened(database) as con:
        inside = con.sql("FROM ldp.lint()").fetchall()
        placed = _placed(lint_files(files, of_database(con)))
    return [*placed, *(_row(database, 0, f"{kind} {name}", problem, remedy) for kind, name, problem, remedy in inside)]


def _needing(database: str) -> list[dict[str, object]]:
    """Return a finding for each view and macro of a database that needs ldpsql."""
    from ldpsql.sql.portable import portability

    problem = "it needs ldpsql: other clients of DuckDB can neither use nor import it"
    remedy = "hand the database on with ldpsql export-database"
    needing = portability(existing(database)).needing
    return [_row(database, 0, f"{one.kind} {one.name}", problem, remedy) for one in needing]


def _placed(places: list[Place]) -> list[dict[str, object]]:
    return [_row(p.file, p.line, p.finding.kind, p.finding.problem, p.finding.remedy) for p in places]


def _row(file: str, line: int, kind: str, problem: str, remedy: str) -> dict[str, object]:
    return {"file": file, "line": line, "kind": kind, "problem": problem, "remedy": remedy}


SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(findings: Sequence[Mapping[str, Any]]) -> str:
    """Return findings as a SARIF log: one rule for each kind, and a result for each finding."""
    from ldpsql import __version__

    kinds = sorted({_rule(finding) for finding in findings})
    rules = [{"id": kind, "shortDescription": {"text": f"A {kind} that gives values away"}} for kind in kinds]
    driver = {"name": "ldpsql", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": [_result(finding) for finding in findings]}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _rule(finding: Mapping[str, Any]) -> str:
    """Return the kind of a finding without the name of an object."""
    return str(finding["kind"]).split(" ", 1)[0]


def _uri(path: PurePath) -> str:
    """Return the address of a file, relative to the folder of the review if the path is."""
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


def _result(finding: Mapping[str, Any]) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": {"uri": _uri(PurePath(str(finding["file"])))}}
    if finding["line"]:  # an object of a database has none
        location["region"] = {"startLine": finding["line"]}
    text = f"{finding['kind']}: {finding['problem']}. {finding['remedy']}"
    return {
        "ruleId": _rule(finding),
        "level": "error",
        "message": {"text": text},
        "locations": [{"physicalLocation": location}],
    }
