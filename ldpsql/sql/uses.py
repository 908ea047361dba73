"""Uses of reports as if they were the values, what reports give away next to themselves, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope as QueryScope
from sqlglot.optimizer.scope import build_scope

from ldpsql.quoting import quoted, text_literal
from ldpsql.sql.lineage import Calls, Reader, Relation, Report, Scope, argument_names, path_of
from ldpsql.sql.lint import Finding
from ldpsql.sql.structure import stored_query

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


# What stored reports give away next to themselves: raw values and predicates on them, and rows that are drawn twice.
#
# A raw column is followed from its table to the output through subqueries, CTEs, stars and aliases, by sqlglot's scopes.

_ALL = "*"  # the columns of a table whose columns are unknown
_FILTERS = ("SEMI", "ANTI")  # joins that never repeat a row


class Raw(NamedTuple):
    """A column of a table that holds values."""

    table: tuple[str, ...]
    column: str

    def covers(self, other: Raw) -> bool:
        """Return whether the other column is this one or one of these."""
        return self.table == other.table and self.column in (_ALL, other.column)


@dataclass(frozen=True)
class Flow:
    """The raw columns that an expression shows, and those of which it holds a report."""

    shown: frozenset[Raw] = frozenset()
    drawn: frozenset[Raw] = frozenset()

    @classmethod
    def of(cls, flows: Iterable[Flow]) -> Flow:
        """Return what several expressions show together."""
        listed = list(flows)
        return cls(frozenset().union(*(f.shown for f in listed)), frozenset().union(*(f.drawn for f in listed)))


def leaks(tree: exp.Expr, calls: Calls) -> list[Finding]:
    """Return what the rows that a statement stores give away about the values behind its reports.

    Args:
        tree: a statement, of which only the query matters whose rows it stores, or a query, which is then a model of dbt.
        calls: the functions that draw.

    """
    query = tree if isinstance(tree, exp.Query) else stored_query(tree)
    if not isinstance(query, exp.Query):
        return []
    try:
        scope = build_scope(query.unnest())
    except SqlglotError:
        return []
    return list(dict.fromkeys(_Leaks(calls).all(scope))) if scope is not None else []


class _Leaks:
    """The findings in the query of one statement."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._outputs: dict[int, list[tuple[str, Flow]]] = {}

    def all(self, scope: QueryScope) -> Iterator[Finding]:
        """Yield the findings about the rows of a scope that are stored."""
        output = Flow.of(flow for _, flow in self._output(scope))
        within = list(scope.traverse())
        chosen = Flow.of(self._chosen(part) for part in within)
        for report in sorted(output.drawn):
            if _covered(report, output.shown):
                yield _finding(f"it stores the values of the column '{report.column}' next to their reports", _LEAVE_OUT)
            if _covered(report, chosen.shown):
                yield _finding(
                    f"it chooses rows by the values of the column '{report.column}', so that a report gives its value away",
                    "perturb all rows, and estimate the share of the condition",
                )
        for part in within:
            yield from self._repeated(part)
            yield from self._made_from_values(part)

    def _output(self, scope: QueryScope) -> list[tuple[str, Flow]]:
        """Return the columns of a scope, each with its flow; those of a set operation by their position."""
        if id(scope) not in self._outputs:
            self._outputs[id(scope)] = []  # a recursive CTE reads itself
            self._outputs[id(scope)] = self._computed(scope)
        return self._outputs[id(scope)]

    def _computed(self, scope: QueryScope) -> list[tuple[str, Flow]]:
        if scope.set_operation_scopes:
            left, right = map(self._output, scope.set_operation_scopes)
            both = [(name, Flow.of([flow, also])) for (name, flow), (_, also) in zip(left, right, strict=False)]
            return [*both, *left[len(both) :], *right[len(both) :]]
        projections = scope.expression.selects if isinstance(scope.expression, exp.Query) else []
        columns = [column for projection in projections for column in self._projected(projection, scope)]
        names = scope.outer_columns  # of a CTE with a list of names
        return [*zip(names, (flow for _, flow in columns), strict=False)] if names else columns

    def _projected(self, projection: exp.Expr, scope: QueryScope) -> list[tuple[str, Flow]]:
        star = projection.this if isinstance(projection, exp.Column) else projection
        star = exp.Star() if isinstance(star.unalias(), exp.Columns) else star
        if not isinstance(star, exp.Star):
            return [(projection.alias_or_name.lower(), self._flow(projection, scope))]
        one = projection.table.lower() if isinstance(projection, exp.Column) else ""
        left_out = {column.name.lower() for column in star.args.get("except_") or []}
        replaced = {part.alias.lower(): self._flow(part, scope) for part in star.args.get("replace") or []}
        read = [
            column
            for alias, (_, source) in scope.selected_sources.items()
            if alias.lower() == one or not one
            for column in self._columns(source, left_out | replaced.keys())
        ]
        return [*((name, flow) for name, flow in read if name not in left_out | replaced.keys()), *replaced.items()]

    def _columns(self, source: exp.Expr | QueryScope, left_out: set[str]) -> list[tuple[str, Flow]]:
        """Return the columns of one item of a FROM; those of a table together, unless a star leaves any of them out."""
        if isinstance(source, QueryScope):
            return self._output(source)
        if drawn := self._drawn_rows(source):
            return list(drawn.items())
        return [] if left_out else [(_ALL, Flow(shown=frozenset([Raw(_path(source), _ALL)])))]

    def _drawn_rows(self, table: exp.Expr) -> dict[str, Flow]:
        """Return the columns that ``perturb_rows`` draws, if a table is a call of it."""
        names = [name for name, _ in self._calls.drawn_rows(_call(table))]
        read = tuple(argument_names(_call(table))[:1])
        return {name.lower(): Flow(drawn=frozenset([Raw(read, name.lower())])) for name in names}

    def _flow(self, node: exp.Expr, scope: QueryScope) -> Flow:
        """Return the raw columns that an expression shows or draws from; an aggregate is of many rows and shows none."""
        node = node.unalias()
        if isinstance(node, exp.Column):
            return self._of_column(node, scope)
        if isinstance(node, exp.Query):
            inner = [part for part in scope.subquery_scopes if part.expression is node.unnest()]
            return Flow.of(flow for part in inner for _, flow in self._output(part))
        if self._calls.drawn(node):
            return Flow(drawn=self._columns_in(_arguments(node)[0], scope))
        if self._calls.of_ldpsql(node) or _tells_nothing(node):
            return Flow()
        return Flow.of(self._flow(part, scope) for part in node.iter_expressions())

    def _of_column(self, column: exp.Column, scope: QueryScope) -> Flow:
        """Return the flow of a column: of each source that may have it."""
        name, found = column.name.lower(), []
        for alias, (_, source) in scope.selected_sources.items():
            if column.table and alias.lower() != column.table.lower():
                continue
            if isinstance(source, QueryScope):
                found += [flow for inner, flow in self._output(source) if inner in (name, _ALL)]
            elif drawn := self._drawn_rows(source):
                found += [drawn[name]] if name in drawn else []
            else:
                found.append(Flow(shown=frozenset([Raw(_path(source), name)])))
        if not found and scope.parent is not None and scope.is_subquery:
            return self._of_column(column, scope.parent)
        known = [Flow(frozenset(Raw(r.table, name if r.column == _ALL else r.column) for r in f.shown), f.drawn) for f in found]
        return Flow.of(known)

    def _columns_in(self, node: exp.Expr, scope: QueryScope) -> frozenset[Raw]:
        """Return all raw columns in an expression."""
        return Flow.of(self._of_column(column, scope) for column in node.find_all(exp.Column)).shown

    def _chosen(self, scope: QueryScope) -> Flow:
        """Return the raw columns by whose values a scope chooses rows."""
        clauses = [scope.expression.args.get(clause) for clause in ("where", "having", "qualify")]
        if scope.expression.args.get("limit"):
            clauses.append(scope.expression.args.get("order"))
        return Flow.of(self._flow(clause, scope) for clause in clauses if isinstance(clause, exp.Expr))

    def _draws(self, scope: QueryScope) -> list[exp.Expr]:
        """Return the calls in the columns of a scope that draw."""
        selects = scope.expression.selects if isinstance(scope.expression, exp.Select) else []
        parts = [part for select in selects for part in select.walk(prune=lambda one: isinstance(one, exp.Query))]
        return [part for part in parts if self._calls.drawn(part)]

    def _repeated(self, scope: QueryScope) -> Iterator[Finding]:
        """Yield the reasons why a row may be drawn more than once."""
        joins = scope.expression.args.get("joins") or []
        if self._draws(scope) and any(join.kind not in _FILTERS and not _single(join.this) for join in joins):
            yield _finding("it perturbs rows after a join, so a row that matches twice is drawn twice", _PERTURB_FIRST)
        if len(scope.set_operation_scopes) == 2:
            left, right = (Flow.of(flow for _, flow in self._output(part)).drawn for part in scope.set_operation_scopes)
            if left & right and not all(part.expression.args.get("where") for part in scope.set_operation_scopes):
                yield _finding("both sides of UNION draw reports of the same rows", _PERTURB_FIRST)
        for cte in scope.cte_scopes:
            uses = sum(source is cte for part in scope.traverse() for _, source in part.selected_sources.values())
            definition = cte.expression.find_ancestor(exp.CTE)
            inlined = definition is not None and definition.args.get("materialized") is False
            if uses > 1 and inlined and Flow.of(flow for _, flow in self._output(cte)).drawn:
                yield _finding("a CTE that is NOT MATERIALIZED draws new reports at each of its uses", _PERTURB_FIRST)

    def _made_from_values(self, scope: QueryScope) -> Iterator[Finding]:
        """Yield the draws whose mechanism depends on the value that is drawn."""
        for call in self._draws(scope):
            value, *mechanism = (self._columns_in(part, scope) for part in _arguments(call)[:2])
            if mechanism and value & mechanism[0]:
                yield _finding(
                    "it makes a mechanism from the value that it perturbs, so that the report has no epsilon",
                    "declare the mechanism without a column of the table",
                )


