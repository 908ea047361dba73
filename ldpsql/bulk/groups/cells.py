"""Counts of reports in very many groups as a sorted table of cells (keys, report, n), which is read some groups at a time.

The cells of a group are neighbours, and groups come in the order of a hash of their keys: the first groups are a random choice.
A group is known by the row number of its first cell; its keys never leave DuckDB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from duckdb import DuckDBPyConnection
from numpy.typing import NDArray

from ldpsql.bulk.columns.mechanisms import check_columns
from ldpsql.bulk.groups.rows import CELL
from ldpsql.domains.columns import plain
from ldpsql.inference.counts import GroupedCounts, whole_numbers
from ldpsql.quoting import quoted, text_literal

CELLS_AT_ONCE = 1 << 20
REPORT, N, FIRST = map(quoted, ("ldp report", "ldp n", "ldp first"))  # keys may have any name


def reading(reports: str, report: str, keys: Sequence[str], what: str) -> str:
    """Return the query for something about the reports that are not NULL; ``reports`` is what ``query_table`` takes."""
    source, column = f"query_table({text_literal(reports)})", quoted(report)
    return f"SELECT {what} FROM (SELECT {_names(keys)}, {column} AS {REPORT} FROM {source}) WHERE {REPORT} IS NOT NULL"  # noqa: S608  # quoted


def _names(keys: Sequence[str]) -> str:
    return ", ".join(map(quoted, keys))


def digest(keys: Sequence[str], number: str) -> str:
    """Return the SQL of a digest of reports and groups that does not depend on their order; each row stands for ``number``."""
    return f"concat(sum({number}), ' ', sum(hash({_names(keys)}, {REPORT})::HUGEINT * {number}))"


@dataclass(frozen=True)
class CountTable:
    """The table of the counts of all groups, sorted by group; ``name`` is what SQL calls it."""

    name: str
    keys: tuple[str, ...]

    def write(self, cursor: DuckDBPyConnection, reports: str, report: str) -> None:
        """Count the reports into the table.

        Raises:
            UnknownName: if the reports have no such columns.

        """
        existing = cursor.sql(f"FROM query_table({text_literal(reports)}) LIMIT 0").columns
        lowercase = [name.lower() for name in existing]
        check_columns([name for name in (report, *self.keys) if name.lower() not in lowercase], existing, hint_names=False)
        names = _names(self.keys)
        counted = reading(reports, report, self.keys, f"{names}, {REPORT}, count(*) AS {N}") + " GROUP BY ALL"
        new = f"row({names}) IS DISTINCT FROM lag(row({names})) OVER ()"
        cursor.execute(
            f"""CREATE TABLE {self.name} AS SELECT *, {new} AS {FIRST}
                FROM (SELECT * FROM ({counted}) ORDER BY hash({names}), {names})"""  # noqa: S608  # quoted
        )

    def size(self, cursor: DuckDBPyConnection, done: int) -> tuple[int, int, int]:
        """Return how many cells there are, how many groups, and how many of these among the first cells that are ``done``."""
        query = f"SELECT count(*), count(*) FILTER ({FIRST}), count(*) FILTER ({FIRST} AND rowid < {done}) FROM {self.name}"  # noqa: S608  # quoted
        ((cells, groups, groups_done),) = cursor.execute(query).fetchall()
        return cells, groups, groups_done

    def digest(self, cursor: DuckDBPyConnection) -> str:
        """Return the digest of the reports that were counted."""
        ((made,),) = cursor.execute(f"SELECT {digest(self.keys, N)} FROM {self.name}").fetchall()  # noqa: S608  # quoted
        return str(made)

    def pooled(self, cursor: DuckDBPyConnection, most: int) -> GroupedCounts | None:
        """Return the counts of all groups together; None if there are more than ``most`` different reports."""
        query = f"SELECT {REPORT}, sum({N})::UBIGINT AS {N} FROM {self.name} GROUP BY ALL LIMIT {most + 1}"  # noqa: S608  # quoted
        table = cursor.sql(query).to_arrow_table()
        return None if table.num_rows > most else GroupedCounts.of(plain(table.column(0)), plain(table.column(1)))

    def last_key(self, cursor: DuckDBPyConnection) -> pa.DataType:
        """Return the type of the last key."""
        return cursor.sql(f"SELECT {quoted(self.keys[-1])} FROM {self.name} LIMIT 0").to_arrow_table().schema.field(0).type  # noqa: S608  # quoted

    def in_order(self, cursor: DuckDBPyConnection) -> NDArray[np.int64]:
        """Return the numbers of all groups in the order of their keys."""
        order = f"SELECT rowid FROM {self.name} WHERE {FIRST} ORDER BY {_names(self.keys)}"  # noqa: S608  # quoted
        return cursor.execute(order).fetchnumpy()["rowid"]

    def first_of(self, begin: int, end: int) -> str:
        """Return the query for the number of the first cell of each group in some rows, and its keys."""
        return f"SELECT rowid AS {quoted(CELL)}, {_names(self.keys)} FROM {self._rows(begin, end)} AND {FIRST}"  # noqa: S608  # quoted

    def _rows(self, begin: int, end: int) -> str:
        return f"{self.name} WHERE rowid >= {begin} AND rowid < {end}"

    def groups(self, cursor: DuckDBPyConnection, begin: int, cells: int, at_once: int) -> Iterator[tuple[int, GroupedCounts]]:
        """Yield counts of at most ``at_once`` groups, and the row after their last cell.

        Args:
            cursor: it is free for other statements between two counts.
            begin: the first cell of a group.
            cells: how many cells there are.
            at_once: how many groups are held together at most.

        """
        while begin < cells:
            table, ends = self._whole_groups(cursor, begin, cells)
            for some in range(0, len(ends) - 1, at_once):
                of_some = ends[some : some + at_once + 1]
                yield begin + int(of_some[-1]), _counts(table.slice(of_some[0], of_some[-1] - of_some[0]), of_some, begin)
            begin += int(ends[-1])

    def _whole_groups(self, cursor: DuckDBPyConnection, begin: int, cells: int) -> tuple[pa.Table, NDArray[np.int64]]:
        """Return the cells of the next whole groups, at least one, and where these begin and end."""
        most = CELLS_AT_ONCE
        while True:
            query = f"SELECT {REPORT}, {N}, {FIRST} FROM {self._rows(begin, begin + most)} ORDER BY rowid"  # noqa: S608  # quoted
            table = cursor.sql(query).to_arrow_table()
            starts = np.flatnonzero(plain(table.column(2)).to_numpy(zero_copy_only=False))
            if begin + most >= cells:
                return table, np.append(starts, table.num_rows)
            if len(starts) > 1:
                return table, starts
            most *= 2


def _counts(table: pa.Table, ends: NDArray[np.int64], begin: int) -> GroupedCounts:
    """Return the counts in the cells of groups that begin and end at these rows; ``begin`` is the number of the row 0."""
    group = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    return GroupedCounts(plain(table.column(0)), whole_numbers(plain(table.column(1))), group, begin + ends[:-1])
