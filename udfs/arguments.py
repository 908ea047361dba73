"""Turns a mechanism that is a string, ``krr(1, ['a', 'b'])`` or a name in the settings, into the STRUCT of its constructor.

Macros are created in the order of the file names, and the macros of all other files use those of this one.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa

from ldpsql.engine.files import reading
from ldpsql.engine.forms import drawn_kind, kind_in_type
from ldpsql.engine.sql_struct import as_struct
from ldpsql.errors import InvalidSpec
from ldpsql.functions import (
    SOURCES,
    Column,
    Handles,
    Macros,
    Scalar,
    TextLists,
    Texts,
    by_row,
    guarded,
    hookimpl,
    names_withheld,
    plain,
    python_value,
    read_mechanism,
    struct_scalars,
)
from ldpsql.mechanisms import Domain, InvalidParameter, Mechanism, certify
from ldpsql.registry.agreement import values_type_of

_COLUMN = re.compile(
    r"U?(?:TINY|SMALL|BIG|HUGE)INT|U?INTEGER|DOUBLE|FLOAT|BOOLEAN|BLOB|UUID|INTERVAL|DATE|TIME.*|DECIMAL\(.*|.*\]"
    # A string as DuckDB casts it for an overload: no constant, no $1, and no parameter of a macro that is being created.
    r'|STRUCT\("CAST\((?!""0_macro)[^\'()$]+ AS VARCHAR\)" VARCHAR\)|STRUCT\("ldpsql:.*\)',
    re.DOTALL,
)


_read = struct_scalars("__ldp_mechanism", Column)(read_mechanism)  # of a string


@by_row(Texts, Texts, Column, Texts, returns=pa.string())
def values_type(kind: str | None, text: str | None, of: pa.Scalar, record: str | None) -> str:
    """Return the type of a list of the values of a mechanism, or of the mechanisms of levels, as from_json reads it.

    Args:
        kind: the type of a mechanism, or of a MAP or a STRUCT of mechanisms, in SQL.
        text: the mechanism, if it is text.
        of: the name of a column of a table; anything else stands for the values themselves.
        record: the type of the reports or of their counts, which may record what drew them; NULL if it does not matter.

    """
    if kind is None:
        raise InvalidParameter("the type of a mechanism is NULL", "call a macro of ldp, which passes typeof(m)")
    with names_withheld():
        return json.dumps([values_type_of(kind, text, python_value(of), record)])


@by_row(Texts, returns=pa.string())
def mechanism_kind(kind: str | None) -> str:
    """Return a type, as from_json reads it, if a mechanism may have this type.

    Args:
        kind: the type in SQL; that of a row of a string has the SQL of the string, which DuckDB knows while it binds a
            statement.

    """
    _refuse_columns(kind)
    return '"VARCHAR"'


def _refuse_columns(kind: str | None) -> None:
    if _COLUMN.fullmatch(kind or ""):
        raise InvalidSpec(
            "a column stands in the place of the mechanism",
            "the column comes first, and a macro has brackets: ldp.perturb(city, city())",
        )


@by_row(Texts, Texts, returns=pa.string())
def report_kind(kind: str | None, text: str | None) -> str:
    """Return a type that chooses how reports are drawn, as from_json reads it: that of the ``reports`` of a mechanism.

    Args:
        kind: the type of the mechanism in SQL.
        text: the mechanism if it is text, else NULL.

    """
    _refuse_columns(kind)
    return json.dumps(_kind_of_reports(kind, text))


def _kind_of_reports(kind: str | None, text: str | None) -> Any:
    if text is not None:
        return json.loads(as_struct(read_mechanism(pa.scalar(text)))[1])["reports"]
    return drawn_kind(kind_in_type(kind or ""))


@by_row(Texts, Texts, returns=pa.string())
def shown_type(kind: str | None, text: str | None) -> str:
    """Return the type in which `ldp.channel` shows reports: their own if SQL lists them, else text; see `report_kind`."""
    own = _kind_of_reports(kind, text)
    return json.dumps(own[0] if isinstance(own, list) else own[:-2] if str(own).endswith("[]") else "VARCHAR")


@guarded
def domain_values(handles: Handles) -> pa.Array:
    """Return for each source of reports its values as text."""
    texts = [_behind(handle).written for handle in plain(handles).to_pylist()]
    ends = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.concat_arrays(texts) if texts else pa.array([], pa.string()))


def _behind(handle: int) -> Domain:
    source = SOURCES.thing(handle)
    return (certify(source) if isinstance(source, Mechanism) else source).values.listed


@by_row(Texts, TextLists, returns=pa.string())
def read(table: str | None, here: list[str | None] | None) -> str:
    """Return the query that reads a table, or files without changing a value; ``here`` is what `ldp._here` returns."""
    return "FROM query_table(NULL)" if table is None or here is None else reading(table, here)


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer the macros with which all others read a mechanism."""
    return [
        Scalar("__ldp_reading", read, "VARCHAR"),
        Scalar("__ldp_mechanism_kind", mechanism_kind, "VARCHAR"),
        Scalar("__ldp_report_kind", report_kind, "VARCHAR"),
        Scalar("__ldp_shown_type", shown_type, "VARCHAR"),
        *_read,
        Scalar("__ldp_values_type", values_type, "VARCHAR"),
        Scalar("__ldp_values", domain_values, "VARCHAR[]"),
        Macros.beside(__file__),
    ]
