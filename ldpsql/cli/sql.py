"""``ldpsql sql``, a DuckDB prompt with the functions attached, and ``ldpsql lint``: findings in SQL files, also as SARIF."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from ldpsql.cli.options import COUNTED, Format, FormatOption, existing, of_table, opened, working, write_rows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ldpsql.ledger import Ledger
    from ldpsql.sql.drawing import DrawingFunctions
    from ldpsql.sql.scripts import Place


def sql(
    database: Annotated[str, typer.Argument(help="A DuckDB file; by default one in memory.")] = ":memory:",
    command: Annotated[list[str] | None, typer.Option("-c", "--command", help="Run this SQL and stop.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Run SQL with the functions attached as ldp.

    Without -c, statements are read from the prompt.

    Example: ldpsql sql -c "SELECT ldp.perturb('a', ldp.krr(1, ['a', 'b']))"
    """
    import ldpsql
    from ldpsql.errors import InvalidParameter

    if any(c.isspace() for c in database) and not Path(database).exists():
        raise InvalidParameter("there is no DuckDB file of this name", 'put SQL after -c: ldpsql sql -c "SELECT 1"')
    from ldpsql.ledger.guard import configured_key, configured_ledger
    from ldpsql.sql import surface

    ledger = configured_ledger()
    with ldpsql.connect(database, ledger=ledger, key=configured_key()) as con:
        con.execute(COUNTED)
        drawing = surface.drawing("ldp")
        if command:
            for text in command:
                run(con, text, form, drawing)
        elif sys.stdin.isatty():
            prompt(con, form, ledger, drawing)
        else:
            run(con, sys.stdin.read(), form, drawing)


def run(con: DuckDBPyConnection, text: str, form: Format, drawing: DrawingFunctions) -> None:
    """Run every statement of a text once, and write the rows of the queries.

    Raises:
        StatementFailed: if DuckDB refuses one.

    """
    import duckdb

    from ldpsql.cli.failures import StatementFailed, failure

    try:
        _run(con, text, form, drawing)
    except duckdb.Error as error:
        refusal = StatementFailed(failure(error, text))
    else:
        return
    raise refusal


def _run(con: DuckDBPyConnection, text: str, form: Format, drawing: DrawingFunctions) -> None:
    from duckdb import ExpectedResultType

    from ldpsql.bulk.releases import recorded_by
    from ldpsql.engine.connections import interruptible

    drawing.read(con, ours_known=True)
    for statement in con.extract_statements(text):
        drawing.define_all(statement.query)
        with interruptible(con), recorded_by(con, statement.query, drawing):
            with working(con):
                result = con.sql(statement)
            if result is None or statement.expected_result_type != [ExpectedResultType.QUERY_RESULT]:
                continue
            if form is Format.TABLE:
                with working(con):
                    table = con.from_arrow(result.to_arrow_table())  # run it once: to show the relation would draw again
                table.show(max_width=None if sys.stdout.isatty() else 10_000)
            else:
                write_rows(of_table(result.to_arrow_table()), form)


def prompt(con: DuckDBPyConnection, form: Format, ledger: Ledger | None, drawing: DrawingFunctions) -> None:
    """Read statements, each ending in a semicolon, until .quit or the end of input."""
    import contextlib

    from ldpsql.cli.failures import failure

    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # line editing and history, if the platform has it
    metered = f"with the ledger {ledger.path}" if ledger else "without a ledger: nothing is charged"
    typer.echo(f"DuckDB with ldpsql attached as ldp, {metered}. End statements with ';', leave with .quit")
    pending = ""
    while True:
        try:
            line = input("ldp> " if not pending else "...> ")
        except EOFError:
            return
        except KeyboardInterrupt:
            pending = ""
            typer.echo()
            continue
        if not pending and line.strip() in (".quit", ".exit", "quit", "exit"):
            return
        pending += line + "\n"
        if line.rstrip().endswith(";"):
            try:
                run(con, pending, form, drawing)
            except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # the prompt goes on
                failed = failure(error, pending)
                typer.echo(f"error{f'[{failed.code}]' if failed.code else ''}: {failed.message}", err=True)
                if failed.hint:
                    typer.echo(f"hint: {failed.hint}", err=True)
            pending = ""


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
    With --database, it also reads what the database defines; with --portable, it finds the views and macros that other
    clients of DuckDB can neither use nor import. Exits with 3 if it finds anything.

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
        write_rows(rows, Format.TABLE if form is LintFormat.TEXT else Format(form.value), "no findings")
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
