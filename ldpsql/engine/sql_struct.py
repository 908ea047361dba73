"""A mechanism written as text becomes the STRUCT that its SQL constructor makes: its values as JSON, and its type.

A macro passes both to DuckDB's from_json, which reads the type while it binds a statement. So reports keep the type of the
domain.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from ldpsql.caches import ByteCache
from ldpsql.domains.columns import struct_parts
from ldpsql.domains.composite import Product
from ldpsql.domains.domain import Domain
from ldpsql.domains.sql_types import sql_type
from ldpsql.engine.arguments import by_row
from ldpsql.engine.functions import Scalar
from ldpsql.errors import InvalidSpec
from ldpsql.mechanisms.base import Mechanism, certify
from ldpsql.mechanisms.certified import Same
from ldpsql.mechanisms.spec import Parts
from ldpsql.quoting import fields_of, items_of, text_literal
from ldpsql.reports import Alphabet, MarkedReports, RowReports

_STRUCTS: ByteCache[Same, tuple[str, str]] = ByteCache(16 << 20)  # a statement reads a mechanism several times
_CONSTRUCTOR = "make the mechanism with its constructor, such as ldp.krr(1, ['a', 'b'])"


def long_domains(mechanism: Mechanism) -> dict[str, Domain]:
    """Return the parameters of a mechanism that are domains with too many values for a list in SQL."""
    parameters = {name: getattr(mechanism, name) for name in type(mechanism).model_fields}
    return {name: value for name, value in parameters.items() if is_long(value)}


def columns_of(mechanism: Mechanism) -> Parts:
    """Return the mechanisms of the columns of a row; none for any other mechanism."""
    columns = getattr(mechanism, "columns", None)
    return columns if isinstance(columns, Parts) else Parts()


def as_struct(mechanism: Mechanism) -> tuple[str, str]:
    """Return the values and the type of a mechanism's STRUCT, both as from_json reads them.

    Raises:
        InvalidSpec: if SQL has no type for the values of the domain.

    """
    return _STRUCTS.remembered(Same(mechanism), lambda same: _as_struct(same.thing))


def struct_scalars(name: str, *kinds: Any) -> Callable[[Callable[..., Mechanism]], list[Scalar]]:
    """Return a decorator that makes of a function of one row, which reads a mechanism, those of its STRUCT.

    ``NAME_values`` and ``NAME_type`` return what `as_struct` does; ``kinds`` are those of `by_row`.
    """

    def scalars(read: Callable[..., Mechanism]) -> list[Scalar]:
        def part(place: int) -> Callable[..., pa.Array]:
            def of_row(*row: Any) -> str:
                return as_struct(read(*row))[place]

            return by_row(*kinds, returns=pa.string())(of_row)

        return [Scalar(f"{name}_{what}", part(place), "VARCHAR") for place, what in enumerate(("values", "type"))]

    return scalars


def _as_struct(mechanism: Mechanism) -> tuple[str, str]:
    made = _of_row(mechanism) if columns_of(mechanism) else _of_values(mechanism)
    values, types = ({name: part[i] for name, part in made.items()} for i in range(2))
    return json.dumps(values), json.dumps(types)


def struct_sql(mechanism: Mechanism) -> str:
    """Return SQL for a mechanism's STRUCT."""
    return "from_json({}, {})".format(*map(text_literal, as_struct(mechanism)))


def _of_row(mechanism: Mechanism) -> dict[str, tuple[Any, Any]]:
    """Return the values and the types of the fields of a row's mechanism; the domain is an empty list of its type."""
    each = {part.column: [json.loads(text) for text in as_struct(part.mechanism)] for part in columns_of(mechanism)}
    columns = ({name: pair[0] for name, pair in each.items()}, {name: pair[1] for name, pair in each.items()})
    return {
        mechanism.kind: (mechanism.name, "VARCHAR"),
        "columns": columns,
        "domain": ([], [json.loads(values_type(columns_of(mechanism)))]),
        "reports": ({RowReports.mark: reports_type(columns_of(mechanism))}, {RowReports.mark: "VARCHAR"}),
    }


def values_type(parts: Parts | Product) -> str:
    """Return the type of the rows of some columns, as from_json reads it."""
    if isinstance(parts, Product):
        return json.dumps({name: _sql_type(part.values.type) for name, part in zip(parts.names, parts.parts, strict=True)})
    return json.dumps({part.column: _sql_type(certify(part.mechanism).values.listed.values.type) for part in parts})


def domain_type(domain: Domain) -> str:
    """Return the type of the values of a domain, as from_json reads it."""
    return values_type(domain) if isinstance(domain, Product) else json.dumps(_column(domain.values[:1])[1][0])


def reports_type(parts: Parts | Product) -> str:
    """Return the type of the reports of some columns, as from_json reads it."""
    if isinstance(parts, Product):  # reports are rows
        return values_type(parts)
    return json.dumps({part.column: _report_type(certify(part.mechanism).reports) for part in parts})


def _report_type(alphabet: Alphabet) -> str:
    if isinstance(alphabet, MarkedReports):
        return alphabet.sql_type
    if isinstance(alphabet, Domain):
        return _sql_type(alphabet.values.type)
    raise InvalidSpec("SQL has no type for these reports in a row", _CONSTRUCTOR)


