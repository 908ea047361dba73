"""Shares as one query of another engine, for views: the counting of `ldpsql.bulk.backends` in Ibis, and the inversion on top.

Ibis compiles the query to the dialect; small tables of constants, such as the values, are common table expressions in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp
from sqlglot.optimizer.eliminate_subqueries import eliminate_subqueries

from ldpsql import __version__
from ldpsql.bulk.backends import PART, cells
from ldpsql.channels import TOTAL, KeepOrSpread, SetChannel, Subsets, TableChannel
from ldpsql.domains.columns import family
from ldpsql.domains.composite import Product
from ldpsql.domains.domain import Domain
from ldpsql.domains.sql_types import shown_type
from ldpsql.errors import InvalidParameter
from ldpsql.estimates.conditions import scale_of
from ldpsql.inference.counting import least_squares, operator_of
from ldpsql.inference.score_intervals import deviations
from ldpsql.mechanisms.base import CertifiedValues, Mechanism, certify_values
from ldpsql.registry.registry import registry
from ldpsql.reports import ListedHashReports, SetReports, type_of

if TYPE_CHECKING:
    from ibis.expr.types import Table, Value

DIALECTS = ("duckdb", "postgres", "sqlite", "datafusion", "clickhouse", "snowflake", "bigquery", "trino", "spark")
_MOST_VALUES = 10_000  # of a query text
_MOST_CHANCES = 16_384  # of a table of the inverse
_MOST_SYMBOLS = 1 << 20  # of the hashes of all values
_WORD = 64
_MAXIMUM = ("estimate", "std_error", "low", "high")
_INVERTED = ("inverted", "inverted_std_error", "inverted_low", "inverted_high")
_LAST = ("reports", "impossible")
_SUMS = {"weights": "w", "people": "n", "squares": "ww"}  # and what `backends` calls them
_GROUP = ("total", "all_squares", *_LAST)  # the sums of all possible reports of a group
# With an outcome y and weights w, the sums of w, wy, w^2, w^2 y and w^2 y^2, and the ends of y.
_SUMS_OF_ROWS = {
    "weights": "s1_0",
    "people": "n",
    "squares": "s2_0",
    "wy": "s1_1",
    "wwy": "s2_1",
    "wwyy": "s2_2",
    "least": "least",
    "most": "most",
}
_ENDS = {"least": "min", "most": "max"}  # what is not added up
QUESTIONS = ("shares", "mean", "outcome")
_VALUES = "ldp_values"


@dataclass(frozen=True)
class ReportTable:
    """What a query reads.

    Args:
        table: the table of reports, or of counts of them; its name may have dots.
        column: the column of the reports.
        counts: the column of their numbers, if the table has counts.
        weight: the column of the weights of the rows, if they have any.
        keys: the columns of the groups.
        outcome: a raw column, whose mean for each value is asked for.

    """

    table: str
    column: str
    counts: str = ""
    weight: str = ""
    keys: tuple[str, ...] = ()
    outcome: str = ""


def query(mechanism: Mechanism, source: ReportTable, dialect: str, view: str = "", question: str = "shares") -> str:
    """Return the query that answers a question by inversion, in a dialect of SQL; or one that creates a view of it.

    Its columns are the keys, the estimate with its errors, the number of reports, and of those that the mechanism cannot draw,
    which are left out: it should be 0. ``mean`` is that of the values, which are numbers. ``outcome`` has a row for each value,
    with the mean of the outcome. ``shares`` has one, too: for k-RR the maximum of the likelihood, and the inversion.

    Raises:
        InvalidParameter: if the mechanism has no such query, the query would be too large, Ibis is not installed, or for an
            unknown dialect.

    """
    compiler = _compiler(dialect)
    if question not in QUESTIONS or (question == "outcome") != bool(source.outcome):
        raise InvalidParameter(
            f"a query answers one of {', '.join(QUESTIONS)}", "an outcome needs its raw column, and only that"
        )
    if source.counts and source.outcome:
        raise InvalidParameter("a table of counts has no raw columns", "give the table of reports")
    if source.counts and source.weight:
        raise InvalidParameter("a table of counts has no weights of rows", "give --counts or --weight")
    taken = [key for key in source.keys if key.lower() in ("value", *_MAXIMUM, *_INVERTED, *_LAST)]
    if taken:
        raise InvalidParameter(
            f"the query has a column {taken[0]} of its own", "give the column of the groups another name in a view"
        )
    certified = certify_values(mechanism, "key-value estimates have no relational SQL: use ldp.key_value")
    if isinstance(certified.values, Product):
        raise InvalidParameter(
            "rows of several columns have no relational SQL", "export each column with its own mechanism, or use ldp.margin"
        )
    if len(certified.values) > _MOST_VALUES:
        raise _too_large(f"{_MOST_VALUES:,} values")
    made = _Inversion(certified, source, has_lists=dialect == "duckdb")
    tree = compiler.to_sqlglot({"shares": made.shares, "mean": made.mean, "outcome": made.outcome}[question]())
    tree = eliminate_subqueries(tree[-1] if isinstance(tree, list) else tree)  # engines limit how deep queries are nested
    named = tree.args["with_"]
    for name, rows in reversed(made.constants.items()):
        alias = exp.TableAlias(this=exp.to_identifier(name, quoted=True))
        named.set("expressions", [exp.CTE(this=rows.of(dialect), alias=alias), *named.expressions])
    if view:
        tree = exp.Create(this=exp.Table(this=exp.to_identifier(view, quoted=True)), kind="VIEW", expression=tree)
    claimed = certified.certificate.claimed
    head = f"-- {mechanism.name}, {claimed}; by ldpsql {__version__}, for {dialect}. Nothing here perturbs."
    return f"{head}\n{tree.sql(dialect=compiler.dialect, pretty=True)};\n"


def _compiler(dialect: str) -> Any:
    """Return the compiler of Ibis for a dialect, or that of a plugin."""
    dialects = registry().dialects
    if dialect not in (*DIALECTS, *dialects):
        raise InvalidParameter("there is no such dialect", f"one of {', '.join([*DIALECTS, *dialects])}")
    try:
        compilers = import_module("ibis.backends.sql.compilers")
    except ImportError:
        raise InvalidParameter("queries for other engines are compiled by Ibis", "pip install 'ldpsql[ibis]'") from None
    if dialect == "spark":
        config = import_module("ibis.config")
        if config.options.pyspark is None:  # the compiler reads an option that only the backend sets, which needs Spark
            config.options.pyspark = type("Options", (config.Config,), {"treat_nan_as_null": False})()
        return compilers.pyspark.compiler
    return dialects.get(dialect) or getattr(compilers, dialect).compiler


def _too_large(most: str) -> InvalidParameter:
    return InvalidParameter(f"a query of more than {most} is too large", "declare fewer values or bins, or let ldpsql estimate")


@dataclass(frozen=True)
class _Rows:
    """Rows of constants: the names of the columns, and literals of SQL."""

    names: tuple[str, ...]
    rows: list[tuple[exp.Expr, ...]]

    def of(self, dialect: str) -> exp.Select:
        """Return the query of the rows."""
        if dialect == "sqlite":  # which names the columns itself
            named = [exp.alias_(exp.column(f"column{place}"), name) for place, name in enumerate(self.names, 1)]
            return exp.select(*named).from_(exp.values(self.rows, alias="t"))
        if dialect == "clickhouse":  # where rows are a UNION, whose plan is too long from two thousand rows on
            each = exp.func("arrayJoin", exp.Array(expressions=[exp.Tuple(expressions=list(row)) for row in self.rows]))
            named = [
                exp.alias_(exp.func("tupleElement", exp.column("each"), exp.Literal.number(place)), name)
                for place, name in enumerate(self.names, 1)
            ]
            return exp.select(*named).from_(exp.select(exp.alias_(each, "each")).subquery("t"))
        return exp.select(*map(exp.column, self.names)).from_(exp.values(self.rows, alias="t", columns=list(self.names)))


def _binary(word: int) -> str:  # DuckDB's function ``bin``
    raise NotImplementedError


def _converted(row: Iterable[object]) -> tuple[exp.Expr, ...]:
    return tuple(exp.convert(value) for value in row)


def _number(value: float) -> exp.Expr:
    """Return a double from text: in some engines, a literal is a decimal number."""
    return exp.cast(exp.Literal.string(repr(float(value))), "double")


def _literal(kind: pa.DataType, value: Any) -> exp.Expr:
    """Return a value in SQL."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return exp.convert(value)
    if pa.types.is_floating(kind):
        return _number(value)
    if pa.types.is_date(kind):
        return exp.cast(exp.Literal.string(value.isoformat()), "date")
    raise InvalidParameter(
        f"values of type {shown_type(kind)} have no SQL that all engines read", "declare text, numbers or dates"
    )


