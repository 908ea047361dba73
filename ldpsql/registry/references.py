"""What a policy leaves to be computed: domains that are columns of tables or files, and epsilons that are shares of a row's.

A column is read once, when its mechanism is declared; what happens to the table later changes nothing. Rows have no order, so
the values are sorted, unless another column is named that orders them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from duckdb import DuckDBPyConnection

from ldpsql.domains.domain import Domain
from ldpsql.engine.files import files_of, reader
from ldpsql.errors import (
    BadSettings,
    InvalidDomain,
    InvalidEpsilon,
    InvalidSpec,
    LdpError,
    OtherMechanism,
    RowBudgetExceeded,
    SourceRefused,
)
from ldpsql.errors.boundary import of_sql
from ldpsql.mechanisms.base import Mechanism
from ldpsql.mechanisms.spec import decimal_text, number, read_call
from ldpsql.places import Place
from ldpsql.privacy.claims import Claim, Epsilon, MetricLdp
from ldpsql.quoting import quoted

_KEYS = {"table", "file", "column", "order", "fingerprint"}
_FORM = 'write domain = {table = "items", column = "item"}, or {file = "items.parquet", column = "item"}'
_REPAIR = "make a view for the domain: CREATE VIEW domain AS SELECT DISTINCT item FROM items WHERE item IS NOT NULL"


def is_reference(value: object) -> bool:
    """Return whether a parameter is a reference to a column."""
    return isinstance(value, Mapping) and bool({"table", "file", "column"} & value.keys())


def tables_of(spec: object) -> list[str]:
    """Return the tables that a mechanism in the settings refers to."""
    parameters = spec.values() if isinstance(spec, Mapping) else ()
    return [str(value["table"]) for value in parameters if is_reference(value) and "table" in value]


def resolved(value: Any, con: DuckDBPyConnection | None) -> Any:
    """Return the domain that a reference stands for; any other value as it is."""
    if not is_reference(value):
        return value
    if value.keys() - _KEYS or ("table" in value) == ("file" in value) or not all(isinstance(v, str) for v in value.values()):
        raise InvalidDomain("a domain in a table needs the table or the file, and the column", _FORM)
    if "column" not in value:
        raise InvalidDomain("a domain in a table needs the name of its column", _FORM)
    if con is None and "table" in value:
        raise SourceRefused(
            f"the domain is in the table '{value['table']}', and here no database is open",
            "use the mechanism on a connection, such as ldp.m.item(), or put the domain into a Parquet file",
        )
    with duckdb.connect() if con is None else con.cursor() as cursor:
        domain = _domain(_read(cursor, value))
    if value.get("fingerprint", domain.digits) != domain.digits:
        raise OtherMechanism(
            f"the domain in {_place(value)} is not the version that the settings name: {len(domain):,} values",
            f"its fingerprint is now {domain.digits}; give the new version a name of its own",
        )
    return domain


def _read(cursor: DuckDBPyConnection, reference: Mapping[str, str]) -> pa.Array:
    """Return the column of a reference in the order of another column, or sorted."""
    try:
        names = [reference["column"], *([reference["order"]] if "order" in reference else [])]
        if "table" in reference:
            source = cursor.table(reference["table"])
        elif not (place := Place.of(reference["file"])).is_url and not Path(place.text).is_file():
            raise SourceRefused(f"there is no file {reference['file']}", "give its path, relative to ldpsql.toml")
        else:
            place.open_to(cursor)
            kind, files = files_of(cursor, place)
            if kind == "arrow":
                raise SourceRefused("a domain is read from a Parquet, CSV or JSON file", _FORM)
            source = cursor.sql(reader(cursor, kind, files), params=[files])
        table = source.project(", ".join(f"{quoted(name)} AS c{place}" for place, name in enumerate(names))).to_arrow_table()
    except LdpError as error:
        refusal: LdpError = error
    except (duckdb.Error, pa.ArrowException) as error:  # their messages may quote values
        ours = of_sql(error) if isinstance(error, duckdb.Error) else None
        refusal = ours or SourceRefused(f"the column '{reference['column']}' of {_place(reference)} cannot be read", _FORM)
    else:
        column = table.column(table.num_columns - 1)
        return table.column(0).take(pc.sort_indices(column)).combine_chunks()
    raise refusal


def _place(reference: Mapping[str, str]) -> str:
    return (
        f"the table '{reference['table']}'" if "table" in reference else f"the file '{Place.of(reference['file']).path.name}'"
    )


def _domain(column: pa.Array) -> Domain:
    try:
        return Domain.of(column)
    except InvalidDomain as error:
        raise InvalidDomain(
            error.message, _REPAIR if "NULL" in error.message or "twice" in error.message else error.hint
        ) from None


EPSILON_PER_DISTANCE = "epsilon_per_distance"
_STEPS = 10**6  # planned epsilons are rounded down to millionths, so that they never exceed the total


def planned(table: Mapping[str, Any], named: Mapping[str, Any], kinds: Mapping[str, type[Mechanism]]) -> dict[str, Any]:
    """Return the mechanism of each column as the settings write it, with an epsilon for those without one.

    A mechanism ``{mechanism = "krr", share = 0.5, ...}`` gets this share of the total. The other mechanisms without an epsilon
    divide evenly what remains. Those whose epsilon is per unit of distance have a total of their own.

    Args:
        table: the policy in the settings: ``epsilon`` and ``epsilon_per_distance``, the totals of a row, and ``columns``, the
            mechanism of each column as its text, its parameters or its name.
        named: the mechanisms that the settings name.
        kinds: the classes of mechanisms, by name.

    Raises:
        BadSettings: if a total is not a number, a share is not between 0 and 1, or nothing remains.

    """
    columns = table["columns"]
    specs = {column: _parameters(named.get(spec, spec) if isinstance(spec, str) else spec) for column, spec in columns.items()}
    totals = {column: _total_for(kinds.get(spec.get("mechanism", ""))) for column, spec in specs.items()}
    made: dict[str, Any] = {}
    for key in ("epsilon", EPSILON_PER_DISTANCE):
        parts = {column: spec for column, spec in specs.items() if totals[column] == key}
        for column, epsilon in _shared_out(parts, total_of(table, key), key).items():
            made[column] = specs[column] | {"epsilon": epsilon}
    return {
        column: made.get(column) or (named.get(one, one) if isinstance(one, str) else one) for column, one in columns.items()
    }


def _total_for(kind: type[Mechanism] | None) -> str:
    """Return the total that the epsilon of a mechanism is a part of, or '' if it has no such parameter."""
    if kind is None:
        return "epsilon"
    if "epsilon" not in kind.model_fields:
        return ""
    return EPSILON_PER_DISTANCE if kind.per_distance else "epsilon"


def _shared_out(specs: Mapping[str, dict[str, Any]], total: Fraction, key: str) -> dict[str, str]:
    """Return the epsilons of the mechanisms without one: their shares of a total, or even parts of what remains."""
    shares = {column: _share(spec) * total for column, spec in specs.items() if "share" in spec}
    spent = sum(shares.values()) + sum(_epsilon(spec) for spec in specs.values() if "epsilon" in spec)
    even = [column for column, spec in specs.items() if "epsilon" not in spec and column not in shares]
    shares |= dict.fromkeys(even, (total - spent) / max(len(even), 1))
    return {column: _text(share, key) for column, share in shares.items()}


def total_of(table: Mapping[str, Any], key: str) -> Fraction:
    """Return a total of a policy as an exact number."""
    try:
        value = number(table.get(key, 0))
    except ValueError:
        value = Fraction(-1)
    if value < 0 or (key == "epsilon" and not value):
        raise BadSettings(f"{key} in the policy of a table must be a positive number", "for example epsilon = 2")
    return value


def check_total(name: str, table: Mapping[str, Any], claims: Iterable[Claim]) -> None:
    """Refuse claims that add up to more than the totals, as exact numbers: a row has all of its reports."""
    listed = list(claims)
    far = [claim.epsilon.value for claim in listed if isinstance(claim, MetricLdp)]
    near = [claim.epsilon.value for claim in listed if not isinstance(claim, MetricLdp)]
    delta = [claim.delta for claim in listed]
    for key, parts in (("epsilon", near), (EPSILON_PER_DISTANCE, far), ("delta", delta)):
        spent, total = sum(parts, Fraction(0)), total_of(table, key)
        if spent > total:
            both = f"{key} {decimal_text(spent)} on a row, and its total is {decimal_text(total)}"
            raise RowBudgetExceeded(
                f"the columns of [tables.{name}] spend {both}",
                f"lower the {key} of a column, or write a larger {key} into [tables.{name}]",
            )


def _parameters(spec: Any) -> dict[str, Any]:
    """Return the parameters of a mechanism by name, with its name; the first one without a name is epsilon."""
    if isinstance(spec, Mapping):
        return {"mechanism": spec.get("mechanism"), **spec["parameters"]} if "format" in spec else dict(spec)
    name, arguments, parameters = read_call(str(spec))
    if len(arguments) > 1 and "epsilon" not in parameters:
        return {"mechanism": name, "epsilon": arguments[0], "arguments": arguments}
    return {"mechanism": name, **dict(zip(["epsilon"], arguments, strict=False)), **parameters}


def _share(spec: dict[str, Any]) -> Fraction:
    """Take the share out of the parameters of a mechanism and return it."""
    try:
        share = number(spec.pop("share"))
    except ValueError:
        share = Fraction(0)
    if not 0 < share <= 1 or "epsilon" in spec:
        raise BadSettings(
            "a share of the budget must lie above 0 and be at most 1, and stands for an epsilon",
            'for example {mechanism = "krr", share = 0.5, domain = ["a", "b"]}',
        )
    return share


def _epsilon(spec: Mapping[str, Any]) -> Fraction:
    try:
        return Epsilon.parse(spec["epsilon"]).value
    except (InvalidEpsilon, InvalidSpec):
        return Fraction(0)  # the mechanism itself refuses it


def _text(epsilon: Fraction, key: str) -> str:
    millionths = int(epsilon * _STEPS)
    if millionths <= 0:
        raise BadSettings(
            f"nothing of the total {key} remains for a column", "write a larger total, or lower the other columns"
        )
    return decimal_text(Fraction(millionths, _STEPS))
