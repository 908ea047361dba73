"""Perturbation, row by row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ldpsql import certify, hookimpl
from ldpsql.channels import Codes
from ldpsql.domain import plain
from ldpsql.handles import MECHANISMS
from ldpsql.sql import Macros, Scalar, guarded


@guarded
def perturb(values: pa.ChunkedArray, handles: pa.ChunkedArray) -> pa.Array:
    """Draw one report for each value; return its position in the alphabet, counted from 1 as SQL lists are."""
    column, handles_by_row = plain(values), plain(handles).to_numpy(zero_copy_only=False)
    if len(column) and (handles_by_row == handles_by_row[0]).all():
        return pa.array(_drawn(column, int(handles_by_row[0])))
    out = np.empty(len(column), dtype=np.int32)
    for handle in np.unique(handles_by_row):  # a mechanism chosen row by row
        rows = np.flatnonzero(handles_by_row == handle)
        out[rows] = _drawn(column.take(pa.array(rows)), int(handle))
    return pa.array(out)


def _drawn(column: pa.Array, handle: int) -> Codes:
    codes = certify(MECHANISMS.thing(handle)).perturb_codes(column)
    codes += 1
    return codes


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.perturb``."""
    return [Scalar("__ldp_perturb", perturb, "INTEGER", volatile=True), Macros.beside(__file__)]
