"""What SQL names while a statement is bound: the mechanism of a column, and the columns of a table or of files."""

from __future__ import annotations

from contextlib import suppress

import duckdb

from ldpsql.bulk.fingerprints import of_source
from ldpsql.engine.connections import CONNECTIONS
from ldpsql.mechanisms.base import Mechanism
from ldpsql.quoting import text_literal
from ldpsql.registry.recorded import recorded


def mechanism_at(catalog: int, search_path: str, reports: str, column: str) -> Mechanism:
    """Return the mechanism that drew a column of reports, as it is recorded next to them.

    A statement is being bound when SQL asks for it, so another connection to the same database looks it up. It sees neither
    temporary tables nor what the statement's own transaction has not committed.

    Args:
        catalog: the number of the catalog of ldpsql.
        search_path: the setting of the statement's connection.
        reports: a table, a view, a file or a pattern, as `query_table` takes it.
        column: the column of the reports.

    Raises:
        MechanismUnrecorded: if none is recorded there.
        OtherMechanism: if several mechanisms drew the reports.

    """
    with CONNECTIONS.cursor_at(catalog, search_path) as cursor:
        return recorded(of_source(cursor, reports, column))


def columns_at(catalog: int, search_path: str, reports: str) -> frozenset[str]:
    """Return the names of the columns of a table, a view or files, in lowercase, as `mechanism_at` sees them.

    The set is empty if it does not see the table.
    """
    with CONNECTIONS.cursor_at(catalog, search_path) as cursor, suppress(duckdb.Error):
        described = cursor.execute(f"FROM query_table({text_literal(reports)}) LIMIT 0").description or []
        return frozenset(name.lower() for name, *_ in described)
    return frozenset()
