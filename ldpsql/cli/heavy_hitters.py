"""``ldpsql heavy-hitters``: the most frequent strings behind a column of reports, without a list of strings."""

from __future__ import annotations

from typing import Annotated

import typer

from ldpsql.cli.options import ByOption, DatabaseOption, NamedArgument, NamedOption, RecordedOption, SourceArgument, column_of
from ldpsql.cli.output import Format, FormatOption, rows_of, write_rows


def heavy_hitters(
    source: SourceArgument,
    named: NamedArgument = None,
    column: NamedOption = None,
    mechanism: RecordedOption = None,
    top: Annotated[int, typer.Option("--top", min=1, max=10_000, help="Most strings to show.")] = 20,
    certain: Annotated[bool, typer.Option("--certain/--all", help="Only strings whose interval does not hold 0.")] = True,
    by: ByOption = None,
    database: DatabaseOption = ":memory:",
    form: FormatOption = Format.TABLE,
) -> None:
    """Find the most frequent strings from reports of pem, which needs no list of strings.

    Parquet and Arrow files and tables record the mechanism that drew their reports. For other reports, pass --mechanism.

    Example: ldpsql heavy-hitters reports.parquet query --top 10
    """
    from ldpsql.bulk.sources import sql_of
    from ldpsql.cli.queries import top_strings
    from ldpsql.cli.source import compared, drawn_by, opened
    from ldpsql.errors import NoReports
    from ldpsql.quoting import quoted
    from ldpsql.sql.named import sql_call
    from ldpsql.strings.hitters import strings_of

    keys, report = by or [], column_of(named, column)
    with opened(database) as con:
        table = sql_of(con, source, [report, *keys])
        made = drawn_by(con, source, [report], mechanism)
        strings_of(made)
        with compared(con, source, report, made):
            query = top_strings(table, quoted(report), sql_call(made, con), keys, top, certain=certain)
            rows = list(rows_of(con.sql(query)))
    if not rows:
        raise NoReports(hint="no string is certain to occur: --all shows those that are most likely")
    write_rows(rows, form)
