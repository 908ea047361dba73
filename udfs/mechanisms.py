"""SQL constructors of mechanisms, generated from the registry: ``ldp.krr(epsilon, domain)`` returns a STRUCT."""

from __future__ import annotations

import pyarrow as pa

from ldpsql.functions import MECHANISMS, Macros, Registry, Scalar, guarded, hookimpl, numbers, plain, read_mechanism


@guarded
def mechanism_handle(specs: pa.ChunkedArray) -> pa.Array:
    """Return the handle of each mechanism, from the STRUCT that its constructor returns."""
    return pa.array(numbers(plain(specs), lambda spec: MECHANISMS.number(read_mechanism(spec))), pa.int64())


@hookimpl
def ldpsql_functions(known: Registry) -> list[Scalar | Macros]:
    """Offer one constructor for each mechanism, and the function that reads them."""
    text = "\n".join(known.constructors.values())
    return [Scalar("__ldp_mechanism", mechanism_handle, "BIGINT"), Macros(text)]
