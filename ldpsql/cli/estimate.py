"""``ldpsql estimate``: the distribution behind a column of reports."""

from __future__ import annotations

from typing import Annotated

import typer

from ldpsql.cli.options import (
    ByOption,
    DatabaseOption,
    EstimatorOption,
    NamedArgument,
    NamedOption,
    RecordedOption,
    SourceArgument,
    column_of,
)
from ldpsql.cli.output import Format, FormatOption, rows_of, write_rows
from ldpsql.names import IBU


def estimate(
    source: SourceArgument,
    named: NamedArgument = None,
    column: NamedOption = None,
    mechanism: RecordedOption = None,
    estimator: EstimatorOption = IBU,
    by: ByOption = None,
    database: DatabaseOption = ":memory:",
    top: Annotated[int | None, typer.Option("--top", min=1, help="Only the most frequent values, so many.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Estimate the share of every value from reports.

    Parquet and Arrow files and tables record the mechanism that drew their reports. For other reports, pass --mechanism.

    Example: ldpsql estimate reports.parquet city --by region
    """
    from ldpsql.bulk.sources import sql_of
    from ldpsql.cli.source import compared, drawn_by, estimating, estimating_top, opened
    from ldpsql.errors import NoReports
    from ldpsql.registry.registry import registry

    keys, method, report = by or [], registry().estimator(estimator), column_of(named, column)
    with opened(database) as con:
        table = sql_of(con, source, [report, *keys])
        made = drawn_by(con, source, report, mechanism)
        with compared(con, source, report, made):
            if top is None:
                query = estimating(con, table, report, keys, made, method)
            else:
                query = estimating_top(con, table, report, keys, made, method, top)
            rows = list(rows_of(con.sql(query)))
    if not rows:
        raise NoReports(hint="is the column empty?")
    write_rows(rows, form)