class _Inversion:
    """The expression of Ibis, step by step; `shares`, `mean` and `outcome` are the whole of it; the keys are c0, c1 and so on.

    A step returns a row for each group and place, and adds columns, whose names occur once, as ClickHouse reads aliases first.
    The places are those of reports in `_listed`, and of values in the others. ``weights`` is the number, or the weight, of the
    reports of a place, or of those that support it; ``total`` is that of the group.
    """

    def __init__(self, certified: CertifiedValues, source: ReportTable, *, has_lists: bool) -> None:
        import ibis  # noqa: PLC0415  # an extra

        self.ibis, self.certified, self.source, self.has_lists = ibis, certified, source, has_lists
        self.channel, self.values = certified.channel, certified.values
        self.keys = [f"c{place}" for place in range(len(source.keys))]
        self.z, self.constants = deviations(0.95), dict[str, _Rows]()

    @cached_property
    def votes(self) -> tuple[float, float] | None:
        """The chances that a report of another value and that one of the value supports a value; None without such votes."""
        if isinstance(self.channel, KeepOrSpread) and self.channel.keep > self.channel.spread and self.is_plain:
            return self.channel.spread / TOTAL, self.channel.keep / TOTAL
        if isinstance(self.channel, SetChannel) and isinstance(self.certified.reports, SetReports | ListedHashReports):
            return float(self.channel.miss), float(self.channel.hit)
        return None

    @property
    def is_plain(self) -> bool:
        """Whether the reports are the values."""
        return bool(self.certified.reports == self.values)

    @cached_property
    def sums(self) -> dict[str, str]:
        """The sums over the rows of a cell, and what `backends` calls them."""
        if self.source.outcome:
            return _SUMS_OF_ROWS
        return _SUMS if self.source.weight else dict.fromkeys(_SUMS, "n")

    def shares(self) -> Table:
        """Return the query for the share of each value of each group."""
        table = self._moments(self._projected(self._inverted()))
        table, names = self._ends(table), [*_INVERTED, *_LAST]
        if self.votes and self.is_plain:
            table, names = self._maximum(table, self.votes), [*_MAXIMUM, *names]
        return self._named(table.join(self._places(_VALUES, self.values), "place"), ["value", *names])

    def mean(self) -> Table:
        """Return the query for the mean of each group: that of a number for each report, whose expectation is the value."""
        if family(self.values.values.type) != "number":
            raise InvalidParameter("means of other values than numbers have no relational SQL", "let ldpsql estimate")
        x, greatest, least = scale_of(self.values), self.ibis.greatest, self.ibis.least
        numbers, reports = self._numbers(x), self.certified.reports
        assert isinstance(reports, Domain)  # noqa: S101  # `_numbers` refuses others
        listed = self._listed(_VALUES if self.is_plain else "ldp_reports", reports)
        table = listed.join(numbers, listed.place == numbers.spot)
        w, ww, number = table.weights, table.squares, table.number
        added = {"w": w, "wx": w * number, "ww": ww, "wwx": ww * number, "wwxx": ww * number * number}
        sums = {name: table[name].max() for name in _LAST} | {name: value.sum() for name, value in added.items()}
        table = (table.group_by(self.keys) if self.keys else table).aggregate(**sums)
        table = table.filter(table.w > 0).mutate(estimate=table.wx / table.w)
        m = table.estimate
        table = table.mutate(std_error=greatest(table.wwxx - m * table.wwx * 2 + m * m * table.ww, 0.0).sqrt() / table.w)
        half = table.std_error * self.z + self.values.rounding  # numbers of bins are those of their centres
        first, last = float(x.min()) - self.values.rounding, float(x.max()) + self.values.rounding
        low, high = (greatest(least(end, last), first) for end in (table.estimate - half, table.estimate + half))
        return self._named(table.mutate(low=low, high=high), [*_MAXIMUM, *_LAST])

    def _numbers(self, x: Any) -> Table:
        """Return the number of each listed report."""
        inverse = None
        if isinstance(self.certified.reports, Domain) and isinstance(self.channel, TableChannel | KeepOrSpread):
            inverse = self._inverse(lambda: operator_of(self.certified.mechanism).inverse)
        if inverse is None or not np.allclose(inverse.sum(axis=1), 1.0, rtol=0, atol=1e-9):
            raise InvalidParameter(
                f"the mean of reports of {self.certified.name} has no relational SQL",
                "answer it by ldpsql: ldpsql ask mean; k-RR and square_wave have a query",
            )
        rows = ((exp.convert(place), _number(number)) for place, number in enumerate((inverse @ x).tolist()))
        return self._constant("ldp_numbers", {"spot": "int64", "number": "float64"}, rows)

    def outcome(self) -> Table:
        """Return the query for the mean of the outcome for each value: `ldpsql.outcomes.by_value` with its intervals."""
        table = self._contributed()
        q = table.q
        added = {"top": q * table.wy, "bottom": q * table.weights}
        added |= {"tops": q * q * table.wwyy, "both": q * q * table.wwy, "bottoms": q * q * table.squares}
        ends = {name: getattr(table[name], how)() for name, how in _ENDS.items()}
        table = table.group_by([*self.keys, "place"]).aggregate(
            **{name: value.sum() for name, value in added.items()}, **{name: table[name].max() for name in _LAST}, **ends
        )
        return self._named(self._fieller(table).join(self._places(_VALUES, self.values), "place"), ["value", *_MAXIMUM, *_LAST])

    def _fieller(self, table: Table) -> Table:
        """Return the ratio of ``top`` and ``bottom`` with its error and its ends, as `functionals.fieller` does."""
        greatest, least, z, null = self.ibis.greatest, self.ibis.least, self.z, self.ibis.null("float64")
        ratio = (table.bottom > 0).ifelse(table.top / (table.bottom > 0).ifelse(table.bottom, 1.0), null)
        lead = table.bottom * table.bottom - table.bottoms * z * z
        table = table.mutate(ratio=ratio, lead=lead, half=table.top * table.bottom - table.both * z * z)
        table = table.mutate(
            root=table.half * table.half - table.lead * (table.top * table.top - table.tops * z * z),
            r=table.ratio.fill_null(0.0),
            slope=(table.lead == 0).ifelse(1e-300, table.lead),
            clear=(table.lead > 0) & (table.bottom > 0),
        )
        reach = greatest(table.root, 0.0).sqrt()
        table = table.mutate(one=(table.half - reach) / table.slope, other=(table.half + reach) / table.slope)
        table = table.mutate(first=least(table.one, table.other), final=greatest(table.one, table.other))
        gap = ~table.clear & (table.root > 0) & (table.lead < 0)
        wide = table.final - table.first > table.most - table.least
        first = wide.ifelse(greatest(table.first, least(table.r, table.least)), table.first)
        final = wide.ifelse(least(table.final, greatest(table.r, table.most)), table.final)
        begins, ends = (gap & (one > table.least) & (one < table.most) for one in (table.first, table.final))
        start = (ends & (table.first < table.least)).ifelse(table.final, table.least)
        end = (begins & (table.final > table.most)).ifelse(table.first, table.most)
        variance = greatest(table.tops - table.r * table.both * 2 + table.r * table.r * table.bottoms, 0.0)
        bound = {"low": table.clear.ifelse(first, start), "high": table.clear.ifelse(final, end)}
        known = table.bottom > table.bottoms.sqrt() * z
        return table.mutate(
            estimate=table.ratio.isnull().ifelse(null, greatest(least(table.r, table.most), table.least)),
            std_error=known.ifelse(variance.sqrt() / (table.bottom > 0).ifelse(table.bottom, 1.0), null),
            **{name: greatest(least(value, table.most), table.least) for name, value in bound.items()},
        )

    def _named(self, table: Table, names: list[str]) -> Table:
        """Return the keys by their own names and the columns of the answer, in order."""
        order = [*self.keys, *(["place"] if "place" in table.columns else [])]
        table = table.order_by(order) if order else table
        keys = dict(zip(self.source.keys, (table[key] for key in self.keys), strict=True))
        return table.select(**keys, **{name: table[name] for name in names})

    def _constant(self, name: str, kinds: dict[str, Any], rows: Iterable[tuple[exp.Expr, ...]]) -> Table:
        """Return a table of constants, which `query` writes into the statement."""
        self.constants[name] = _Rows(tuple(kinds), list(rows))
        return self.ibis.table(kinds, name=name)

    def _places(self, name: str, domain: Domain) -> Table:
        kind, values = domain.values.type, domain.values.to_pylist()
        rows = ((exp.convert(place), _literal(kind, value)) for place, value in enumerate(values))
        return self._constant(name, {"place": "int64", "value": self.ibis.dtype(kind)}, rows)

    def _all(self, *order: Any) -> Any:
        """Return the window of a group; with an order, of its rows up to this one."""
        rows: dict[str, Any] = {"order_by": list(order), "rows": (None, 0)} if order else {}
        return self.ibis.window(group_by=self.keys or None, **rows)

    def _cells(self) -> tuple[Table, list[Value]]:
        """Return the cells of `backends` that have a report, with their `_SUMS`, and the parts of the report."""
        reports, source = self.certified.reports, self.source
        kind = type_of(reports)
        spread = isinstance(reports, ListedHashReports) and not self.has_lists
        kinds = {f"{source.column}_{field.name}": field.type for field in kind} if spread else {source.column: kind}
        schema = {name: self.ibis.dtype(each) for name, each in kinds.items()}
        if isinstance(reports, SetReports) and not self.has_lists:
            schema = {source.column: "string"}
        schema |= {name: "float64" for name in (source.counts, source.weight, source.outcome) if name}
        *catalog, database, name = ["", *source.table.split(".")]
        keys = dict.fromkeys(source.keys, "string")  # of any type: they are only passed on
        table = self.ibis.table(keys | schema, name=name, catalog=".".join(catalog[1:]) or None, database=database or None)
        rows = table.filter(table[source.weight] > 0) if source.weight else table
        counted, parts = cells(
            rows,
            {source.column: kind},
            keys=source.keys,
            weight=source.weight or None,
            counts=source.counts or None,
            raw=[source.outcome] if source.outcome else [],
        )
        places = range(len(self.keys), len(self.keys) + sum(part is not None for part in parts[source.column]))
        own = [PART.format(place) for place in places]
        # the first of three parts says whether a struct is NULL
        counted = counted.filter(counted[own[0]].notnull() if len(own) < 3 else ~counted[own.pop(0)])
        if source.outcome:
            counted = counted.filter(counted.n > 0)
        numbers = {name: counted[own_name].cast("float64") for name, own_name in self.sums.items()}
        counted = counted.select(*self.keys, *own, **numbers)
        return counted, [counted[name] for name in own]

    def _inverted(self) -> Table:
        """Return the inversion, ``inverted``, of each group and place, with the sums of the group."""
        reports = self.certified.reports
        if isinstance(self.channel, TableChannel) and isinstance(reports, Domain) and self.votes is None:
            if self.source.weight:
                raise InvalidParameter(
                    f"weighted reports of {self.certified.name} have no relational SQL",
                    "k-RR, sets of values and hashes have it",
                )
            return self._solved(self._listed(_VALUES if self.is_plain else "ldp_reports", reports))
        if self.votes is None:
            raise self._without_sql()
        if isinstance(reports, Domain):
            table = self._listed(_VALUES, reports)
        else:
            table = self._supported(*(self._sets() if isinstance(reports, SetReports) else self._hashes()))
        low, high = self.votes
        return table.mutate(inverted=(table.weights / table.total - low) / (high - low))

    def _listed(self, name: str, domain: Domain) -> Table:
        """Return the sums of each listed report, also of those that nobody has."""
        (counted, (report,)), places = self._cells(), self._places(name, domain)
        own = counted.select(
            *self.keys, value=report, place=self.ibis.null("int64"), **{name: counted[name] for name in self.sums}
        )
        groups = counted.select(*self.keys).distinct() if self.keys else counted.limit(1)
        nobody = {name: self.ibis.null("float64") if name in _ENDS else self.ibis.literal(0.0) for name in self.sums}
        zeros = groups.select(*self.keys, one=1).cross_join(places).select(*self.keys, "value", "place", **nobody)
        each = own.union(zeros).group_by([*self.keys, "value"])
        sums = {name: getattr(self.ibis._[name], _ENDS.get(name, "sum"))() for name in self.sums}
        table = each.aggregate(place=self.ibis._.place.max(), **sums)
        return self._totalled(table, table.place.notnull()).filter(self.ibis._.place.notnull() & (self.ibis._.total > 0))

    def _totalled(self, table: Table, possible: Value) -> Table:
        """Return cells with the sums of their group: of the reports that are possible, and how many are not."""
        group, nothing = self._all(), self.ibis.literal(0.0)
        own = {"total": "weights", "all_squares": "squares", "reports": "people"}
        sums = {name: possible.ifelse(table[each], nothing).sum().over(group) for name, each in own.items()}
        return table.mutate(**sums, impossible=possible.ifelse(nothing, table.people).sum().over(group))

    def _contributed(self) -> Table:
        """Return what a report of each cell contributes to each value, ``q``, with the sums of the cell."""
        reports = self.certified.reports
        if self.votes is not None and isinstance(reports, SetReports):
            low, high = self.votes
            crossed, supported = self._sets()
            return crossed.mutate(q=(supported.ifelse(1.0, self.ibis.literal(0.0)) - low) / (high - low))
        links = self._links(lambda: least_squares(self.certified))
        if isinstance(reports, ListedHashReports):
            counted, symbols = self._possible_hashes()
            table = counted.mutate(at=counted.number * symbols + counted.y)
        elif isinstance(reports, Domain) and isinstance(self.channel, TableChannel | KeepOrSpread):
            table = self._listed(_VALUES if self.is_plain else "ldp_reports", reports).rename(at="place").drop("value")
        else:
            raise self._without_sql()
        return table.join(links, table["at"] == links.report).rename(q="weight", place="target")

    def _without_sql(self) -> InvalidParameter:
        return InvalidParameter(
            f"the reports of {self.certified.name} have no relational SQL",
            "k-RR, listed reports, sets of values and hashes with orthogonal seeds have it",
        )

    def _sets(self) -> tuple[Table, Value]:
        """Return possible sets and values, and whether a set holds the value: a text with a digit for each, words in DuckDB."""
        counted, (report,) = self._cells()
        size, rest = len(self.values), 0
        if self.has_lists:
            binary = self.ibis.udf.scalar.builtin(_binary, name="bin", signature=(("uint64",), "string"))
            report = report.map(lambda word: binary(word).lpad(_WORD, "0").reverse()).join("")
            rest = -size % _WORD
        counted = counted.mutate(bits=report)
        bits = counted.bits
        possible = (bits.length() == size + rest) & (bits.replace("0", "").replace("1", "") == "")
        if rest:
            possible &= bits.substr(size) == "0" * rest
        if isinstance(self.channel, Subsets):
            possible &= bits.replace("0", "").length() == self.channel.chosen
        counted = self._totalled(counted, possible).filter(possible)
        crossed = counted.cross_join(self._places(_VALUES, self.values))
        return crossed, crossed.bits.substr(crossed.place, 1) == "1"

    def _hashes(self) -> tuple[Table, Value]:
        """Return possible hashes and values, and whether a hash is that of the value: all under one seed are a text."""
        channel: Any = self.channel
        (counted, symbols), size = self._possible_hashes(), len(self.values)
        width = len(str(symbols - 1))
        if channel.seeds * size * width > _MOST_SYMBOLS:
            raise _too_large(f"{_MOST_SYMBOLS:,} symbols of hashes")
        supports = channel.supports(np.arange(channel.outputs, dtype=np.int32)).reshape(channel.seeds, symbols, size)
        lines = ("".join(f"{y:0{width}}" for y in row) for row in supports.argmax(axis=1).tolist())
        kinds = {"number": "int64", "symbols": "string"}
        hashes = self._constant("ldp_hashes", kinds, map(_converted, enumerate(lines)))
        crossed = counted.join(hashes, "number").cross_join(self._places(_VALUES, self.values))
        return crossed, crossed.symbols.substr(crossed.place * width, width).cast("int64") == crossed.y

    def _possible_hashes(self) -> tuple[Table, int]:
        """Return the sums of each possible hash, its seed as ``number`` and ``y``, and how many symbols there are."""
        channel: Any = self.channel
        counted, (seed, symbol) = self._cells()
        counted = counted.mutate(number=seed, y=symbol)
        possible = counted.number.between(0, channel.seeds - 1) & counted.y.between(0, channel.response.size - 1)
        return self._totalled(counted, possible).filter(possible), channel.response.size

    def _supported(self, crossed: Table, supported: Value) -> Table:
        sums = {name: crossed[name].max() for name in _GROUP}
        weights, squares = (supported.ifelse(crossed[name], self.ibis.literal(0.0)).sum() for name in ("weights", "squares"))
        return crossed.group_by([*self.keys, "place"]).aggregate(weights=weights, squares=squares, **sums)

    def _solved(self, table: Table) -> Table:
        """Return the inversion of a channel by its inverse as a table."""
        operator = operator_of(self.certified.mechanism)
        links = self._links(lambda: operator.inverse)
        joined = table.mutate(s=table.weights / table.total).join(links, table.place == links.report)
        each = joined.group_by([*self.keys, "target"])
        table = each.aggregate(inverted=(joined.s * joined.weight).sum(), **{name: joined[name].max() for name in _GROUP})
        table = table.rename(place="target")
        return table.mutate(inverted=table.inverted / table.inverted.sum().over(self._all())) if operator.scaled else table

    def _links(self, inverted: Callable[[], Any]) -> Table:
        """Return the table of an inverse: its ``weight`` for each report and target."""
        inverse = self._inverse(inverted)
        rows = ((*_converted((y, x)), _number(float(inverse[y, x]))) for y, x in np.ndindex(inverse.shape))
        return self._constant("ldp_inverse", {"report": "int64", "target": "int64", "weight": "float64"}, rows)

    def _inverse(self, inverted: Callable[[], Any]) -> np.ndarray:
        """Return an inverse of the channel, which must not be too large, or too close to none."""
        operator = operator_of(self.certified.mechanism)
        if operator.inputs * operator.outputs > _MOST_CHANCES:
            raise _too_large(f"{_MOST_CHANCES:,} probabilities")
        operator.check_condition()
        return np.asarray(inverted())

    def _projected(self, table: Table) -> Table:
        """Return the nearest distribution, ``inside``, and the rank ``m`` of each value in its group."""
        falling = [self.ibis.desc("inverted"), self.ibis.asc("place")]
        rank = self.ibis.row_number().over(self.ibis.window(group_by=self.keys or None, order_by=falling))
        table = table.mutate(m=rank.cast("float64") + 1, above=table.inverted.sum().over(self._all(*falling)))
        shift = (table.above - 1) / table.m
        table = table.mutate(shift_here=shift, most=(table.inverted > shift).ifelse(table.m, None).max().over(self._all()))
        table = table.mutate(shift=(table.m == table.most).ifelse(table.shift_here, None).max().over(self._all()))
        table = table.mutate(near=(table.m <= table.most).ifelse(table.inverted - table["shift"], self.ibis.literal(0.0)))
        return table.mutate(inside=table.near / table.near.sum().over(self._all()))

    def _moments(self, table: Table) -> Table:
        """Return second moments of what a report adds to a share, ``second``: of those of the value ``own``, of ``other``."""
        if self.votes:
            low, high = self.votes
            own, other = (chance * (1 - chance) / (high - low) ** 2 for chance in (high, low))
            return table.mutate(own=own + 1, other=other, second=(own + 1) * table.inside + other * (1 - table.inside))
        operator = operator_of(self.certified.mechanism)
        chances, inverse, excess = operator.matrix(), np.asarray(operator.inverse), np.asarray(operator.excess)[:, None]
        # of a report of the value ``given``: a - 2 b t + c t^2, if the share of the value ``target`` is t
        terms = np.stack([chances @ each for each in (inverse**2, inverse * excess, np.tile(excess**2, len(chances)))])
        rows = ((*_converted(at), *map(_number, terms[:, *at])) for at in np.ndindex(terms.shape[1:]))
        moments = self._constant("ldp_moments", {"given": "int64", "target": "int64", **dict.fromkeys("abc", "float64")}, rows)
        table = table.mutate(row=self.ibis.row_number().over(self.ibis.window(order_by=[*self.keys, "place"])))
        table = table.mutate(number=table.row.min().over(self._all()))  # a group by a number, as a key may be NULL
        joined = table.select(origin="number", at="place", p="inside").join(moments, self.ibis._.at == moments.given)
        own = joined.given == joined.target
        sums = joined.group_by(["origin", "target"]).aggregate(
            **{f"all_{name}": (joined.p * joined[name]).sum() for name in "abc"},
            **{f"own_{name}": own.ifelse(joined[name], None).max() for name in "abc"},
        )
        table = table.join(sums, [table.number == sums.origin, table.place == sums.target])
        t = table.inside
        second, own = (table[f"{of}_a"] - t * table[f"{of}_b"] * 2 + t * t * table[f"{of}_c"] for of in ("all", "own"))
        table = table.mutate(second=second, own=own)
        return table.mutate(other=(table.second - table.inside * table.own) / self.ibis.greatest(1 - table.inside, 1e-12))

    def _ends(self, table: Table) -> Table:
        """Return standard errors and score intervals, as `ldpsql.inference.score_intervals.score_ends` and `cut` do."""
        greatest = self.ibis.greatest
        table = table.mutate(in_effect=table.total * table.total / table.all_squares, widened=self._widened(table))
        table = table.mutate(
            inverted_std_error=(greatest(table.second - table.inside * table.inside, 0.0) / table.in_effect).sqrt()
            * table.widened,
            shrink=self.z**2 / table.in_effect,
        )
        table = table.mutate(half=table.inverted + table.shrink * (table.own - table.other) / 2, lead=table.shrink + 1)
        inner = table.half * table.half - table.lead * (table.inverted * table.inverted - table.shrink * table.other)
        table = table.mutate(reach=greatest(inner, 0.0).sqrt() / table.lead * table.widened, centre=table.half / table.lead)
        return self._cut(table, "inverted")

    def _widened(self, table: Table) -> Value:
        """Return by which factor weights change standard errors, as `ldpsql.inference.likelihood.of_shares` does."""
        if not self.source.weight:
            return self.ibis.literal(1.0)
        votes, squares = table.weights / table.total, table.squares / table.all_squares
        own, moved = votes * (1 - votes), squares * (1 - 2 * votes) + votes * votes
        return (own > 0).ifelse(self.ibis.greatest(moved / (own > 0).ifelse(own, 1.0), 1e-3), 1.0).sqrt()

    def _cut(self, table: Table, name: str) -> Table:
        """Return the interval of a share, cut to [0, 1], but not to a point, as `score_intervals.cut` does."""
        least, greatest, share = self.ibis.least, self.ibis.greatest, table[name]
        kept = greatest(table.reach, self.z * table[f"{name}_std_error"]) / 2
        low = least(greatest(least(table.centre - table.reach, 1 - kept), 0.0), share)
        high = greatest(least(greatest(table.centre + table.reach, kept), 1.0), share)
        return table.mutate(**{f"{name}_low": low, f"{name}_high": high})

    def _maximum(self, table: Table, votes: tuple[float, float]) -> Table:
        """Return the maximum of the likelihood of k-RR, by water-filling: P(report | value) = low + lift [report = value]."""
        low, lift = votes[0], votes[1] - votes[0]
        nothing, group = self.ibis.literal(0.0), self._all()
        table = table.mutate(s=table.weights / table.total)
        table = table.mutate(above_s=table.s.sum().over(self._all(self.ibis.asc("m"))))
        scale = table.above_s / (table.m * low + lift)
        table = table.mutate(scale_here=scale, last=(table.s > low * scale).ifelse(table.m, None).max().over(group))
        table = table.mutate(scale=(table.m == table["last"]).ifelse(table.scale_here, None).max().over(group))
        table = table.mutate(filled=(table.m <= table["last"]).ifelse((table.s / table.scale - low) / lift, nothing))
        table = table.mutate(estimate=table.filled / table.filled.sum().over(group))
        chance = table.estimate * lift + low
        table = table.mutate(estimate_std_error=(chance * (1 - chance) / table.in_effect).sqrt() / lift * table.widened)
        return self._cut(table, "estimate").rename(
            dict(zip(_MAXIMUM[1:], (f"estimate_{n}" for n in _MAXIMUM[1:]), strict=True))
        )
