"""Which columns of a query are reports: followed through tables, views, CTEs, subqueries, stars and aliases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from duckdb import DuckDBPyConnection
from sqlglot import exp

from ldpsql.engine.functions import Macros
from ldpsql.mechanisms.base import Mechanism
from ldpsql.names import MECHANISM_HANDLE
from ldpsql.quoting import quoted
from ldpsql.registry.handles import MECHANISMS
from ldpsql.registry.registry import registry
from ldpsql.sql.drawing import DrawingFunctions
from ldpsql.sql.structure import parsed

# Calls of functions in parsed SQL: those of ldpsql, and those that draw, with their mechanisms.

_ROWS = "perturb_rows"
_OF_A_MECHANISM = {"perturb": 2, "perturb_once": 4}  # (x, m, ...), with the number of arguments: one more is a level
_OF_DUCKDB = {"mean", "quantile", "variance"}  # without a schema, these are DuckDB's own
_UNNAMED = "m"  # for messages: a mechanism that SQL does not name


class Calls:
    """Distinguishes calls of ldpsql and of macros that call it from other calls."""

    def __init__(self, drawing: DrawingFunctions, macros: frozenset[str] = frozenset()) -> None:
        """``macros`` are names of the user's macros that call a function of ldpsql."""
        offered = [function for _, functions in registry().functions() for function in functions]
        own = {name.lower() for function in offered if isinstance(function, Macros) for name in function.names()}
        self._ours, self._drawing = own - _OF_DUCKDB, drawing
        self._macros = macros

    def of_ldpsql(self, node: exp.Expr) -> bool:
        """Return whether a node is a call of a function of ldpsql, or of a macro that calls one."""
        if isinstance(node, exp.Dot):
            return _leftmost(node) == "ldp" or (isinstance(node.expression, exp.Anonymous) and self._named(node.expression))
        return isinstance(node, exp.Anonymous) and self._named(node)

    def _named(self, call: exp.Anonymous) -> bool:
        return call.name.lower() in self._ours or call.name.lower() in self._macros

    def drawn(self, node: exp.Expr) -> str:
        """Return the mechanism of a call that draws reports, as SQL; an empty string for anything else."""
        call = node.expression if isinstance(node, exp.Dot) else node
        if not isinstance(call, exp.Anonymous):
            return ""
        if 1 < len(call.expressions) <= _OF_A_MECHANISM.get(call.name.lower(), 0):
            return call.expressions[1].sql("duckdb", normalize_functions=False)
        return _UNNAMED if self._drawing.named([call.name]) else ""

    def drawn_rows(self, call: exp.Expr) -> Iterator[tuple[str, str]]:
        """Yield the columns that ``perturb_rows`` draws, each with its mechanism."""
        if not isinstance(call, exp.Anonymous) or call.name.lower() != _ROWS:
            return
        for pair in (pair for struct in call.find_all(exp.Struct) for pair in struct.expressions):
            if isinstance(pair, exp.PropertyEQ):
                yield pair.this.name, pair.expression.sql("duckdb", normalize_functions=False)


def argument_names(call: exp.Expr) -> list[str]:
    """Return the names and strings that are arguments of a call, also in a list."""
    arguments = [argument for argument in call.args.get("expressions") or [] if isinstance(argument, exp.Expr)]
    listed = [item for argument in arguments for item in (argument.expressions or [argument])]
    return [item.name for item in listed if isinstance(item, exp.Literal | exp.Column)]


def _leftmost(node: exp.Expr) -> str:
    while isinstance(node, exp.Dot):
        node = node.this
    return node.name.lower()


_PASSED_ON = (exp.AnyValue, exp.First, exp.Last, exp.ArgMax, exp.ArgMin, exp.ArrayAgg)  # they return reports themselves
Files = Callable[[str], "Relation | None"]


@dataclass(frozen=True)
class Report:
    """A column of reports: its name, the table that it was read from, and the mechanism as SQL, if it drew all of them."""

    column: str
    table: str = ""
    mechanism: str = ""

    def changed(self) -> Report:
        """Return the report as something that was computed from it, or put together with something else."""
        return replace(self, mechanism="")


