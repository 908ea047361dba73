"""The record of mechanisms in the comments of the tables that models draw into."""

from __future__ import annotations

from threading import Lock
from typing import Any

from duckdb import DuckDBPyConnection

from ldpsql.bulk.fingerprints import Marking
from ldpsql.bulk.releases import marking_of_query
from ldpsql.sql.drawing import DrawingFunctions


class Records:
    """What will be recorded of the models of one run, by their ids."""

    def __init__(self) -> None:
        self._markings: dict[str, Marking | None] = {}
        self._lock = Lock()

    def begin(self, node: Any, con: DuckDBPyConnection, drawing: DrawingFunctions) -> None:
        """Read which columns a model draws, and the comments of its table, before its first statement that draws."""
        with self._lock:
            if node.unique_id not in self._markings and node.relation_name:
                sql = node.compiled_code or ""
                self._markings[node.unique_id] = marking_of_query(con, node.relation_name, sql, drawing)

    def finish(self, node: Any, con: DuckDBPyConnection) -> None:
        """Write the comments of the table of a model that succeeded."""
        with self._lock:
            marking = self._markings.pop(node.unique_id, None)
        if marking is not None:
            with con.cursor() as cursor:
                marking.write_if_there(cursor, appended=str(node.config.materialized) == "incremental")
