"""Perturbation inside Polars, after ``import ldpsql.polars``: of a frame, shuffled, or by an expression, in row order.

``frame.ldp.perturb({"city": m})`` draws once and shuffles the rows. ``pl.col("city").ldp.perturb(m)`` works in eager, lazy and
streaming queries and cannot shuffle. Write what it draws once, into a file or a frame: a lazy frame that perturbs draws again
at every ``collect``. One expression object that is used twice in a query is one draw (Polars computes equal expressions once);
two calls of ``perturb`` are two.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from ldpsql.bulk.charging import Charged
from ldpsql.bulk.columns import Columns
from ldpsql.bulk.orders import Order, check_order
from ldpsql.bulk.run import perturb_batches, perturb_once, perturb_uncharged
from ldpsql.bulk.shuffling import permutation
from ldpsql.engine.identity import Identity
from ldpsql.errors.boundary import withheld
from ldpsql.ledger.configured import uncharged
from ldpsql.ledger.permanent import Key
from ldpsql.mechanisms.base import Mechanism, certify
from ldpsql.registry.registry import registry
from ldpsql.registry.tables import check_policies
from ldpsql.reports import type_of


@pl.api.register_dataframe_namespace("ldp")
class LdpFrame:
    """The methods of ldpsql on a frame."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    @withheld
    def perturb(
        self,
        columns: Columns | None = None,
        *,
        policy: str | None = None,
        keep: Iterable[str] = (),
        order: Order = "random",
        charge: Charged = None,
    ) -> pl.DataFrame:
        """Return a new frame of one report for each value.

        Args:
            columns: the mechanism of each column, or one of a row of them; the reports of a column take its place and name.
            policy: the name of a policy in ``ldpsql.toml``, ``[tables.NAME]``, instead of ``columns`` and ``keep``.
            keep: columns whose values pass through. All others are left out.
            order: ``"random"`` puts the rows in a uniformly random order, with the randomness that the reports are drawn with.
                ``"keep"`` keeps their order: choose it only if the position of a row reveals nothing about the values.
            charge: the ledger that is charged before the first draw, or the name of the people, for the ledger of
                ``ldpsql.toml``; each call draws and is charged.

        Raises:
            UnknownName, SourceRefused: if a column is missing.
            BudgetExceeded: if somebody's budget would be exceeded; then nothing is drawn.
            MissingValue, OutsideDomain, WrongType: if a value cannot be perturbed.

        """
        check_order(order)
        return _ordered(perturb_batches(self._frame, columns, policy=policy, keep=keep, charge=charge).read_all(), order)

    @withheld
    def perturb_once(
        self,
        columns: Columns,
        *,
        key: Key | str | Path,
        user: str,
        keep: Iterable[str] = (),
        order: Order = "random",
        charge: Charged = None,
    ) -> pl.DataFrame:
        """Return a new frame of the permanent report of each value; see `ldpsql.perturb_once`, and `perturb` for the order."""
        check_order(order)
        return _ordered(perturb_once(self._frame, columns, key=key, user=user, keep=keep, charge=charge), order)


def _ordered(reports: pa.Table, order: Order) -> pl.DataFrame:
    frame = pl.DataFrame(reports)
    return frame if order == "keep" else frame[np.asarray(permutation(len(frame)))]


@pl.api.register_expr_namespace("ldp")
class LdpNamespace:
    """The expressions of ldpsql."""

    def __init__(self, column: pl.Expr) -> None:
        self._column = column

    def perturb(self, mechanism: Mechanism | str) -> pl.Expr:
        """Draw one report for each value, in the engine's own batches.

        No ledger is charged, because an expression does not know the rows of its frame; ``frame.ldp.perturb`` charges.

        Warns:
            UnchargedReports: once, if ``ldpsql.toml`` names a ledger.

        Raises:
            ComputeError: at collection, with ldpsql's message, if a value cannot be perturbed.

        """
        uncharged()
        read = registry().mechanism(mechanism)
        check_policies(Identity("", ()), {"": read})
        reports = pl.Series(pa.array([], type_of(certify(read).reports))).dtype
        return self._column.map_batches(partial(_perturbed, read), return_dtype=reports, is_elementwise=True)


@withheld
def _perturbed(mechanism: Mechanism, values: pl.Series) -> pl.Series:
    return perturb_uncharged(values, mechanism)