def _of_values(mechanism: Mechanism) -> dict[str, tuple[Any, Any]]:
    """Return the values and the types of the fields of any other mechanism."""
    long = long_domains(mechanism)
    plain = mechanism.given(without=long).items()
    made = {
        mechanism.kind: (mechanism.name, "VARCHAR"),
        **{name: _parameter(getattr(mechanism, name), value) for name, value in plain},
        **{name: _empty(domain) for name, domain in long.items()},
        "domain": _listed(mechanism.values().listed, pinned=bool(long) or "domain" not in type(mechanism).model_fields),
        "reports": _reports(mechanism.alphabet(), pinned=bool(long)),
    }
    if long:
        made["pinned"] = {name: pin(domain) for name, domain in long.items()}, dict.fromkeys(long, "VARCHAR")
    return made


def _listed(domain: Domain, *, pinned: bool) -> tuple[Any, Any]:
    """Return the values of a domain; if domains of the mechanism are pinned, a long one as an empty list of its type."""
    if isinstance(domain, Product):
        return [], [json.loads(values_type(domain))]
    return _empty(domain) if pinned and is_long(domain) else _column(domain.values)


def _empty(domain: Domain) -> tuple[Any, Any]:
    return [], _column(domain.values[:1])[1]


def _parameter(own: Any, plain: Any) -> tuple[Any, Any]:
    """Return the value and the type of a parameter; anything but a domain is passed as text, as a constructor does."""
    if isinstance(own, Product):
        each = {name: _column(part.values) for name, part in zip(own.names, own.parts, strict=True)}
        return {name: pair[0] for name, pair in each.items()}, {name: pair[1] for name, pair in each.items()}
    if isinstance(own, Domain):
        return _column(own.values)
    if isinstance(plain, list | tuple):
        items = [_parameter(None, item) for item in plain]
        return [value for value, _ in items], [items[0][1]] if items else ["VARCHAR"]
    return str(plain), "VARCHAR"


def _reports(alphabet: Alphabet, *, pinned: bool) -> tuple[Any, Any]:
    """Return the value and the type of the field ``reports``: a list, or a mark if there are too many reports for one."""
    if isinstance(alphabet, Product):
        return {RowReports.mark: reports_type(alphabet)}, {RowReports.mark: "VARCHAR"}
    if isinstance(alphabet, Domain):
        return _listed(alphabet, pinned=pinned)
    if isinstance(alphabet, MarkedReports):
        return {alphabet.mark: 1}, {alphabet.mark: "INTEGER"}
    if isinstance(alphabet, RowReports):
        raise InvalidSpec("SQL has no list of these reports", _CONSTRUCTOR)
    return _column(alphabet.distinct())


def _column(values: pa.Array) -> tuple[Any, Any]:
    """Return a list of values as text, and the type of the list."""
    if not pa.types.is_struct(values.type):
        return values.cast(pa.string()).to_pylist(), [_sql_type(values.type)]
    names = values.type.names
    parts = [_column(part) for part in struct_parts(values)]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*(texts for texts, _ in parts), strict=True)]
    return rows, [{name: kind for name, (_, [kind]) in zip(names, parts, strict=True)}]


def _sql_type(kind: pa.DataType) -> str:
    name = sql_type(kind)
    if name is None:
        raise InvalidSpec(f"SQL has no values of the type {kind}", _CONSTRUCTOR)
    return name


def type_of_values(text: str, of: object) -> Any:
    """Return the type of the values of a mechanism, or of a column of its table or some of them, as from_json reads it.

    Args:
        text: the type of the STRUCT of a mechanism in SQL, or of a MAP or a STRUCT of the mechanisms of levels.
        of: the name of the column, or a list of names; anything else stands for the values themselves.

    """
    if text.startswith("MAP("):
        return type_of_values(items_of(text), of)
    fields = fields_of(text) if text.startswith("STRUCT(") else {"domain": text}  # levels whose mechanisms are text: as text
    if "domain" not in fields:
        return type_of_values(next(iter(fields.values())), of)
    own = fields["domain"].removesuffix("[]")
    return of_columns_named(fields_of(own), of) or own if own.startswith("STRUCT(") else own


def of_columns_named(kinds: Mapping[str, Any], of: object) -> Any:
    """Return the type of a column of a table, or those of a list of columns by their names; None if ``of`` is neither."""
    folded = {name.casefold(): (name, kind) for name, kind in kinds.items()}
    if isinstance(of, list):
        return dict(folded[name.casefold()] for name in of if isinstance(name, str) and name.casefold() in folded)
    return folded.get(of.casefold(), (None, None))[1] if isinstance(of, str) else None


# Long domains, kept in this process under their fingerprint.
#
# A list in a SQL expression is handled again for every vector of 2,048 rows. So a mechanism in SQL carries an empty list and
# the fingerprint instead, and Python reads the values here. They are kept as long as the process lives: a prepared statement
# may hold the fingerprint.

LONG = 4096  # values; a domain with fewer is a list in SQL

_PINNED: dict[str, Domain] = {}


def is_long(value: object) -> bool:
    """Return whether a parameter is a domain with too many values for a list in SQL."""
    return isinstance(value, Domain) and not isinstance(value, Product) and len(value) > LONG


def pin(domain: Domain) -> str:
    """Keep a domain, and return its fingerprint."""
    _PINNED.setdefault(domain.digits, domain)
    return domain.digits


def pinned(fingerprint: object) -> Domain:
    """Return the domain with a fingerprint."""
    if not isinstance(fingerprint, str) or fingerprint not in _PINNED:
        raise InvalidSpec(
            "this mechanism was declared in another process, and its domain is not known here",
            "declare it again, with SELECT ldp.declare(name, mechanism) or in ldpsql.toml",
        )
    return _PINNED[fingerprint]
