"""Aggregates in pairs: ``ldp.NAME`` over a column of reports, and ``ldp.NAME_counts`` over counts of them.

Those that return a list of rows are also table functions: ``FROM ldp.NAME(reports, report, ...)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ldpsql.engine.functions import Macros
from ldpsql.names import AGREED, COLUMN_NAME, COUNTED_BY, FEW, IBU, TABLE_PLACE
from ldpsql.quoting import quoted, text_literal

COUNTS = "{counts}"
_LOCAL = '"ldp counts"'  # no column of a user has this name
_NAME = '"ldp report"'
_FEW = '"ldp few"'  # apart from the column: a table may have the name of its column
COUNTED = "_counted"  # the macro that counts reports of any form, see `ldpsql.engine.forms`


@dataclass(frozen=True)
class Aggregate:
    """A pair of macros that return the same, one over columns of reports and one over their counts.

    Args:
        name: the name of the macro over reports; the other macro is called ``name_counts``.
        result: the SQL expression that both return, with ``{counts}`` once in the place of the counts of the reports.
        parameters: the parameters after the reports, each with its default in SQL, or None if it has none. ``keep`` is
            added as the last one if it is missing.
        comment: what an aggregate of this name returns; None leaves both macros without a comment.
        columns: the parameters that are columns of reports.
        counted: a SQL expression of the columns: the counts of the rows in which ``keep`` is true. By default, those of the
            column of reports; if the mechanism ``m`` is a parameter, reports whose type records another one are refused.
        size: the SQL expression of the number of reports in ``{counts}``.
        from_counts: whether there is also a macro over counts.
        rows: whether the result is a list of rows, and there is also a table function of the same name, over one column of
            a table, a view, a file, a CTE or a frame.

    """

    name: str
    result: str
    parameters: Mapping[str, str | None] = field(default_factory=lambda: {"m": None, "estimator": text_literal(IBU)})
    comment: str | None = None
    columns: tuple[str, ...] = ("report",)
    counted: str = ""
    size: str = f"list_sum(map_values({COUNTS}))"
    from_counts: bool = True
    rows: bool = False

    def statements(self) -> Iterator[str]:
        """Yield the statements that create the macros and comment on them."""
        over_reports = {**dict.fromkeys(self.columns), **self.parameters}
        over_reports.setdefault("keep", "true")
        by_default = f"{COUNTED_BY}(report, keep, m)" if "m" in self.parameters else f"ldp.{COUNTED}(report, keep)"
        counts = self.counted or by_default
        yield self._macro(self.name, over_reports, counts)
        if self.comment:
            yield f"COMMENT ON MACRO ldp.{self.name} IS {text_literal(f'aggregate: {self.comment}')};"
        if self.from_counts:
            over_counts = {"counts": None, **self.parameters}
            over_counts.pop("keep", None)
            yield self._macro(f"{self.name}_counts", over_counts, "counts")
            if self.comment:
                yield f"COMMENT ON MACRO ldp.{self.name}_counts IS 'the same from counts';"
        if self.rows:
            rows = f"unnest({self.result.replace(COUNTS, _LOCAL)}, recursive := true)"
            n = f"{self.size.replace(COUNTS, _LOCAL)}::BIGINT AS n"
            counted = (
                f"WITH {_FEW} AS MATERIALIZED (SELECT {FEW}(reports, report, keep, m) AS few) "  # noqa: S608
                f"SELECT {counts} AS {_LOCAL}, any_value({COLUMN_NAME}(report)) AS {_NAME} "
                f"FROM query_table({TABLE_PLACE}(reports)) WHERE (SELECT few FROM {_FEW})"
            )
            select = f"TABLE SELECT {rows}, {n} FROM ({counted}) WHERE {AGREED}(reports, {_NAME}, m)"  # noqa: S608
            yield _macro(self.name, {"reports": None, **over_reports}, select)
            yield f"COMMENT ON MACRO TABLE ldp.{self.name} IS 'the same over a table, a file or a frame, one row a value';"

    def _macro(self, name: str, parameters: Mapping[str, str | None], counts: str) -> str:
        """Return the statement that creates a macro with the result."""
        return _macro(name, parameters, self.result.replace(COUNTS, counts))


def _macro(name: str, parameters: Mapping[str, str | None], body: str) -> str:
    """Return the statement that creates one macro."""
    listed = [quoted(p) if default is None else f"{quoted(p)} := {default}" for p, default in parameters.items()]
    return f"CREATE OR REPLACE MACRO ldp.{name}({', '.join(listed)}) AS {body};"


def aggregates(*pairs: Aggregate) -> Macros:
    """Return the macros of these aggregates."""
    return Macros("\n".join(statement for pair in pairs for statement in pair.statements()))