@dataclass(frozen=True)
class Relation:
    """The columns that a query returns, as far as they are known; ``open`` means that there may be others."""

    columns: tuple[tuple[str, Report | None], ...] = ()
    open: bool = False

    def report(self, name: str) -> Report | None:
        """Return the report in a column, None if the column holds something else."""
        return next((report for column, report in self.columns if column == name.lower() and report), None)

    @property
    def reports(self) -> dict[str, Report]:
        """The columns that are reports."""
        return {column: report for column, report in self.columns if report}

    def renamed(self, names: Iterable[str]) -> Relation:
        """Return the relation with other names for its first columns."""
        new = [name.lower() for name in names]
        kept = self.columns[len(new) :]
        both = zip(new, (report for _, report in self.columns), strict=False)
        return Relation((*both, *kept), open=self.open) if new else self

    def of_table(self, table: str) -> Relation:
        """Return the relation as that of a table: messages name this table."""
        return Relation(tuple((name, report and replace(report, table=table)) for name, report in self.columns), self.open)

    def joined(self, other: Relation) -> Relation:
        """Return the columns of both."""
        return Relation((*self.columns, *other.columns), self.open or other.open)

    def stacked(self, other: Relation, *, by_name: bool) -> Relation:
        """Return the columns of UNION: a column of either that is a report makes it one."""
        if by_name or self.open or other.open:
            names = dict.fromkeys([*dict(other.columns), *dict(self.columns)])
            return Relation(tuple((name, _either(self.report(name), other.report(name))) for name in names), open=True)
        second = [report for _, report in other.columns] + [None] * len(self.columns)
        return Relation(
            tuple((name, _either(report, also)) for (name, report), also in zip(self.columns, second, strict=False))
        )


def _either(report: Report | None, also: Report | None) -> Report | None:
    """Return the report in a column of UNION; its mechanism is known only if it is that of both."""
    one = report or also
    alike = report is not None and also is not None and report.mechanism == also.mechanism
    return one if one is None or alike else one.changed()


UNKNOWN = Relation(open=True)


class Tables:
    """The tables, views and models whose columns are known; names match if one only leaves out leading parts."""

    def __init__(self, files: Files = lambda _: None) -> None:
        self._tables: dict[tuple[str, ...], Relation] = {}
        self._files = files

    def define(self, path: tuple[str, ...], relation: Relation) -> bool:
        """Add the reports of a table to those that are known; return whether this changed anything."""
        known = self._tables.get(path, Relation())
        new = {**known.reports, **relation.of_table(path[-1]).reports}
        columns = {**dict(known.columns), **dict(relation.columns), **new}
        self._tables[path] = Relation(tuple(columns.items()), known.open or relation.open)
        return self._tables[path] != known

    def find(self, path: tuple[str, ...]) -> Relation:
        """Return the columns of a table or of a file."""
        for known, relation in self._tables.items():
            short, long = sorted((known, path), key=len)
            if long[-len(short) :] == short:
                return relation
        return (len(path) == 1 and self._files(path[0])) or UNKNOWN


def path_of(table: exp.Expr) -> tuple[str, ...]:
    """Return the parts of the name of a table; those of a file name are one part, as it is written."""
    parts = [part.name for part in (table.parts if isinstance(table, exp.Table) else [table])]
    return tuple(parts if len(parts) == 1 and ("/" in parts[0] or "." in parts[0]) else (part.lower() for part in parts))


@dataclass
class Scope:
    """One SELECT, or another statement with a WHERE: the relations in its FROM by their aliases, and the scope around it."""

    node: exp.Expr
    sources: dict[str, Relation] = field(default_factory=dict)
    around: Scope | None = None

    def report(self, column: exp.Column) -> Report | None:
        """Return the report that a column refers to."""
        if column.table:
            return self._qualified(column)
        own = next((report for source in self.sources.values() if (report := source.report(column.name))), None)
        if own is not None:
            return own
        if any(source.open for source in self.sources.values()) or self.around is None:
            return None
        return self.around.report(column)

    def _qualified(self, column: exp.Column) -> Report | None:
        source = self.sources.get(column.table.lower())
        if source is not None:
            return source.report(column.name)
        outer = self.around.report(column) if self.around else None
        parts = [part.name for part in column.parts]  # reports.city.seed, or city.seed: a field of a report
        within = exp.column(*reversed(parts[:-1])) if len(parts) > 1 else None
        whole = self.report(within) if within is not None else None
        return outer or (whole and whole.changed())


