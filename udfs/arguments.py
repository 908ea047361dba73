"""Turns a mechanism that is a string, ``krr(1, ['a', 'b'])`` or a name in the settings, into the STRUCT of its constructor.

Macros are created in the order of the file names, and the macros of all other files use those of this one.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa

from ldpsql.functions import (
    SOURCES,
    Column,
    Handles,
    InvalidSpec,
    Macros,
    Scalar,
    Texts,
    as_struct,
    drawn_kind,
    guarded,
    hookimpl,
    kind_in_type,
    names_withheld,
    pattern_of,
    plain,
    python_value,
    read_mechanism,
    values_type_of,
)
from ldpsql.mechanisms import Domain, InvalidParameter, Mechanism, certify

_COLUMN = re.compile(
    r"U?(?:TINY|SMALL|BIG|HUGE)INT|U?INTEGER|DOUBLE|FLOAT|BOOLEAN|BLOB|UUID|INTERVAL|DATE|TIME.*|DECIMAL\(.*|.*\]"
    # A string as DuckDB casts it for an overload: no constant, no $1, and no parameter of a macro that is being created.
    r'|STRUCT\("CAST\((?!""0_macro)[^\'()$]+ AS VARCHAR\)" VARCHAR\)|STRUCT\("ldpsql:.*\)',
    re.DOTALL,
)


@guarded
def values(texts: Column) -> pa.Array:
    """Return the values of the STRUCT of each mechanism in a string, as JSON."""
    return pa.array([as_struct(read_mechanism(text))[0] for text in plain(texts)], pa.string())


@guarded
def struct_type(texts: Column) -> pa.Array:
    """Return the type of the STRUCT of each mechanism in a string, as JSON."""
    return pa.array([as_struct(read_mechanism(text))[1] for text in plain(texts)], pa.string())


@guarded
def values_type(types: Texts, texts: Texts, ofs: Column, records: Texts) -> pa.Array:
    """Return the type of a list of the values of each mechanism, or of the mechanisms of levels, as from_json reads it.

    Args:
        types: the type of a mechanism, or of a MAP or a STRUCT of mechanisms, in SQL.
        texts: the mechanism, if it is text.
        ofs: the name of a column of a table; anything else stands for the values themselves.
        records: the types of the reports or of their counts, which may record what drew them; NULL if they do not matter.

    """
    if types.null_count:
        raise InvalidParameter("the type of a mechanism is NULL", "call a macro of ldp, which passes typeof(m)")
    columns = map(plain, (types, texts, ofs, records))
    rows = zip(*([python_value(value) for value in column] for column in columns), strict=True)
    with names_withheld():
        return pa.array([json.dumps([values_type_of(*row)]) for row in rows], pa.string())


@guarded
def mechanism_kind(kinds: Texts) -> pa.Array:
    """Return a type, as from_json reads it, if a mechanism may have each of these types.

    Args:
        kinds: the types in SQL; that of a row of a string has the SQL of the string, which DuckDB knows while it binds a
            statement.

    """
    for kind in plain(kinds).to_pylist():
        if _COLUMN.fullmatch(kind or ""):
            raise InvalidSpec(
                "a column stands in the place of the mechanism",
                "the column comes first, and a macro has brackets: ldp.perturb(city, city())",
            )
    return pa.array(['"VARCHAR"'] * len(kinds), pa.string())


@guarded
def report_kind(types: Texts, texts: Texts) -> pa.Array:
    """Return a type that chooses how reports are drawn, as from_json reads it: that of the ``reports`` of each mechanism.

    Args:
        types: the types of the mechanisms in SQL.
        texts: the mechanisms that are text; NULL for any other.

    """
    mechanism_kind(types)
    rows = zip(plain(types).to_pylist(), plain(texts), strict=True)
    return pa.array([json.dumps(_kind_of_reports(*row)) for row in rows], pa.string())


def _kind_of_reports(type_in_sql: str | None, text: pa.Scalar) -> Any:
    if text.is_valid:
        return json.loads(as_struct(read_mechanism(text))[1])["reports"]
    return drawn_kind(kind_in_type(type_in_sql or ""))


@guarded
def shown_type(types: Texts, texts: Texts) -> pa.Array:
    """Return the type in which `ldp.channel` shows reports: their own if SQL lists them, else text; see `report_kind`."""
    rows = zip(plain(types).to_pylist(), plain(texts), strict=True)
    kinds = [_kind_of_reports(*row) for row in rows]
    shown = [kind[0] if isinstance(kind, list) else kind[:-2] if str(kind).endswith("[]") else "VARCHAR" for kind in kinds]
    return pa.array(map(json.dumps, shown), pa.string())


@guarded
def domain_values(handles: Handles) -> pa.Array:
    """Return for each source of reports its values as text."""
    texts = [_behind(handle).written for handle in plain(handles).to_pylist()]
    ends = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.concat_arrays(texts) if texts else pa.array([], pa.string()))


def _behind(handle: int) -> Domain:
    source = SOURCES.thing(handle)
    return (certify(source) if isinstance(source, Mechanism) else source).values.listed


@guarded
def place(tables: Texts) -> pa.Array:
    """Return what ``query_table`` takes for each table: the pattern of the Parquet files in a folder; any other name as it is.

    Only a path with a separator is looked up, so a folder never hides a table.
    """
    names = plain(tables).to_pylist()
    return pa.array([pattern_of(name) if name is not None and "/" in name else name for name in names], pa.string())


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer the macros with which all others read a mechanism."""
    return [
        Scalar("__ldp_place", place, "VARCHAR"),
        Scalar("__ldp_mechanism_kind", mechanism_kind, "VARCHAR"),
        Scalar("__ldp_report_kind", report_kind, "VARCHAR"),
        Scalar("__ldp_shown_type", shown_type, "VARCHAR"),
        Scalar("__ldp_mechanism_values", values, "VARCHAR"),
        Scalar("__ldp_mechanism_type", struct_type, "VARCHAR"),
        Scalar("__ldp_values_type", values_type, "VARCHAR"),
        Scalar("__ldp_values", domain_values, "VARCHAR[]"),
        Macros.beside(__file__),
    ]
