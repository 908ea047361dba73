"""What to write instead of a use of reports as if they were the values."""

from __future__ import annotations

from ldpsql.quoting import quoted, text_literal
from ldpsql.sql.lint import Finding
from ldpsql.sql.uses import Use

_PROBLEMS = {
    "group": "it groups by reports",
    "table": "it groups by reports",
    "filter": "it compares reports with values",
    "join": "it joins on reports",
    "distinct": "it takes distinct reports",
    "order": "it ranks or chooses rows by reports",
    "window": "it divides or orders a window by reports",
    "mean": "it adds up reports",
    "variance": "it measures the spread of reports",
    "quantile": "it takes a quantile of reports",
    "aggregate": "it aggregates reports",
}
_REMEDIES = {
    "group": "estimate the share of each value: {estimate}",
    "outcome": "estimate it for each value: "
    "SELECT {keys}unnest(ldp.outcome({column}, {m}, {raw}{options}), recursive := true) FROM {table}{grouped}",
    "table": "estimate the table: FROM ldp.margin({table}, {{{column}: {column}, ...}}, ldp.row({{{column}: {m}, ...}}))",
    "filter": "estimate how many have the value: {estimate} WHERE value = ..., or ldp.range_share({column}, {m}, low, high)",
    "join": "join the estimates, by their column value: {estimate}",
    "distinct": "estimate which values occur: {estimate}",
    "order": "estimate the most frequent values: ldp.top({column}, {m}, 10)",
    "window": "estimate first, then rank the estimates: {estimate}",
    "mean": "ldp.mean({column}, {m}); a sum is that times count({column})",
    "variance": "ldp.variance({column}, {m})",
    "quantile": "ldp.quantile({column}, {m}, 0.5)",
    "aggregate": "estimate the values, and compute from the estimates: {estimate}",
}


def misused(use: Use) -> Finding:
    """Return the finding for a use of reports as if they were the values."""
    report = use.report
    mechanism, column = report.mechanism or "m", _written(report.column)
    last = "" if mechanism.startswith("ldp.mechanism(") else f", {mechanism}"  # otherwise it is recorded there
    table = _place(report.table)
    call = f"FROM ldp.estimate({table}, {column}{last})"
    problem = f"{_PROBLEMS[use.kind]} of the column '{report.column}', most of which may be noise"
    parts = {"estimate": call, "table": table, "column": column, "m": mechanism}
    remedy = _REMEDIES[use.kind].format(**parts)
    if use.outcomes:
        raw, options, keys = use.outcomes[0]
        before, grouped = "".join(f"{key}, " for key in keys), f" GROUP BY {', '.join(keys)}" if keys else ""
        remedy = _REMEDIES["outcome"].format(**parts, raw=raw, options=options, keys=before, grouped=grouped)
    return Finding("use of reports", report.column, problem, remedy)


def _place(table: str) -> str:
    """Return a table as SQL writes it; a file is a string."""
    return text_literal(table) if "/" in table or "." in table else _written(table or "reports")


def _written(name: str) -> str:
    return name if name.isidentifier() else quoted(name)
