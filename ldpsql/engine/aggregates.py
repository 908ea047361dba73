"""Aggregates over reports: ``ldp.NAME`` takes a column of reports, or counts of them, which DuckDB tells apart by their type.

Those that return a list of rows are also table functions: ``FROM ldp.NAME(reports, report, ...)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ldpsql.engine.functions import CATALOG_NUMBER, Macros
from ldpsql.names import (
    AGREED,
    COLUMN_NAME,
    COUNTED_BY,
    DOMAIN,
    FEW,
    IBU,
    RECORD_OF,
    RECORDED,
    SOURCE_HANDLE,
    TABLE_PLACE,
    WRITTEN_CALL,
)
from ldpsql.quoting import quoted, text_literal

COUNTS, RECORD = "{counts}", "{record}"
_CHOOSING = (f"{DOMAIN}(",)
_LOCAL = '"ldp counts"'  # no column of a user has this name
_NAME = '"ldp report"'
_FEW = '"ldp few"'  # apart from the column: a table may have the name of its column
COUNTED = "_counted"  # the macro that counts reports of any form, see `ldpsql.engine.forms`


@dataclass(frozen=True)
class Aggregate:
    """A macro that returns the same over columns of reports and over their counts.

    If the mechanism ``m`` is left out or false, the type of the reports must record it. Reports of another one are refused.

    Args:
        name: the name of the macro.
        result: the SQL expression that it returns, with ``{counts}`` once in the place of the counts of the reports, and
            ``{record}`` in that of their type, if it matters.
        parameters: the parameters after the reports, each with its default in SQL, or None if it has none. ``keep`` is
            added as the last one if it is missing.
        comment: what an aggregate of this name returns; None leaves the macro without a comment.
        counted: a SQL expression of ``report`` and ``keep``: the counts of the rows in which ``keep`` is true.
        size: the SQL expression of the number of reports in ``{counts}``.
        rows: whether the result is a list of rows, and there is also a table function of the same name, over one column of
            a table, a view, a file, a CTE or a frame.

    """

    name: str
    result: str
    parameters: Mapping[str, str | None] = field(default_factory=lambda: {"m": None, "estimator": text_literal(IBU)})
    comment: str | None = None
    counted: str = ""
    size: str = f"list_sum(map_values({COUNTS}))"
    rows: bool = False

    def statements(self) -> Iterator[str]:
        """Yield the statements that create the macros and comment on them."""
        over_reports = {"report": None, **self.parameters}
        over_reports.setdefault("keep", "true")
        over_counts = {"counts": None, **self.parameters}
        over_counts.pop("keep", None)
        counts = self._counted.replace(", m)", ", false)") if self._reads else self._counted
        result = f"_of_{self.name}"
        passed = [*over_counts, *(["record"] if RECORD in self.result else [])]
        yield _macro(result, dict.fromkeys(passed), self.result.replace(COUNTS, "counts").replace(RECORD, "record"))
        own = {"counts": counts, "record": f"{RECORD_OF}(report, report)"}
        if not self._chooses and not self._reads:
            own["m"] = f"{RECORDED}(report, m, m)"
        yield _macro(self.name, over_reports | self._optional, _call(result, passed, own))
        if self.comment:
            yield f"COMMENT ON MACRO ldp.{self.name} IS {text_literal(f'aggregate: {self.comment}')};"
        if self.rows:
            result = self.result.replace(COUNTS, _LOCAL).replace(RECORD, f"typeof({_LOCAL})")
            rows = f"unnest({result}, recursive := true)"
            n = f"{self.size.replace(COUNTS, _LOCAL)}::BIGINT AS n"
            counted = (
                f"WITH {_FEW} AS MATERIALIZED (SELECT {FEW}(reports, report, keep, m) AS few) "  # noqa: S608
                f"SELECT {self._counted} AS {_LOCAL}, any_value({COLUMN_NAME}(report)) AS {_NAME} "
                f"FROM query_table({TABLE_PLACE}(reports)) WHERE (SELECT few FROM {_FEW})"
            )
            select = f"SELECT {rows}, {n} FROM ({counted}) WHERE {AGREED}(reports, {_NAME}, m)"  # noqa: S608
            over_table, table = {"reports": None, **over_reports}, f"_table_{self.name}"
            yield _macro(table, over_table, f"TABLE ({select})")
            call = (
                f"{WRITTEN_CALL}('ldp.{table}', reports, current_setting('search_path'), ldp.{CATALOG_NUMBER}(), "
                "report, alias(report))"
            )
            recorded = f", (reports, report) AS TABLE (FROM query({call}))" if self._optional else ""
            yield _macro(self.name, over_table, f"TABLE (FROM {_call(table, over_table, {})}){recorded}")
            yield f"COMMENT ON MACRO TABLE ldp.{self.name} IS 'the same over a table, a file or a frame, one row a value';"

    @property
    def _optional(self) -> dict[str, str | None]:
        """The mechanism with its default in SQL, if it is the only parameter without one: it may then be left out."""
        alone = [parameter for parameter, default in self.parameters.items() if default is None] == ["m"]
        return {"m": "false"} if alone and not self._chooses else {}

    @property
    def _counted(self) -> str:
        """The counts of the column of reports in SQL; those of another mechanism than ``m`` are refused."""
        return self.counted or f"{COUNTED_BY}(report, keep, {'m' if 'm' in self.parameters else 'false'})"

    @property
    def _reads(self) -> bool:
        """Whether the result compares the mechanism with the type of the reports itself: ``m`` is then bound less often."""
        return f"{SOURCE_HANDLE}(m, {RECORD})" in self.result

    @property
    def _chooses(self) -> bool:
        """Whether macros in the result choose by the type of the domain, which is unknown if the type of reports records it."""
        return any(macro in self.result for macro in _CHOOSING)


def _call(macro: str, parameters: Iterable[str], own: Mapping[str, str]) -> str:
    """Return a call of a macro with its parameters, of which some have expressions of their own."""
    return f"ldp.{macro}({', '.join(own.get(p, quoted(p)) for p in parameters)})"


def _macro(name: str, parameters: Mapping[str, str | None], body: str) -> str:
    """Return the statement that creates one macro."""
    listed = [quoted(p) if default is None else f"{quoted(p)} := {default}" for p, default in parameters.items()]
    return f"CREATE OR REPLACE MACRO ldp.{name}({', '.join(listed)}) AS {body};"


def aggregates(*each: Aggregate) -> Macros:
    """Return the macros of these aggregates."""
    return Macros("\n".join(statement for one in each for statement in one.statements()))
