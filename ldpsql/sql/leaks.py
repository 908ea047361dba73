"""What stored reports give away next to themselves: raw values and predicates on them, and rows that are drawn twice.

A raw column is followed from its table to the output through subqueries, CTEs, stars and aliases, by sqlglot's scopes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, build_scope

from ldpsql.sql.lineage import Calls, argument_names, path_of
from ldpsql.sql.lint import Finding
from ldpsql.sql.structure import stored_query

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

    def all(self, scope: Scope) -> Iterator[Finding]:
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

    def _output(self, scope: Scope) -> list[tuple[str, Flow]]:
        """Return the columns of a scope, each with its flow; those of a set operation by their position."""
        if id(scope) not in self._outputs:
            self._outputs[id(scope)] = []  # a recursive CTE reads itself
            self._outputs[id(scope)] = self._computed(scope)
        return self._outputs[id(scope)]

    def _computed(self, scope: Scope) -> list[tuple[str, Flow]]:
        if scope.set_operation_scopes:
            left, right = map(self._output, scope.set_operation_scopes)
            both = [(name, Flow.of([flow, also])) for (name, flow), (_, also) in zip(left, right, strict=False)]
            return [*both, *left[len(both) :], *right[len(both) :]]
        projections = scope.expression.selects if isinstance(scope.expression, exp.Query) else []
        columns = [column for projection in projections for column in self._projected(projection, scope)]
        names = scope.outer_columns  # of a CTE with a list of names
        return [*zip(names, (flow for _, flow in columns), strict=False)] if names else columns

    def _projected(self, projection: exp.Expr, scope: Scope) -> list[tuple[str, Flow]]:
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

    def _columns(self, source: exp.Expr | Scope, left_out: set[str]) -> list[tuple[str, Flow]]:
        """Return the columns of one item of a FROM; those of a table together, unless a star leaves any of them out."""
        if isinstance(source, Scope):
            return self._output(source)
        if drawn := self._drawn_rows(source):
            return list(drawn.items())
        return [] if left_out else [(_ALL, Flow(shown=frozenset([Raw(_path(source), _ALL)])))]

    def _drawn_rows(self, table: exp.Expr) -> dict[str, Flow]:
        """Return the columns that ``perturb_rows`` draws, if a table is a call of it."""
        names = [name for name, _ in self._calls.drawn_rows(_call(table))]
        read = tuple(argument_names(_call(table))[:1])
        return {name.lower(): Flow(drawn=frozenset([Raw(read, name.lower())])) for name in names}

    def _flow(self, node: exp.Expr, scope: Scope) -> Flow:
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

    def _of_column(self, column: exp.Column, scope: Scope) -> Flow:
        """Return the flow of a column: of each source that may have it."""
        name, found = column.name.lower(), []
        for alias, (_, source) in scope.selected_sources.items():
            if column.table and alias.lower() != column.table.lower():
                continue
            if isinstance(source, Scope):
                found += [flow for inner, flow in self._output(source) if inner in (name, _ALL)]
            elif drawn := self._drawn_rows(source):
                found += [drawn[name]] if name in drawn else []
            else:
                found.append(Flow(shown=frozenset([Raw(_path(source), name)])))
        if not found and scope.parent is not None and scope.is_subquery:
            return self._of_column(column, scope.parent)
        known = [Flow(frozenset(Raw(r.table, name if r.column == _ALL else r.column) for r in f.shown), f.drawn) for f in found]
        return Flow.of(known)

    def _columns_in(self, node: exp.Expr, scope: Scope) -> frozenset[Raw]:
        """Return all raw columns in an expression."""
        return Flow.of(self._of_column(column, scope) for column in node.find_all(exp.Column)).shown

    def _chosen(self, scope: Scope) -> Flow:
        """Return the raw columns by whose values a scope chooses rows."""
        clauses = [scope.expression.args.get(clause) for clause in ("where", "having", "qualify")]
        if scope.expression.args.get("limit"):
            clauses.append(scope.expression.args.get("order"))
        return Flow.of(self._flow(clause, scope) for clause in clauses if isinstance(clause, exp.Expr))

    def _draws(self, scope: Scope) -> list[exp.Expr]:
        """Return the calls in the columns of a scope that draw."""
        selects = scope.expression.selects if isinstance(scope.expression, exp.Select) else []
        parts = [part for select in selects for part in select.walk(prune=lambda one: isinstance(one, exp.Query))]
        return [part for part in parts if self._calls.drawn(part)]

    def _repeated(self, scope: Scope) -> Iterator[Finding]:
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

    def _made_from_values(self, scope: Scope) -> Iterator[Finding]:
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
