"""Turns a mechanism that is a string, ``krr(1, ['a', 'b'])`` or a name in the settings, into the STRUCT of its constructor.

Macros are created in the order of the file names, and the macros of all other files use those of this one.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ldpsql.functions import (
    MECHANISMS,
    Column,
    Handles,
    Macros,
    Scalar,
    Settings,
    Texts,
    as_struct,
    guarded,
    hookimpl,
    named_place,
    pattern_of,
    plain,
    read_mechanism,
    values_of,
)
from ldpsql.mechanisms import Product, certify


@guarded
def values(texts: Column) -> pa.Array:
    """Return the values of the STRUCT of each mechanism in a string, as JSON."""
    return pa.array([as_struct(read_mechanism(text))[0] for text in plain(texts)], pa.string())


@guarded
def struct_type(texts: Column) -> pa.Array:
    """Return the type of the STRUCT of each mechanism in a string, as JSON."""
    return pa.array([as_struct(read_mechanism(text))[1] for text in plain(texts)], pa.string())


@guarded
def domain_values(handles: Handles) -> pa.Array:
    """Return for each mechanism its values as text."""
    texts = [certify(MECHANISMS.thing(handle)).values.listed.written for handle in plain(handles).to_pylist()]
    ends = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.concat_arrays(texts) if texts else pa.array([], pa.string()))


@guarded
def column_values(handles: Handles, names: Settings) -> pa.Array:
    """Return for each mechanism the values of a column of its table as text."""
    lists = []
    for handle, name in zip(plain(handles).to_pylist(), plain(names).to_pylist(), strict=True):
        values = values_of(MECHANISMS.thing(handle))
        place = named_place(values, name)
        own = values.parts[place] if isinstance(values, Product) and place is not None else values
        lists.append(own.listed.written.to_pylist())
    return pa.array(lists, pa.list_(pa.string()))


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
        Scalar("__ldp_mechanism_values", values, "VARCHAR"),
        Scalar("__ldp_mechanism_type", struct_type, "VARCHAR"),
        Scalar("__ldp_values", domain_values, "VARCHAR[]"),
        Scalar("__ldp_column_values", column_values, "VARCHAR[]"),
        Macros.beside(__file__),
    ]
