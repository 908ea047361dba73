"""Perturbation, row by row."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pyarrow as pa

from ldpsql.functions import (
    STATEMENTS,
    CertifiedMechanism,
    InternalError,
    Macros,
    Scalar,
    changing,
    drawing,
    draws_handle,
    guarded,
    hookimpl,
    plain,
)
from ldpsql.mechanisms import HashReports, NotPrivate, PairReports, SetReports, certify


@guarded
def perturb(values: pa.ChunkedArray, handles: pa.ChunkedArray) -> pa.Array:
    """Draw one report for each value; return its position in the alphabet, counted from 1 as SQL lists are."""
    return _each(plain(values), plain(handles), _position, pa.int32())


@guarded
def perturb_words(values: pa.ChunkedArray, handles: pa.ChunkedArray) -> pa.Array:
    """Draw one report made of words for each value: a set of values."""
    return _each(plain(values), plain(handles), CertifiedMechanism.perturb, SetReports.type)


@guarded
def perturb_hashed(values: pa.ChunkedArray, handles: pa.ChunkedArray) -> pa.Array:
    """Draw one report made of a seed and a symbol for each value."""
    return _each(plain(values), plain(handles), CertifiedMechanism.perturb, HashReports.type)


def _position(mechanism: CertifiedMechanism, column: pa.Array) -> pa.Array:
    codes = mechanism.draw(column)
    if isinstance(mechanism.reports, PairReports):
        codes = mechanism.reports.told_apart(codes)
    codes += 1
    return pa.array(codes)


@lru_cache(maxsize=256)
def _repeated(handle: int) -> pa.Array:
    """Return a handle as often as a vector of DuckDB has rows."""
    return pa.array([handle] * 2048, pa.int64())


def _each(
    column: pa.Array, handles: pa.Array, draw: Callable[[CertifiedMechanism, pa.Array], pa.Array], kind: pa.DataType
) -> pa.Array:
    """Draw with the mechanism of each row; nearly always they are all the same."""
    if not len(column):
        return pa.array([], kind)
    first = handles[0].as_py()
    if handles.equals(_repeated(first)[: len(handles)]):
        return draw(certify(drawing(first, len(column))), column)
    by_row = handles.to_numpy(zero_copy_only=False)
    rows = [np.flatnonzero(by_row == handle) for handle in np.unique(by_row)]
    mechanisms = [certify(drawing(int(by_row[at[0]]), len(at))) for at in rows]
    if len({mechanism.values for mechanism in mechanisms}) > 1:
        raise NotPrivate("the domain changes from row to row", "declare one domain; only epsilon may differ between users")
    parts = [draw(mechanism, column.take(pa.array(at))) for mechanism, at in zip(mechanisms, rows, strict=True)]
    back = np.empty(len(column), dtype=np.int64)
    back[np.concatenate(rows)] = np.arange(len(column))
    return pa.concat_arrays(parts).take(pa.array(back))


@guarded
def expression(rows: pa.ChunkedArray) -> pa.Array:
    """Return a new number, as text: DuckDB asks once for each expression of a statement, when it binds it."""
    return pa.array([str(STATEMENTS.number())] * len(rows), pa.string())


@guarded
def same(handles: pa.ChunkedArray, expressions: pa.ChunkedArray, transactions: pa.ChunkedArray) -> pa.Array:
    """Return the handles, if they are the one that this expression has in the whole statement."""
    column = plain(handles)
    distinct = column.unique()
    if len(distinct) > 1:
        raise changing()
    if len(distinct):
        STATEMENTS.check(expressions[0].as_py(), transactions[0].as_py(), distinct[0].as_py())
    return column


@guarded
def draws(handles: pa.ChunkedArray, guards: pa.ChunkedArray) -> pa.Array:
    """Return the handles with which mechanisms draw on connections with these guards; NULL is no guard."""
    told, (guard, *others) = plain(handles).to_numpy(zero_copy_only=False), plain(guards).unique().to_pylist() or [None]
    if others:
        raise InternalError("a catalog has one guard", "do not call functions whose name starts with __ldp")
    known, number = np.unique(told, return_inverse=True)
    return pa.array(np.array([draws_handle(int(handle), guard) for handle in known], np.int64)[number])


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.perturb``."""
    return [
        Scalar("__ldp_expression", expression, "VARCHAR"),
        Scalar("__ldp_same", same, "BIGINT"),
        Scalar("__ldp_draws", draws, "BIGINT"),
        Scalar("__ldp_perturb", perturb, "INTEGER", volatile=True),
        Scalar("__ldp_perturb_words", perturb_words, "UBIGINT[]", volatile=True),
        Scalar("__ldp_perturb_hashed", perturb_hashed, "STRUCT(seed UBIGINT, y UINTEGER)", volatile=True),
        Macros.beside(__file__),
    ]
