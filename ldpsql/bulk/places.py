"""The mechanism of a column that SQL names, read from the comments and files that the statement's connection sees."""

from __future__ import annotations

from ldpsql.bulk.fingerprints import of_source
from ldpsql.engine.connections import CONNECTIONS
from ldpsql.mechanisms.base import Mechanism
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
    with CONNECTIONS.cursor(catalog) as cursor:
        if search_path:
            cursor.execute("SET search_path = ?", [search_path])
        return recorded(of_source(cursor, reports, column))
