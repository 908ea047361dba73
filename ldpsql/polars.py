"""Perturbation inside Polars: ``import ldpsql.polars``, then ``pl.col("city").ldp.perturb(m)``, eager, lazy and streaming.

Perturb once, into a file or a frame: a lazy frame that perturbs draws again at every ``collect``. One expression object that
is used twice in a query is one draw (Polars computes equal expressions once); two calls of ``perturb`` are two.

An expression cannot shuffle: if the order of the rows depends on the values, ``.sample(fraction=1, shuffle=True)`` the frame.
"""

from __future__ import annotations

from functools import partial

import polars as pl
import pyarrow as pa

from ldpsql.bulk import frames
from ldpsql.errors.boundary import withheld
from ldpsql.mechanisms.base import Mechanism, certify
from ldpsql.registry.registry import registry
from ldpsql.reports import type_of


@pl.api.register_expr_namespace("ldp")
class LdpNamespace:
    """The expressions of ldpsql."""

    def __init__(self, column: pl.Expr) -> None:
        self._column = column

    def perturb(self, mechanism: Mechanism | str) -> pl.Expr:
        """Draw one report for each value, in the engine's own batches.

        Raises:
            ComputeError: at collection, with ldpsql's words, where a value cannot be perturbed.

        """
        read = registry().mechanism(mechanism)
        reports = pl.Series(pa.array([], type_of(certify(read).reports))).dtype
        return self._column.map_batches(partial(_perturbed, read), return_dtype=reports, is_elementwise=True)


@withheld
def _perturbed(mechanism: Mechanism, values: pl.Series) -> pl.Series:
    return frames.perturb(values, mechanism)
