"""Perturbation, row by row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ldpsql import certify, hookimpl
from ldpsql.domain import plain
from ldpsql.errors import NotPrivate
from ldpsql.handles import MECHANISMS
from ldpsql.mechanism import CertifiedMechanism
from ldpsql.reports import PairReports
from ldpsql.sql import Macros, Scalar, guarded


@guarded
def perturb(values: pa.ChunkedArray, handles: pa.ChunkedArray) -> pa.Array:
    """Draw one report for each value; return its position in the alphabet, counted from 1 as SQL lists are."""
    return _each(plain(values), plain(handles), _position, pa.int32())


@guarded
def perturb_words(values: pa.ChunkedArray, handles: pa.ChunkedArray) -> pa.Array:
    """Draw one report made of words for each value: a set of values."""
    return _each(plain(values), plain(handles), CertifiedMechanism.perturb, pa.list_(pa.uint64()))


@guarded
def perturb_hashed(values: pa.ChunkedArray, handles: pa.ChunkedArray) -> pa.Array:
    """Draw one report made of a seed and a symbol for each value."""
    kind = pa.struct([("seed", pa.uint64()), ("y", pa.uint32())])
    return _each(plain(values), plain(handles), CertifiedMechanism.perturb, kind)


def _position(mechanism: CertifiedMechanism, column: pa.Array) -> pa.Array:
    codes = mechanism.draw(column)
    if isinstance(mechanism.reports, PairReports):
        codes = mechanism.reports.told_apart(codes)
    codes += 1
    return pa.array(codes)


def _each(
    column: pa.Array, handles: pa.Array, draw: Callable[[CertifiedMechanism, pa.Array], pa.Array], kind: pa.DataType
) -> pa.Array:
    """Draw with the mechanism of each row; nearly always they are all the same."""
    by_row = handles.to_numpy(zero_copy_only=False)
    if not len(column):
        return pa.array([], kind)
    if (by_row == by_row[0]).all():
        return draw(certify(MECHANISMS.thing(int(by_row[0]))), column)
    rows = [np.flatnonzero(by_row == handle) for handle in np.unique(by_row)]
    mechanisms = [certify(MECHANISMS.thing(int(by_row[at[0]]))) for at in rows]
    if len({mechanism.values for mechanism in mechanisms}) > 1:
        raise NotPrivate("the domain changes from row to row", "declare one domain; only epsilon may differ between users")
    parts = [draw(mechanism, column.take(pa.array(at))) for mechanism, at in zip(mechanisms, rows, strict=True)]
    back = np.empty(len(column), dtype=np.int64)
    back[np.concatenate(rows)] = np.arange(len(column))
    return pa.concat_arrays(parts).take(pa.array(back))


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.perturb``."""
    return [
        Scalar("__ldp_perturb", perturb, "INTEGER", volatile=True),
        Scalar("__ldp_perturb_words", perturb_words, "UBIGINT[]", volatile=True),
        Scalar("__ldp_perturb_hashed", perturb_hashed, "STRUCT(seed UBIGINT, y UINTEGER)", volatile=True),
        Macros.beside(__file__),
    ]
