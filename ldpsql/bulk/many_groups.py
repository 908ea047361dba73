"""Estimates of very many groups: counts are written as rows (group, report, n), then estimated some groups at a time.

An aggregate such as ``ldp.ibu(x, m)`` under a GROUP BY holds the counts of every group in memory at once, as lists that
DuckDB cannot spill: about ten million cells (group, report) fit into 1 GiB. Rows of counts do spill, so here only the groups of
one step are held, and the limit is the disk.
"""

from __future__ import annotations

from collections.abc import Sequence

from duckdb import DuckDBPyConnection

from ldpsql.bulk.fingerprints import agreed, of_source
from ldpsql.bulk.staging import exists
from ldpsql.bulk.tables import is_there, table_name
from ldpsql.engine.groups import GROUPS_SEEN
from ldpsql.engine.interrupting import cursor_of, stops_with_connection
from ldpsql.errors import DestinationExists, InvalidParameter
from ldpsql.errors.boundary import withheld
from ldpsql.estimators.base import Estimator
from ldpsql.mechanisms.base import Mechanism
from ldpsql.names import ESTIMATES, IBU, PRIOR
from ldpsql.quoting import quoted, text_literal
from ldpsql.registry.registry import registry
from ldpsql.sql.named import sql_call

CELLS_AT_ONCE = 2_000_000
_REPORT, _N, _STEP, _COUNTS = map(quoted, ("ldp report", "ldp n", "ldp step", "ldp counts"))  # keys may have any name


@withheld
@stops_with_connection
def estimate_groups(
    con: DuckDBPyConnection,
    reports: str,
    into: str,
    *,
    report: str,
    keys: Sequence[str],
    mechanism: Mechanism | str | None = None,
    estimator: Estimator | str = IBU,
    replace: bool = False,
) -> int:
    """Estimate every group of a table of reports into a table: the keys, value, estimate, std_error, low, high and n.

    Args:
        con: a connection with ldpsql attached as ``ldp``; the work is one transaction on a cursor of it.
        reports: what ``query_table`` takes: a table, a view, a Parquet file or a pattern.
        into: the name of the table to make, ``name`` or ``schema.name``.
        report: the column of the reports; NULL reports are left out, and so are groups that have only these.
        keys: the columns that define the groups.
        mechanism: what drew the reports; a name may be one that the connection was attached with. By default the mechanism that
            the table or the files record.
        estimator: any estimator, with its options.
        replace: replace the table if it exists.

    Returns:
        The number of groups.

    Raises:
        DestinationExists: if the table exists and ``replace`` is false.
        InvalidParameter: if there are no keys.
        OtherMechanism: if the table or the files record that another mechanism drew the reports.
        MechanismUnrecorded: if no mechanism is passed, and none is recorded.

    """
    if not keys:
        raise InvalidParameter("at least one column must define the groups", "for one estimate use ldp.estimate")
    if isinstance(keys, str) or not isinstance(keys, Sequence) or not all(isinstance(name, str) for name in (report, *keys)):
        raise InvalidParameter("report and keys must be names of columns", "report='city', keys=['region']")
    drew, method = agreed(of_source(con, reports, report), mechanism, con), registry().estimator(estimator)
    with cursor_of(con) as cursor:
        if not replace and is_there(con, table_name(into)):
            raise DestinationExists(*exists(into))
        cursor.execute("BEGIN")
        try:
            groups, steps = _counted(cursor, reports, report, keys)
            if groups and method.needs_groups:
                method = _learned(cursor, keys, groups, method, drew)
            shares = f"{ESTIMATES}({_COUNTS}, {text_literal(str(method))}, {sql_call(drew, cursor)})"
            _write_estimates(cursor, keys, steps, shares, table_name(into))
            cursor.execute("DROP TABLE temp.__ldp_cells; COMMIT")
        except BaseException:
            cursor.execute("ROLLBACK")
            raise
    return groups


def _counted(cursor: DuckDBPyConnection, reports: str, report: str, keys: Sequence[str]) -> tuple[int, int]:
    """Write the counts as rows, sorted by the step of their group; return the numbers of groups and of steps."""
    names = ", ".join(map(quoted, keys))
    cursor.execute(
        f"""CREATE TEMP TABLE __ldp_counted AS SELECT {names}, {quoted(report)} AS {_REPORT}, count(*) AS {_N}
            FROM query_table({text_literal(reports)}) WHERE {quoted(report)} IS NOT NULL GROUP BY ALL"""  # noqa: S608  # quoted
    )
    cells = cursor.table("temp.__ldp_counted").aggregate(f"count(*) AS cells, count(DISTINCT row({names})) AS groups")
    ((size, groups),) = (tuple(row.values()) for row in cells.to_arrow_table().to_pylist())
    steps = 1 + size // CELLS_AT_ONCE
    numbered = f"FROM temp.__ldp_counted SELECT *, hash({names}) % {steps} AS {_STEP} ORDER BY {_STEP}"
    cursor.execute(f"CREATE TEMP TABLE __ldp_cells AS {numbered}")
    cursor.execute("DROP TABLE temp.__ldp_counted")
    return groups, steps


def _learned(cursor: DuckDBPyConnection, keys: Sequence[str], groups: int, method: Estimator, drew: Mechanism) -> Estimator:
    """Return the estimator with what all groups have in common, of which it sees a part of very many, and all reports."""
    every = 1 + groups // GROUPS_SEEN
    names, counted = ", ".join(map(quoted, keys)), f"map(list({_REPORT}), list({_N}))"
    cursor.execute(
        f"CREATE TEMP VIEW __ldp_all AS SELECT {_REPORT}, sum({_N})::UBIGINT AS {_N} FROM temp.__ldp_cells GROUP BY ALL"  # noqa: S608  # quoted
    )
    few = cursor.execute("SELECT count(*) <= $1 FROM temp.__ldp_all", [CELLS_AT_ONCE]).fetchall() == [(True,)]
    pooled = f"(SELECT {counted} FROM temp.__ldp_all)" if every > 1 and few else "NULL"  # noqa: S608  # quoted
    learned = f"{PRIOR}({_COUNTS}, {sql_call(drew, cursor)}, {text_literal(str(method))}, pooled := {pooled})"
    seen = f"FROM temp.__ldp_cells SELECT {counted} AS {_COUNTS} WHERE hash({names}) % {every} = 0 GROUP BY {names}"
    ((prior,),) = cursor.execute(f"FROM ({seen}) SELECT {learned}").fetchall()
    cursor.execute("DROP VIEW temp.__ldp_all")
    return registry().estimator({"estimator": method.name, **method.given(), "prior": prior})


def _write_estimates(cursor: DuckDBPyConnection, keys: Sequence[str], steps: int, shares: str, into: str) -> None:
    """Write the estimates of the groups into a table, step by step; ``shares`` is the SQL that estimates from counts."""
    names = ", ".join(map(quoted, keys))
    summed = f"map(list({_REPORT}), list({_N})) AS {_COUNTS}, sum({_N})::BIGINT AS {_N}"
    cells = f"FROM temp.__ldp_cells SELECT {names}, {summed} WHERE {_STEP} = $1 GROUP BY ALL"
    query = f"FROM ({cells}) SELECT {names}, unnest({shares}, recursive := true), {_N} AS n"
    for step in range(steps):
        verb = f"INSERT INTO {into}" if step else f"CREATE OR REPLACE TABLE {into} AS"
        cursor.execute(f"{verb} {query}", [step])
