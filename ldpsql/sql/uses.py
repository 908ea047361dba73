"""Uses of reports as if they were the values: in GROUP BY, WHERE, JOIN, DISTINCT, comparisons, aggregates and windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from ldpsql.sql.lineage import Reader, Relation, Report, Scope

_PREDICATES = (exp.Predicate, exp.Nullif, exp.StartsWith, exp.EndsWith, exp.Contains)
_HARMLESS = (exp.AnyValue, exp.First, exp.Last, exp.FirstValue, exp.LastValue, exp.ArrayAgg)
_KINDS = {
    "mean": (exp.Avg, exp.Sum),
    "variance": (exp.Variance, exp.VariancePop, exp.Stddev, exp.StddevPop, exp.StddevSamp),
    "quantile": (exp.Median, exp.Quantile, exp.PercentileCont, exp.PercentileDisc, exp.ApproxQuantile),
    "distinct": (exp.ApproxDistinct,),
    "order": (exp.Mode,),
    "aggregate": (exp.AggFunc,),
}
_ARGUMENTS = (exp.ArgMax, exp.ArgMin)
_NAMED = {
    **dict.fromkeys(("mean", "favg", "fsum", "kahan_sum"), "mean"),
    **dict.fromkeys(("mad", "product", "kurtosis", "skewness", "entropy"), "aggregate"),
    "reservoir_quantile": "quantile",
}


@dataclass(frozen=True)
class Use:
    """One use of a column of reports: the kind of use, the report, and the line of the column within the statement.

    ``outcomes`` are aggregates of raw columns by the report: the name of the column, the options of ``ldp.outcome``, and the
    other keys.
    """

    kind: str
    report: Report
    line: int
    outcomes: tuple[tuple[str, str, tuple[str, ...]], ...] = ()


def uses(reader: Reader) -> list[Use]:
    """Return the uses in everything that a reader has read, each kind once for a column of a line."""
    read = [use for scope in reader.scopes for use in _Uses(reader, scope).all()]
    stacked = [use for query, relation in reader.stacks for use in _of_stack(query, relation)]
    return sorted(dict.fromkeys([*read, *stacked]), key=lambda use: use.line)


def _of_stack(query: exp.SetOperation, relation: Relation) -> Iterator[Use]:
    if query.args.get("distinct") or not isinstance(query, exp.Union):
        yield from (Use("distinct", report, _line(query)) for report in relation.reports.values())


class _Uses:
    """The uses in one scope."""

    def __init__(self, reader: Reader, scope: Scope) -> None:
        self._reader, self._scope, self._node = reader, scope, scope.node

    def all(self) -> Iterator[Use]:
        """Yield all uses in the clauses of the scope."""
        yield from self._clauses()
        yield from self._with_outcomes(_tables(list(self._groups())))
        yield from self._distinct()
        yield from self._joins()
        yield from self._pivots()
        yield from self._subqueries()

    def _clauses(self) -> Iterator[Use]:
        for clause, kind in (("where", "filter"), ("having", "filter"), ("qualify", "filter"), ("on", "join")):
            if isinstance(part := self._node.args.get(clause), exp.Expr):
                yield from self._in(part, kind)
        order = self._node.args.get("order")
        limited = self._node.args.get("limit") or self._node.args.get("fetch")
        if order is not None and isinstance(self._node, exp.Select):
            yield from self._in(order, "order" if limited else "")
        if isinstance(self._node, exp.Select):
            for projection in self._node.expressions:
                yield from self._in(projection, "")

    def _in(self, part: exp.Expr, otherwise: str) -> Iterator[Use]:
        """Yield the uses in an expression; ``otherwise`` is the kind of a column outside of functions and comparisons."""
        for column, report in self._reader.reports_in(part, self._scope):
            if kind := _kind(column, part, otherwise):
                yield Use(otherwise if (kind, otherwise) == ("filter", "join") else kind, report, _line(column))
        yield from self._by_alias(part, otherwise)

    def _by_alias(self, part: exp.Expr, otherwise: str) -> Iterator[Use]:
        """Yield the uses of columns by an alias of the same SELECT."""
        if otherwise:
            for column in part.find_all(exp.Column):
                if not column.table and self._scope.report(column) is None and (report := self._aliased(column.name)):
                    yield Use(_kind(column, part, otherwise) or otherwise, report, _line(column))

    def _aliased(self, name: str) -> Report | None:
        """Return the report that an alias of this SELECT stands for."""
        for projection in self._node.expressions if isinstance(self._node, exp.Select) else []:
            if isinstance(projection, exp.Alias) and projection.alias.lower() == name.lower():
                return self._of_projection(projection)
        return None

    def _of_projection(self, projection: exp.Expr) -> Report | None:
        report = self._reader.report_of(projection, self._scope)
        return report and Report(report.column or projection.alias_or_name, report.table, report.mechanism)

    def _groups(self) -> Iterator[Use]:
        group = self._node.args.get("group")
        if not isinstance(self._node, exp.Select) or group is None or self._counts_reports():
            return
        if group.args.get("all"):
            for projection in self._node.expressions:
                report = None if projection.find(exp.AggFunc) else self._of_projection(projection)
                if report and not self._is_summed(projection.unalias()):
                    yield Use("group", report, _line(projection))
            return
        for key in [*group.expressions, *_grouping_sets(group)]:
            if isinstance(key, exp.Literal) and key.is_int:
                yield from self._position(int(key.name), group)
            elif not self._is_summed(key):
                yield from self._in(key, "group")

    def _with_outcomes(self, groups: list[Use]) -> list[Use]:
        """Return the uses in a GROUP BY, with the raw columns that are averaged or added up by a single column of reports."""
        if len(groups) != 1 or groups[0].kind != "group" or not isinstance(self._node, exp.Select):
            return groups
        raw = [part for projection in self._node.expressions if (part := _outcome(projection)) is not None]
        keys = [
            projection.sql("duckdb")
            for projection in self._node.expressions
            if isinstance(projection, exp.Column) and not self._of_projection(projection)
        ]
        known = [(name, options) for column, name, options in raw if self._scope.report(column) is None]
        return [replace(groups[0], outcomes=tuple((name, options, tuple(keys)) for name, options in known))]

    def _position(self, place: int, group: exp.Expr) -> Iterator[Use]:
        projections = self._node.expressions
        report = self._of_projection(projections[place - 1]) if 0 < place <= len(projections) else None
        if report and not self._is_summed(projections[place - 1].unalias()):
            yield Use("group", report, _line(projections[place - 1]) or _line(group))

    def _counts_reports(self) -> bool:
        """Return whether the columns are ``report`` and ``n``: counts of reports, as `ldpsql.Counts.from_arrow` reads them."""
        return {"report", "n"} <= {projection.alias_or_name.lower() for projection in self._node.expressions}

    def _is_summed(self, key: exp.Expr) -> bool:
        """Return whether every aggregate is ``ldp.sums`` of the key: it takes the reports of a group as one report."""
        others = [one for one in (each.unalias() for each in self._node.expressions) if not isinstance(one, exp.Column)]
        return bool(others) and all(
            isinstance(one, exp.Dot)
            and one.this.name.lower() == "ldp"
            and one.expression.name.lower() == "sums"
            and one.expression.expressions[:1] == [key]
            for one in others
        )

    def _distinct(self) -> Iterator[Use]:
        distinct = self._node.args.get("distinct")
        if not isinstance(distinct, exp.Distinct):
            return
        if (on := distinct.args.get("on")) is not None:
            yield from self._in(on, "distinct")
            return
        for projection in self._node.expressions:
            for report in self._reader.projected(projection, self._scope).reports.values():
                yield Use("distinct", _named(report, projection), _line(projection) or _line(self._node))

    def _joins(self) -> Iterator[Use]:
        for join in self._node.args.get("joins") or []:
            if (on := join.args.get("on")) is not None:
                yield from self._in(on, "join")
            for name in join.args.get("using") or []:
                if report := self._in_sources(name.name):
                    yield Use("join", report, _line(name))
            if join.args.get("method") == "NATURAL":
                yield from (Use("join", report, _line(join.this)) for report in self._natural())

    def _in_sources(self, name: str) -> Report | None:
        reports = (source.report(name) for source in self._scope.sources.values())
        report = next((report for report in reports if report), None)
        return report and Report(report.column or name, report.table, report.mechanism)

    def _natural(self) -> Iterator[Report]:
        """Yield the reports that may be compared by a NATURAL JOIN: those in a source next to one that may have the column."""
        for alias, source in self._scope.sources.items():
            others = [other for name, other in self._scope.sources.items() if name != alias]
            for column, report in source.reports.items():
                if any(other.open or column in dict(other.columns) for other in others):
                    yield Report(report.column or column, report.table, report.mechanism)

    def _pivots(self) -> Iterator[Use]:
        if isinstance(self._node, exp.Pivot) and not self._node.args.get("unpivot"):
            for key in [*self._node.expressions, *(self._node.args.get("fields") or [])]:
                yield from self._in(key, "group")
            for aggregate in self._node.args.get("using") or []:
                yield from self._in(aggregate, "")
            if isinstance(group := self._node.args.get("group"), exp.Expr):
                yield from self._in(group, "group")

    def _subqueries(self) -> Iterator[Use]:
        """Yield the reports that a subquery returns to be compared: ``x IN (SELECT city FROM reports)``."""
        for clause in self._node.args.values():
            for part in clause if isinstance(clause, list) else [clause]:
                for predicate in part.find_all(exp.Predicate) if isinstance(part, exp.Expr) else []:
                    yield from self._compared(predicate)

    def _compared(self, predicate: exp.Expr) -> Iterator[Use]:
        if isinstance(predicate, exp.Exists):
            return
        for value in (value for value in predicate.args.values() if isinstance(value, exp.Subquery | exp.Query)):
            for name, report in self._reader.read(value, {}, self._scope).reports.items():
                yield Use("filter", Report(report.column or name, report.table, report.mechanism), _line(value))


def _tables(groups: list[Use]) -> list[Use]:
    """Return the uses in a GROUP BY; those of several columns together ask for a table."""
    if len({use.report.column for use in groups}) < 2:
        return groups
    return [replace(use, kind="table") if use.kind == "group" else use for use in groups]


def _outcome(projection: exp.Expr) -> tuple[exp.Column, str, str] | None:
    """Return the raw column that a projection averages, adds up or whose spread it measures, and options of ``ldp.outcome``."""
    part, options = projection.unalias(), ""
    if isinstance(part, exp.Div) and isinstance(part.this, exp.Sum) and isinstance(part.expression, exp.Sum):
        product, weight = part.this.this, part.expression.this
        weighted = isinstance(product, exp.Mul) and isinstance(weight, exp.Column)
        if not weighted or weight not in (product.this, product.expression):
            return None
        part = exp.Avg(this=product.expression if product.this == weight else product.this)
        options = f", weight := {weight.sql('duckdb')}"
    for classes, measure in ((exp.Avg, ""), (exp.Sum, ", measure := 'sum'"), (_KINDS["variance"], ", measure := 'variance'")):
        if isinstance(part, classes) and isinstance(part.this, exp.Column):
            return part.this, part.this.sql("duckdb"), options + measure
    return None


def _grouping_sets(group: exp.Expr) -> Iterable[exp.Expr]:
    return [part for name in ("grouping_sets", "cube", "rollup") for part in group.args.get(name) or []]


def _named(report: Report, projection: exp.Expr) -> Report:
    return Report(report.column or projection.alias_or_name, report.table, report.mechanism)


def _kind(column: exp.Expr, root: exp.Expr, otherwise: str) -> str:
    """Return the kind of use of a column by what is around it within an expression; an empty string if it is not one."""
    node = column
    while node is not root and node.parent is not None:
        inner, node = node, node.parent
        if kind := _around(node, inner):
            return "" if kind == "harmless" else kind
    return otherwise


def _around(node: exp.Expr, inner: exp.Expr) -> str:
    """Return the kind of use that one node makes of what is in it, or an empty string if that depends on the nodes around."""
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return "harmless"
    if isinstance(node, exp.Case):
        return "filter" if inner is node.this else ""
    if isinstance(node, _PREDICATES):
        return "filter"
    if isinstance(node, exp.Filter) and inner is node.expression:
        return "filter"
    if isinstance(node, exp.Window):
        return "" if inner is node.this else "window"
    return _aggregate(node, inner)


def _aggregate(node: exp.Expr, inner: exp.Expr) -> str:
    """Return the kind of use that an aggregate makes of its argument."""
    if isinstance(node, exp.Count):
        return "distinct" if isinstance(node.this, exp.Distinct) else "harmless"
    if isinstance(node, _HARMLESS) or (isinstance(node, _ARGUMENTS) and inner is node.this):
        return "harmless"
    if isinstance(node, exp.Anonymous):
        return _NAMED.get(node.name.lower(), "")
    return next((kind for kind, classes in _KINDS.items() if isinstance(node, classes)), "")


def _line(node: exp.Expr) -> int:
    """Return the first line of a node within its statement, 0 if it is unknown."""
    return min((line for part in node.walk() if (line := part.meta.get("line"))), default=0)
