"""Turns a mechanism that is a string, ``krr(1, ['a', 'b'])`` or a name in the settings, into the STRUCT of its constructor.

Macros are created in the order of the file names, and the macros of all other files use those of this one.
"""

from __future__ import annotations

import pyarrow as pa

from ldpsql.functions import Macros, Scalar, as_struct, guarded, hookimpl, plain, read_mechanism


@guarded
def values(texts: pa.ChunkedArray) -> pa.Array:
    """Return the values of the STRUCT of each mechanism in a string, as JSON."""
    return pa.array([as_struct(read_mechanism(text))[0] for text in plain(texts)], pa.string())


@guarded
def struct_type(texts: pa.ChunkedArray) -> pa.Array:
    """Return the type of the STRUCT of each mechanism in a string, as JSON."""
    return pa.array([as_struct(read_mechanism(text))[1] for text in plain(texts)], pa.string())


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer the macros with which all others read a mechanism."""
    return [
        Scalar("__ldp_mechanism_values", values, "VARCHAR"),
        Scalar("__ldp_mechanism_type", struct_type, "VARCHAR"),
        Macros.beside(__file__),
    ]
