"""The mark of a guarded DuckDB instance: a function of the system catalog, which SQL can neither drop nor replace.

Any user can replace the macro `_guard`, or detach its catalog; attaching ldpsql again then finds the mark.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from duckdb import DuckDBPyConnection
from duckdb.func import FunctionNullHandling, PythonUDFType

from ldpsql.engine.functions import GUARD_MARK, guarded

_MARKS = f"""SELECT function_name FROM duckdb_functions()
             WHERE database_name = 'system' AND starts_with(function_name, '{GUARD_MARK}')"""  # noqa: S608  # a constant
_MADE: list[str] = []  # in this process: without any, skip the query, which takes DuckDB 20 ms


def mark(cursor: DuckDBPyConnection, catalog: str, number: int) -> None:
    """Mark an instance: its catalog of this name has the guard of this number."""
    name = f"{GUARD_MARK}{number}_{catalog.casefold().encode().hex()}"
    _MADE.append(name)
    cursor.create_function(name, _marked, None, "BOOLEAN", type=PythonUDFType.ARROW, null_handling=FunctionNullHandling.SPECIAL)


def marked(cursor: DuckDBPyConnection) -> dict[str, int]:
    """Return the number of the latest guard of each marked catalog, by the catalog's name in lowercase."""
    return marks(name for (name,) in cursor.execute(_MARKS).fetchall()) if _MADE else {}


def marks(functions: Iterable[str]) -> dict[str, int]:
    """Return what `marked` does, from the names of the functions of the system catalog."""
    made = sorted(name.removeprefix(GUARD_MARK).split("_") for name in functions if name.startswith(GUARD_MARK))
    latest: dict[str, int] = {}
    for number, catalog in made:
        name = bytes.fromhex(catalog).decode()
        latest[name] = max(int(number), latest.get(name, -1))
    return latest


@guarded
def _marked(column: Any) -> pa.Array:
    return pa.array([True] * len(column))
