"""Estimates: ``ldpsql estimate``, ``heavy-hitters``, ``rappor-shares`` and ``synthesize``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ldpsql.cli.options import (
    BoundsOption,
    ByOption,
    ColumnsOption,
    DatabaseOption,
    EstimatorOption,
    Format,
    FormatOption,
    NamedArgument,
    NamedOption,
    RecordedOption,
    SourceArgument,
    bar,
    column_of,
    columns_named,
    compared,
    drawn_by,
    edges_of,
    existing,
    of_table,
    opened,
    reading,
    rows_of,
    write_rows,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from ldpsql.estimates.rectangles import Rectangle
    from ldpsql.mechanisms.base import Mechanism


@dataclass(frozen=True)
class Sides:
    """Rectangles, and the bounds of the grid that they lie on: west, south, east and north."""

    bounds: Sequence[str]
    rectangles: Sequence[Rectangle]

    @classmethod
    def named(cls, bounds: str, rectangles: Sequence[str]) -> Sides:
        """Return what the options name; a side that is left out means no bound.

        Raises:
            InvalidParameter: if the bounds are missing, or one of the options does not name the sides of a rectangle.

        """
        from ldpsql.errors import InvalidParameter
        from ldpsql.estimates.rectangles import Rectangle

        if not bounds:
            raise InvalidParameter("--rectangle needs the bounds of the grid", "add --bounds=WEST,SOUTH,EAST,NORTH")
        sides = ([edge or None for edge in edges_of(one, "--rectangle")] for one in rectangles)
        return cls(edges_of(bounds), [Rectangle.of(one) for one in sides])

    def grid(self, mechanism: Mechanism) -> str:
        """Return the SQL for the grid whose cells are the values of a mechanism."""
        from ldpsql.estimates.rectangles import region_of
        from ldpsql.mechanisms.spec import sql_literal

        return f"ldp.grid({', '.join(map(sql_literal, region_of(mechanism, self.bounds).model_dump().values()))})"

    def corners(self) -> Iterator[list[str]]:
        """Yield the south-west and the north-east corners, as SQL points whose numbers are text, which is exact."""
        for at in (0, 2):
            pairs = ([_text(side) for side in one[at : at + 2]] for one in self.rectangles)
            yield [f"{{'lon': {lon}, 'lat': {lat}}}" for lon, lat in pairs]

    def listed(self) -> Iterator[str]:
        """Yield the sides of each rectangle as an SQL struct of numbers."""
        for one in self.rectangles:
            fields = (f"'{name}': {_text(side)}::DOUBLE" for name, side in one._asdict().items())
            yield f"{{{', '.join(fields)}}}"


def _text(side: Fraction | None) -> str:
    from ldpsql.mechanisms.spec import sql_literal

    return "NULL::VARCHAR" if side is None else f"'{sql_literal(side)}'"


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
    from ldpsql.bulk.queries import shares
    from ldpsql.cli import queries
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
            query = shares(reports, keys)
        else:
            query = queries.top_values(reports, keys, top)
        return reports.con.sql(query).to_arrow_table()


def _sides(bounds: str, rectangles: list[str] | None, top: int | None) -> Sides | None:
    """Return the rectangles whose shares are asked for, if any."""
    from ldpsql.errors import InvalidParameter

    if rectangles and top is not None:
        raise InvalidParameter("--top and --rectangle are different questions", "leave out one of them")
    if bounds and not rectangles:
        raise InvalidParameter("--bounds is for --rectangle", "ldpsql report draws a map with them")
    return Sides.named(bounds, rectangles) if rectangles else None


def check_into(columns: list[str], keys: list[str], database: str, *, shown: bool) -> None:
    """Refuse options that do not go together with ``--into``; ``shown``: a part or a form of what is printed is asked for.

    Raises:
        InvalidParameter: unless there are keys, one column of reports and a database file.

    """
    from ldpsql.errors import InvalidParameter

    if not keys or len(columns) > 1 or shown or database == ":memory:":
        raise InvalidParameter(
            "--into takes one column of reports, --by and --database, and none of --top, --rectangle and --format",
            "ldpsql estimate reports.parquet city --by region --database warehouse.duckdb --into by_region",
        )


def estimate_into(
    source: str,
    column: str,
    keys: list[str],
    mechanism: str | None,
    estimator: str,
    database: str,
    into: str,
    *,
    replace: bool,
    resume: bool,
) -> None:
    """Estimate every group into a table of a database, with a progress bar."""
    import ldpsql
    from ldpsql.bulk.sources import sql_of
    from ldpsql.errors import UnmarkedReports
    from ldpsql.estimates.fitting import estimator_of_shares
    from ldpsql.places import pattern_of

    reports = pattern_of(source)
    with _written(database, source) as con, warnings.catch_warnings():
        warnings.simplefilter("ignore", UnmarkedReports)  # the note of `compared` says it
        sql_of(con, source, [column, *keys])  # columns that do not exist are refused by name
        drew = drawn_by(con, source, [column], mechanism)
        with compared(con, source, column, drew), bar("groups", "groups read to learn from") as progress:
            groups = ldpsql.estimate_groups(
                con,
                reports,
                into,
                report=column,
                keys=keys,
                mechanism=drew,
                estimator=estimator or estimator_of_shares(drew),
                replace=replace,
                resume=resume,
                progress=progress,
            )
    typer.echo(f"estimated {groups:,} groups", err=True)


@contextmanager
def _written(database: str, source: str) -> Iterator[DuckDBPyConnection]:
    """Open a database for writing; that for the groups of a file is made, and deleted if an error leaves it empty.

    Raises:
        SourceRefused: if there is no such database, and the source is not a file.

    """
    import ldpsql

    new = not Path(database).exists() and (Path(source).exists() or "://" in source or "*" in source)
    empty = False
    try:
        with ldpsql.connect(database if new else existing(database)) as con:
            try:
                yield con
            except BaseException:
                empty = new and not con.execute("SELECT count(*) FROM duckdb_tables() WHERE NOT temporary").fetchall()[0][0]
                raise
    finally:
        if empty:
            Path(database).unlink(missing_ok=True)


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


def rappor_shares(
    params: Annotated[str, typer.Argument(metavar="PARAMS", help="A file with one row: k, h, m, p, q and f.")],
    counts: Annotated[
        str,
        typer.Argument(metavar="COUNTS", help="A file with a row for each cohort: its reports, then a count for each bit."),
    ],
    candidates: Annotated[
        str,
        typer.Argument(metavar="MAP", help="A file with a row for each candidate: its name, then its bits."),
    ],
    rate: Annotated[
        float, typer.Option(help="The expected share of the detected candidates that nobody has, between 0 and 1.")
    ] = 0.05,
    form: FormatOption = Format.TABLE,
) -> None:
    """Estimate the shares of candidate strings from a collection of google/rappor, and detect those that people have.

    The last row is the share of all other strings. The three files are CSV, Parquet or JSON.

    Example: ldpsql rappor-shares params.csv counts.csv map.csv --rate 0.05
    """
    from ldpsql.bulk.frames import rappor_shares as shares

    write_rows(shares(params, counts, candidates, rate).iter_rows(named=True), form)


def synthesize(
    source: SourceArgument,
    named: NamedArgument = None,
    rows: Annotated[int, typer.Option("--rows", "-n", help="How many rows.")] = 1000,
    column: ColumnsOption = None,
    mechanism: RecordedOption = None,
    estimator: EstimatorOption = "",
    by: ByOption = None,
    database: DatabaseOption = ":memory:",
    form: FormatOption = Format.CSV,
) -> None:
    """Draw rows from the estimate behind reports, for tools that need rows. They spend no epsilon.

    Example: ldpsql synthesize reports.parquet city --by region --rows 10000 > rows.csv
    """
    from ldpsql.errors import NoReports
    from ldpsql.estimates.synthetic import synthesize as drawn

    shares = estimates(source, columns_named(named, column), by or [], mechanism, estimator, database)
    if not len(shares):
        raise NoReports(hint="is the column empty?")
    write_rows(of_table(drawn(shares, rows)), form)
