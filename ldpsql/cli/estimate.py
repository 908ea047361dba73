"""Estimates: ``ldpsql estimate``, ``rappor-shares`` and ``synthesize``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ldpsql.cli.options import (
    ByOption,
    ColumnsOption,
    DatabaseOption,
    EstimatorOption,
    Format,
    FormatOption,
    NamedArgument,
    RecordedOption,
    SourceArgument,
    WeightOption,
    bar,
    columns_named,
    compared,
    drawn_by,
    existing,
    of_table,
    reading,
    write_rows,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection


def estimate(
    source: SourceArgument,
    named: NamedArgument = None,
    column: ColumnsOption = None,
    mechanism: RecordedOption = None,
    estimator: EstimatorOption = "",
    by: ByOption = None,
    weight: WeightOption = None,
    database: DatabaseOption = ":memory:",
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

    keys, columns = by or [], columns_named(named, column)
    if into is not None:
        if not keys or len(columns) > 1 or read or weight or form is not Format.TABLE or database == ":memory:":
            raise InvalidParameter(
                "--into takes one column of reports, --by and --database, and neither --read nor --format",
                "ldpsql estimate reports.parquet city --by region --database warehouse.duckdb --into by_region",
            )
        estimate_into(source, columns[0], keys, mechanism, estimator, database, into, replace=replace, resume=resume)
        return
    if replace or resume:
        raise InvalidParameter("--replace and --resume are for --into", "add --into, or leave them out")
    rows = list(of_table(estimates(source, columns, keys, mechanism, estimator, database, read, weight)))
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
    read: str = "",
    weight: str | None = None,
) -> pa.Table:
    """Return the estimate from columns of reports, for each group.

    Reports of another library are read in the format ``read``.
    """
    from ldpsql.bulk.queries import shares
    from ldpsql.quoting import text_literal
    from ldpsql.sql.named import sql_call

    with reading([source], columns, keys, mechanism, estimator, database, weight, read) as [stored]:
        reports = stored
        if read:
            made = sql_call(stored.mechanism, stored.con)
            reports = stored._replace(reports=f"ldp.read({stored.reports}, {made}, format := {text_literal(read)})")
        return reports.con.sql(shares(reports, keys)).to_arrow_table()


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
    from ldpsql.estimates.estimate import estimator_of_shares
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
    from ldpsql.estimates.simulated import synthesize as drawn

    shares = estimates(source, columns_named(named, column), by or [], mechanism, estimator, database)
    if not len(shares):
        raise NoReports(hint="is the column empty?")
    write_rows(of_table(drawn(shares, rows)), form)
