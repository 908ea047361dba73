"""Permanent reports: the same person with the same value gives the same report."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ldpsql.functions import (
    GUARDS,
    CertifiedMechanism,
    Drawn,
    KeyUnusable,
    Macros,
    Scalar,
    drawing,
    guarded,
    hookimpl,
    id_bytes,
    plain,
)
from ldpsql.mechanisms import HashReports, InvalidParameter, SetReports, certify


@guarded
def once(*columns: pa.ChunkedArray) -> pa.Array:
    """Return the position of the permanent report of each row, counted from 1."""
    return _each(columns, lambda _, drawn: pa.array(drawn + np.int32(1)), pa.int32())


@guarded
def once_words(*columns: pa.ChunkedArray) -> pa.Array:
    """Return the permanent reports where they are made of words."""
    return _each(columns, CertifiedMechanism.shown, SetReports.type)


@guarded
def once_hashed(*columns: pa.ChunkedArray) -> pa.Array:
    """Return the permanent reports where they are a seed and a symbol."""
    return _each(columns, CertifiedMechanism.shown, HashReports.type)


def _each(
    columns: tuple[pa.ChunkedArray, ...], shown: Callable[[CertifiedMechanism, Drawn], pa.Array], kind: pa.DataType
) -> pa.Array:
    values, people, names, handles, guards = map(plain, columns)
    if not len(values):
        return pa.array([], kind)
    chosen = {tuple(row) for row in zip(names.to_pylist(), handles.to_pylist(), guards.to_pylist(), strict=True)}
    if len(chosen) > 1:
        raise InvalidParameter("mechanism and column_name of perturb_once must not change from row to row")
    ((name, handle, number),) = chosen
    key = None if number is None else GUARDS.thing(number).key
    if key is None:
        hint = "in Python ldpsql.attach(con, key='people.key'); for ldpsql sql, key below [ledger] in ldpsql.toml"
        raise KeyUnusable("this connection has no key for permanent reports", hint)
    if not isinstance(name, str):
        raise InvalidParameter("column_name must be the name of the column", "it keeps columns with one mechanism apart")
    mechanism = certify(drawing(handle, len(values)))
    return shown(mechanism, key.draw(mechanism, values, id_bytes(people), name))


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.perturb_once``."""
    return [
        Scalar("__ldp_once", once, "INTEGER", volatile=True, draws_again=False),
        Scalar("__ldp_once_words", once_words, "UBIGINT[]", volatile=True, draws_again=False),
        Scalar("__ldp_once_hashed", once_hashed, "STRUCT(seed UBIGINT, y UINTEGER)", volatile=True, draws_again=False),
        Macros.beside(__file__),
    ]
