"""``ldpsql estimate``: the distribution behind a column of reports."""

from __future__ import annotations

from ldpsql.cli.options import ByOption, ColumnOption, DatabaseOption, EstimatorOption, MechanismOption, SourceArgument
from ldpsql.cli.output import Format, FormatOption, write_rows


def estimate(
    source: SourceArgument,
    column: ColumnOption,
    mechanism: MechanismOption,
    estimator: EstimatorOption = "ibu",
    by: ByOption = None,
    database: DatabaseOption = ":memory:",
    form: FormatOption = Format.TABLE,
) -> None:
    """Estimate the share of every value from reports.

    Example: ldpsql estimate reports.parquet --column city --mechanism city --by region
    """
    from ldpsql.cli.source import checked, opened
    from ldpsql.named import sql_call, text_literal
    from ldpsql.registry import registry
    from ldpsql.sql import quoted, struct_text

    keys = by or []
    method = text_literal(str(registry().estimator(estimator)))
    with opened(database) as con:
        table = checked(con, source, [column, *keys])
        made = sql_call(registry().mechanism(mechanism), con)
        if keys:
            groups = struct_text({key.replace("'", "''"): quoted(key) for key in keys})
            call = f"ldp.estimate_by({table}, {quoted(column)}, {groups}, {made}, estimator := {method})"
            # within its group a value keeps its place in the domain
            numbered = f"SELECT *, row_number() OVER () AS place FROM {call} AS t(key)"
            query = f"SELECT unnest(key), * EXCLUDE (key, place) FROM ({numbered}) ORDER BY key, place"
        else:
            query = f"FROM ldp.estimate({table}, {quoted(column)}, {made}, estimator := {method})"
        write_rows(con.sql(query).to_arrow_table().to_pylist(), form)