class Reader:
    """Reads queries into relations; ``scopes`` has every SELECT that was read, with its sources."""

    def __init__(self, tables: Tables, calls: Calls) -> None:
        self._tables, self._calls = tables, calls
        self.scopes: list[Scope] = []
        self.stacks: list[tuple[exp.SetOperation, Relation]] = []

    def read(self, query: exp.Expr, ctes: Mapping[str, Relation] = {}, around: Scope | None = None) -> Relation:
        """Return the columns of a query."""
        known = dict(ctes)
        for cte in query.ctes if isinstance(query, exp.Query) else []:
            known[cte.alias.lower()] = Relation(open=True)  # if it is recursive
            read = self.read(cte.this, known, around).renamed(column.name for column in cte.args["alias"].columns)
            known[cte.alias.lower()] = read
        if isinstance(query, exp.SetOperation):
            left, right = self.read(query.left, known, around), self.read(query.right, known, around)
            stacked = left.stacked(right, by_name=bool(query.args.get("by_name")))
            self.stacks.append((query, stacked))
            return stacked
        if isinstance(query, exp.Subquery | exp.Paren):
            return self.read(query.this, known, around)
        return self._select(query, known, around) if isinstance(query, exp.Select) else self._source(query, known, around)

    def scope(
        self, node: exp.Expr, sources: Iterable[exp.Expr | None], ctes: Mapping[str, Relation], around: Scope | None
    ) -> Scope:
        """Return a new scope with these sources, and read the queries within its expressions."""
        scope = Scope(node, around=around)
        for source in sources:
            if source is not None:
                names = source.args["alias"].columns if source.args.get("alias") else []
                alias = source.alias_or_name.lower() or f"source {len(scope.sources)}"
                scope.sources[alias] = self._source(source, ctes, around).renamed(name.name for name in names)
        self.scopes.append(scope)
        for inner in queries_in(node):
            self.read(inner, ctes, scope)
        return scope

    def _select(self, select: exp.Select, ctes: Mapping[str, Relation], around: Scope | None) -> Relation:
        first = select.args.get("from_")
        tables = [first and first.this, *(join.this for join in select.args.get("joins") or [])]
        scope = self.scope(select, [*tables, *(select.args.get("laterals") or [])], ctes, around)
        columns = [self.projected(projection, scope) for projection in select.expressions]
        relation = Relation()
        for part in columns:
            relation = relation.joined(part)
        return relation

    def projected(self, projection: exp.Expr, scope: Scope) -> Relation:
        """Return the columns of one item of a SELECT."""
        if isinstance(projection, exp.Star):
            return _starred(projection, scope.sources.values())
        if isinstance(projection, exp.Column) and isinstance(projection.this, exp.Star):
            return _starred(projection.this, [scope.sources.get(projection.table.lower(), UNKNOWN)])
        if isinstance(projection.unalias(), exp.Columns):
            return _starred(exp.Star(), scope.sources.values())
        return Relation(((projection.alias_or_name.lower(), self.report_of(projection, scope)),))

    def report_of(self, node: exp.Expr, scope: Scope) -> Report | None:
        """Return the report that an expression has as its value, or is computed from."""
        node = node.unalias()
        while isinstance(node, exp.Paren | exp.Cast | exp.Window):
            node = node.this
        if mechanism := self._calls.drawn(node):
            return Report("", "", mechanism)
        if isinstance(node, exp.Predicate | exp.Not | exp.And | exp.Or) or self._calls.of_ldpsql(node):
            return None
        if isinstance(node, exp.AggFunc) and not isinstance(node, _PASSED_ON):
            return None
        nested = next((self.read(query, {}, scope) for query in [node] if isinstance(node, exp.Subquery)), None)
        if nested is not None:
            return next(iter(nested.reports.values()), None)
        report = next((report for _, report in self.reports_in(node, scope)), None)
        return report if report is None or isinstance(node, exp.Column) else report.changed()

    def reports_in(self, node: exp.Expr, scope: Scope) -> Iterator[tuple[exp.Column, Report]]:
        """Yield the columns of an expression that are reports, apart from arguments of functions of ldpsql."""

        def apart(one: exp.Expr) -> bool:
            return (one is not node and isinstance(one, exp.Query)) or self._calls.of_ldpsql(one)

        for part in node.walk(prune=apart):
            if isinstance(part, exp.Column) and (report := scope.report(part)):
                yield part, Report(report.column or part.name, report.table, report.mechanism)

    def _source(self, source: exp.Expr, ctes: Mapping[str, Relation], around: Scope | None) -> Relation:
        """Return the columns of one item of a FROM."""
        if isinstance(source, exp.Pivot):
            inner = self.scope(source, [source.this], ctes, around)
            return next(iter(inner.sources.values()), UNKNOWN)
        if isinstance(source, exp.Subquery):
            return self.read(source, ctes, around)
        if not isinstance(source, exp.Table):
            return UNKNOWN
        for pivot in source.args.get("pivots") or []:
            plain = source.copy()
            plain.set("pivots", None)
            self.scope(pivot, [plain], ctes, around)
        if not isinstance(source.this, exp.Identifier):
            return self._function(source)
        path = path_of(source)
        return ctes[path[0]] if len(path) == 1 and path[0] in ctes else self._tables.find(path)

    def _function(self, source: exp.Table) -> Relation:
        """Return the columns of a table function."""
        drawn = [(name.lower(), Report(name, "", mechanism)) for name, mechanism in self._calls.drawn_rows(source.this)]
        if drawn:
            return Relation(tuple(drawn), open=True)
        files = argument_names(source.this)
        read = [self._tables.find((name,)) for name in files if "." in name or "/" in name]
        return next((relation for relation in read if relation.columns), self._macro(source))

    def _macro(self, source: exp.Table) -> Relation:
        """Return the columns of a table macro of the user's, or of the table that query_table names."""
        name = source.this.name.lower()
        if name == "query_table" and (named := argument_names(source.this)):
            return self._tables.find(tuple(named[0].lower().split(".")))
        return self._tables.find((f"{name}()",))


