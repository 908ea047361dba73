"""The methods of frames, lazy frames and expressions of Polars: ``frame.ldp``, ``pl.col("city").ldp``.

``frame.ldp.perturb({"city": m})`` draws once and shuffles the rows. ``pl.col("city").ldp.perturb(m)`` works in eager, lazy and
streaming queries and cannot shuffle. Write what it draws once, into a file or a frame: a lazy frame that perturbs draws again
at every ``collect``. One expression object that is used twice in a query is one draw (Polars computes equal expressions once);
two calls of ``perturb`` are two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, overload

import numpy as np
import polars as pl
import pyarrow as pa

from ldpsql.bulk.charging import Charged
from ldpsql.bulk.columns import Columns
from ldpsql.bulk.frames import estimate
from ldpsql.bulk.orders import Order, check_order, permutation
from ldpsql.bulk.run import perturb_batches, perturb_once
from ldpsql.domains.columns import column_of
from ldpsql.engine.identity import Identity
from ldpsql.errors import of_column
from ldpsql.errors.boundary import withheld
from ldpsql.estimates.estimate import Estimate
from ldpsql.estimates.shown import Rows
from ldpsql.estimators.base import Estimator
from ldpsql.ledger.guard import uncharged
from ldpsql.ledger.permanent import Key
from ldpsql.mechanisms.base import Mechanism, certify
from ldpsql.registry.registry import registry
from ldpsql.registry.tables import check_policies
from ldpsql.reports import type_of


class LdpFrame:
    """The methods of ldpsql on a frame, or a lazy frame, which they collect once."""

    def __init__(self, frame: pl.DataFrame | pl.LazyFrame) -> None:
        self._lazy = frame

    @property
    def _frame(self) -> pl.DataFrame:
        return self._lazy.lazy().collect(engine="streaming")

    @overload
    def estimate(
        self,
        mechanism: Mechanism | str | None = None,
        estimator: Estimator | str | None = None,
        *,
        column: str | Sequence[str] | None = None,
    ) -> Estimate: ...

    @overload
    def estimate(
        self,
        mechanism: Mechanism | str | None = None,
        estimator: Estimator | str | None = None,
        *,
        column: str | Sequence[str] | None = None,
        by: str | Sequence[str] = (),
        question: str | None = None,
        **arguments: Any,
    ) -> Rows: ...

    @withheld
    def estimate(self, *arguments: Any, **options: Any) -> Estimate | Rows:
        """Estimate the values behind a column of reports, or answer a question about them; see `ldpsql.estimate`."""
        return estimate(self._lazy, *arguments, **options)

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


_GROUP = "ldp group"  # no field of an answer has this name


def _ordered(reports: pa.Table, order: Order) -> pl.DataFrame:
    frame = pl.DataFrame(reports)
    return frame if order == "keep" else frame[np.asarray(permutation(len(frame)))]


class LdpExpr:
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
        return self._column.map_batches(partial(_perturbed, read), return_dtype=_reports(read).dtype, is_elementwise=True)

    @withheld
    def estimate(
        self,
        mechanism: Mechanism | str,
        estimator: Estimator | str | None = None,
        *,
        question: str | None = None,
        **arguments: Any,
    ) -> pl.Expr:
        """Estimate the values behind the reports of each group, in ``frame.group_by(...).agg(...)`` or in ``select``.

        Returns:
            An expression: for each group a list of structs of the value, its estimate, std_error, low, high, and the number of
            reports n, for ``explode`` and ``unnest``. For a question, what its function returns in SQL: a struct or a list.

        """
        read = registry().mechanism(mechanism)
        answer: Callable[..., Any] = partial(
            estimate, mechanism=read, estimator=estimator, by=_GROUP, question=question, **arguments
        )
        known = registry().questions.get(question or "")
        fields = answer(pl.DataFrame({_GROUP: [], "report": _reports(read)})).to_polars().drop(_GROUP).schema
        kind = pl.Struct(fields) if known and not known.is_list(arguments) else pl.List(pl.Struct(fields))
        # a list for each group, so that one call estimates all
        return self._column.implode().map_batches(partial(_estimated, answer, kind), return_dtype=kind, is_elementwise=True)


def _reports(mechanism: Mechanism) -> pl.Series:
    """Return no reports, in their type."""
    return pl.Series(pa.array([], type_of(certify(mechanism).reports)))


@withheld
def _perturbed(mechanism: Mechanism, values: pl.Series) -> pl.Series:
    with of_column(values.name):
        return pl.Series(values.name, certify(mechanism).perturb(column_of(values)))


@withheld
def _estimated(answer: Callable[..., Any], kind: pl.DataType, groups: pl.Series) -> pl.Series:
    """Return what SQL returns for each list of reports: NULL for one without reports."""
    reports = pl.DataFrame({_GROUP: np.arange(len(groups)), "report": groups}).explode("report")
    rows = answer(reports.drop_nulls("report")).to_polars() if reports["report"].count() else pl.DataFrame()
    if not len(rows):
        return pl.Series([None] * len(groups), dtype=kind)
    structs = rows.select(_GROUP, answer=pl.struct(pl.exclude(_GROUP)))
    one = pl.col("answer") if isinstance(kind, pl.List) else pl.col("answer").first()
    each = structs.group_by(_GROUP, maintain_order=True).agg(one)
    return pl.DataFrame({_GROUP: np.arange(len(groups))}).join(each, on=_GROUP, how="left")["answer"].cast(kind)
