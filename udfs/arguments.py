"""A mechanism that is given as text, ``krr(1, ['a', 'b'])`` or its name in the settings, as the STRUCT of its constructor.

Macros are created in the order of the names of these files, and those of all the others use the ones here.
"""

from __future__ import annotations

import pyarrow as pa

from ldpsql.functions import Macros, Scalar, as_struct, guarded, hookimpl, plain, read_mechanism


@guarded
def values(texts: pa.ChunkedArray) -> pa.Array:
    """Return the values of the STRUCT of each mechanism, given as text, as JSON."""
    return pa.array([as_struct(read_mechanism(text))[0] for text in plain(texts)], pa.string())


@guarded
def struct_type(texts: pa.ChunkedArray) -> pa.Array:
    """Return the type of the STRUCT of each mechanism, given as text, as JSON."""
    return pa.array([as_struct(read_mechanism(text))[1] for text in plain(texts)], pa.string())


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer the macros with which the others read a mechanism."""
    return [
        Scalar("__ldp_mechanism_values", values, "VARCHAR"),
        Scalar("__ldp_mechanism_type", struct_type, "VARCHAR"),
        Macros.beside(__file__),
    ]