def queries_in(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the queries within the expressions of a statement, apart from those in its FROM and in its CTEs."""
    for key, value in node.args.items():
        if key in ("from_", "with_", "laterals", "using"):
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, exp.Join):
                yield from queries_in(exp.Where(this=on) if (on := part.args.get("on")) else exp.Where())
            elif isinstance(part, exp.Expr):
                inner = part.walk(prune=lambda one: isinstance(one, exp.Query))
                yield from (one for one in inner if isinstance(one, exp.Query))


def _starred(star: exp.Star, sources: Iterable[Relation]) -> Relation:
    """Return the columns of a star: those of all sources, without EXCLUDE, and with REPLACE and RENAME."""
    left_out = {column.name.lower() for column in star.args.get("except_") or []}
    renamed = {alias.this.name.lower(): alias.alias.lower() for alias in star.args.get("rename") or []}
    relation = Relation()
    for source in sources:
        relation = relation.joined(source)
    kept = ((renamed.get(name, name), report) for name, report in relation.columns if name not in left_out)
    return Relation(tuple(kept), relation.open)


# The columns of reports that a statement draws, with their mechanisms, so that they can be recorded next to the reports.


def drawn_columns(sql: str, drawing: DrawingFunctions) -> dict[str, str]:
    """Return the columns that a query draws, each with its mechanism as SQL; none for SQL that cannot be parsed."""
    tree = parsed(sql)
    return _columns(tree, drawing) if isinstance(tree, exp.Query) else {}


def stored_columns(sql: str, drawing: DrawingFunctions) -> tuple[str, dict[str, str]] | None:
    """Return the table that CREATE TABLE AS or INSERT fills, and the columns that it draws; None for other statements."""
    tree = parsed(sql)
    if not isinstance(tree, exp.Create | exp.Insert) or not isinstance(tree.expression, exp.Query):
        return None
    target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    if not isinstance(target, exp.Table) or (isinstance(tree, exp.Create) and tree.kind != "TABLE"):
        return None
    names = [part.name for part in tree.this.expressions] if isinstance(tree.this, exp.Schema) else []
    if isinstance(tree, exp.Insert) and not names and not tree.args.get("by_name"):
        return None  # by position: the table has names of its own
    columns = _columns(tree.expression, drawing, names)
    return (".".join(map(quoted, path_of(target))), columns) if columns else None


def _columns(query: exp.Expr, drawing: DrawingFunctions, names: list[str] | None = None) -> dict[str, str]:
    relation: Relation = Reader(Tables(), Calls(drawing)).read(query).renamed(names or [])
    calls = {name: report.mechanism for name, report in relation.reports.items()}
    return {name: call for name, call in calls.items() if "(" in call}


def mechanisms_of(cursor: DuckDBPyConnection, columns: Mapping[str, str]) -> dict[str, Mechanism]:
    """Return the mechanisms that these calls stand for on a connection."""
    handles = {
        column: cursor.execute(f"SELECT system.main.{MECHANISM_HANDLE}({call})").fetchall()[0][0]
        for column, call in columns.items()
    }
    return {column: MECHANISMS.thing(handle) for column, handle in handles.items()}