_LEAVE_OUT = "store the report only: leave the column out, or use * EXCLUDE or * REPLACE"
_PERTURB_FIRST = "perturb first, INTO a table, and read that"


def _finding(problem: str, remedy: str) -> Finding:
    return Finding("statement", "", problem, remedy)


def _covered(report: Raw, shown: frozenset[Raw]) -> bool:
    return any(raw.covers(report) for raw in shown)


def _path(table: exp.Expr) -> tuple[str, ...]:
    """Return the name of a table, without the catalog and the schema that one of its uses may leave out."""
    return path_of(table)[-1:] if isinstance(table.this, exp.Identifier) else (table.sql("duckdb"),)


def _call(table: exp.Expr) -> exp.Expr:
    return table.this if isinstance(table.this, exp.Expr) else table


def _arguments(call: exp.Expr) -> list[exp.Expr]:
    return (call.expression if isinstance(call, exp.Dot) else call).expressions


def _tells_nothing(node: exp.Expr) -> bool:
    """Return whether an expression shows no value of a row: an aggregate, or whether a value is NULL."""
    return isinstance(node, exp.AggFunc) or (isinstance(node, exp.Is) and isinstance(node.expression, exp.Null))


def _single(source: exp.Expr) -> bool:
    """Return whether a source has at most one row: a subquery that aggregates without groups, or LIMIT 1."""
    query = source.this if isinstance(source, exp.Subquery) else None
    if not isinstance(query, exp.Select):
        return False
    limit = query.args.get("limit")
    aggregated = query.args.get("group") is None and all(part.find(exp.AggFunc) for part in query.selects)
    return aggregated or (limit is not None and limit.expression.name == "1")


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
