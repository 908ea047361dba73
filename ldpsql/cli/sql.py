"""``ldpsql sql``: a DuckDB prompt with the functions attached."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ldpsql.cli.options import COUNTED, Format, FormatOption, of_table, working, write_rows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ldpsql.ledger import Ledger
    from ldpsql.sql.drawing import DrawingFunctions


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
    from ldpsql.ledger.configured import configured_key, configured_ledger
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
    from ldpsql.engine.interrupting import interruptible

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
