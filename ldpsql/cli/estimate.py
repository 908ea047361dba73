"""``ldpsql estimate``: the distribution behind a column of reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ldpsql.cli.options import (
    ByOption,
    DatabaseOption,
    EstimatorOption,
    NamedArgument,
    RecordedOption,
    SourceArgument,
    columns_named,
)
from ldpsql.cli.output import Format, FormatOption, of_table, write_rows
from ldpsql.names import IBU

if TYPE_CHECKING:
    import pyarrow as pa


def estimate(
    source: SourceArgument,
    named: NamedArgument = None,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", "-c", help="The column that holds the reports; of a row(...), each of its columns."),
    ] = None,
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
    from ldpsql.errors import NoReports

    rows = list(of_table(estimates(source, columns_named(named, column), by or [], mechanism, estimator, database, top)))
    if not rows:
        raise NoReports(hint="is the column empty?")
    write_rows(rows, form)


def estimates(
    source: str,
    columns: list[str],
    keys: list[str],
    mechanism: str | None,
    estimator: str,
    database: str,
    top: int | None = None,
) -> pa.Table:
    """Return the estimate from columns of reports, for each group of the keys; with ``top``, of the most frequent values."""
    from contextlib import ExitStack

    from ldpsql.bulk.batches import drawn_apart
    from ldpsql.bulk.sources import sql_of
    from ldpsql.cli.source import compared, drawn_by, estimating, estimating_top, opened
    from ldpsql.engine.functions import struct_text
    from ldpsql.quoting import quoted
    from ldpsql.registry.registry import registry

    method = registry().estimator(estimator)
    with opened(database) as con:
        table = sql_of(con, source, [*columns, *keys])
        made = drawn_by(con, source, columns, mechanism)
        with ExitStack() as comparisons:
            for name, part in drawn_apart(columns, made).items():
                comparisons.enter_context(compared(con, source, name, part))
            reports = quoted(columns[0]) if len(columns) == 1 else struct_text({name: quoted(name) for name in columns})
            if top is None:
                query = estimating(con, table, reports, keys, made, method)
            else:
                query = estimating_top(con, table, reports, keys, made, method, top)
            return con.sql(query).to_arrow_table()
