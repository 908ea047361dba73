"""``ldpsql estimate``: the distribution behind a column of reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ldpsql.cli.options import (
    BoundsOption,
    ByOption,
    ColumnsOption,
    DatabaseOption,
    EstimatorOption,
    NamedArgument,
    RecordedOption,
    SourceArgument,
    columns_named,
)
from ldpsql.cli.output import Format, FormatOption, of_table, write_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from ldpsql.cli.sides import Sides


def estimate(
    source: SourceArgument,
    named: NamedArgument = None,
    column: ColumnsOption = None,
    mechanism: RecordedOption = None,
    estimator: EstimatorOption = "",
    by: ByOption = None,
    database: DatabaseOption = ":memory:",
    top: Annotated[int | None, typer.Option("--top", min=1, help="Only this number of most frequent values.")] = None,
    rectangle: Annotated[
        list[str] | None,
        typer.Option(help="WEST,SOUTH,EAST,NORTH: only the share of this rectangle of a map, with --bounds; repeat it."),
    ] = None,
    bounds: BoundsOption = "",
    read: Annotated[
        str, typer.Option(help="Another library drew the reports, in this format: bits, array, position, positions or xxhash.")
    ] = "",
    form: FormatOption = Format.TABLE,
    into: Annotated[
        str | None, typer.Option("--into", help="With --by: a new table of --database for the estimates of very many groups.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the table of --into.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="With --into: continue a run that was killed.")] = False,
) -> None:
    """Estimate the share of every value from reports.

    Parquet and Arrow files and tables record the mechanism that drew their reports. For other reports, pass --mechanism.

    Example: ldpsql estimate reports.parquet city --by region
    """
    from ldpsql.cli.groups import check_into, estimate_into
    from ldpsql.errors import InvalidParameter, NoReports

    on = _sides(bounds, rectangle, top)
    keys, columns = by or [], columns_named(named, column)
    if into is not None:
        check_into(columns, keys, database, shown=top is not None or on is not None or bool(read) or form is not Format.TABLE)
        estimate_into(source, columns[0], keys, mechanism, estimator, database, into, replace=replace, resume=resume)
        return
    if replace or resume:
        raise InvalidParameter("--replace and --resume are for --into", "add --into, or leave them out")
    rows = list(of_table(estimates(source, columns, keys, mechanism, estimator, database, top, on, read)))
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
    on: Sides | None = None,
    read: str = "",
) -> pa.Table:
    """Return the estimate from columns of reports, for each group; of the ``top`` values, or of rectangles, if asked for.

    Reports of another library are read in the format ``read``.
    """
    from ldpsql.cli import queries
    from ldpsql.cli.source import reading
    from ldpsql.quoting import text_literal
    from ldpsql.sql.named import sql_call

    with reading([source], columns, keys, mechanism, estimator, database) as [stored]:
        reports = stored
        if read:
            made = sql_call(stored.mechanism, stored.con)
            reports = stored._replace(reports=f"ldp.read({stored.reports}, {made}, format := {text_literal(read)})")
        if on:
            query = queries.rectangles(reports, keys, on)
        elif top is None:
            query = queries.shares(reports, keys)
        else:
            query = queries.top_values(reports, keys, top, named=bool(estimator))
        return reports.con.sql(query).to_arrow_table()


def _sides(bounds: str, rectangles: list[str] | None, top: int | None) -> Sides | None:
    """Return the rectangles whose shares are asked for, if any."""
    from ldpsql.cli.sides import Sides
    from ldpsql.errors import InvalidParameter

    if rectangles and top is not None:
        raise InvalidParameter("--top and --rectangle are different questions", "leave out one of them")
    if bounds and not rectangles:
        raise InvalidParameter("--bounds is for --rectangle", "ldpsql report draws a map with them")
    return Sides.named(bounds, rectangles) if rectangles else None
