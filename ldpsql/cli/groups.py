"""``ldpsql estimate --into``: the estimates of very many groups, as a table."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


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
    from ldpsql.cli.bar import bar
    from ldpsql.cli.source import compared, drawn_by
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
    from ldpsql.cli.source import existing

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
