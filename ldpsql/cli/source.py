"""Where a command finds reports: a file, or a table of a database, which is opened for reading only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ldpsql.estimator import Estimator
    from ldpsql.mechanism import Mechanism


@contextmanager
def opened(database: str) -> Iterator[DuckDBPyConnection]:
    """Open a database for reading, or one in memory, with the functions attached.

    Raises:
        InvalidParameter: where there is none.

    """
    import ldpsql
    from ldpsql.interrupting import interruptible

    with ldpsql.connect(existing(database), read_only=database != ":memory:") as con, interruptible(con):
        yield con


def existing(database: str) -> str:
    """Return the name of a database that is there.

    Raises:
        InvalidParameter: where there is no such file: DuckDB would make one.

    """
    from ldpsql.errors import InvalidParameter

    if database != ":memory:" and not Path(database).is_file():
        raise InvalidParameter("there is no database of this name", "--database takes a DuckDB file")
    return database


def checked(con: DuckDBPyConnection, source: str, columns: Iterable[str]) -> str:
    """Return a file, a folder of Parquet files or a table as SQL, once it is there and has these columns.

    Raises:
        InvalidParameter: where it is not there, or cannot be read as a table.
        UnknownName, InvalidParameter: where a column is not.

    """
    import duckdb

    from ldpsql.errors import InvalidParameter, UnknownName
    from ldpsql.sql import text_literal

    table = text_literal(str(Path(source) / "**" / "*.parquet") if Path(source).is_dir() else source)
    try:
        there = con.sql(f"FROM query_table({table})").columns
    except duckdb.IOException:
        raise InvalidParameter("this file is not there, or cannot be read as a table", "a Parquet, CSV or JSON file") from None
    except duckdb.Error:
        hint = "give a Parquet, CSV or JSON file, or a table and its --database"
        raise InvalidParameter("there is no file and no table of this name", hint) from None
    for column in columns:
        if column not in there and Path(source).suffix in ("", ".parquet"):
            raise UnknownName("column", column, there)
        if column not in there:  # what DuckDB takes for names in a text file may be somebody's data
            raise InvalidParameter("the file has no column of this name", "the first line of a CSV file must name the columns")
    return table


def estimating(
    con: DuckDBPyConnection, table: str, column: str, keys: list[str], mechanism: Mechanism, estimator: Estimator
) -> str:
    """Return the query that estimates a column of reports, in each group of the keys where there are any."""
    from ldpsql.named import sql_call
    from ldpsql.sql import quoted, struct_text, text_literal

    made, method = sql_call(mechanism, con), text_literal(str(estimator))
    if not keys:
        return f"FROM ldp.estimate({table}, {quoted(column)}, {made}, estimator := {method})"
    groups = struct_text({key: quoted(key) for key in keys})
    call = f"ldp.estimate_by({table}, {quoted(column)}, {groups}, {made}, estimator := {method})"
    # within its group a value keeps its place in the domain
    numbered = f"SELECT *, row_number() OVER () AS place FROM {call} AS t(key)"
    return f"SELECT unnest(key), * EXCLUDE (key, place)\nFROM ({numbered})\nORDER BY key, place"
