"""The likelihood of some columns of a table, from the reports of all its columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from math import prod

import numpy as np

from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import (
    Floats,
    KeepOrSpreadOperator,
    KhatriRaoOperator,
    KroneckerOperator,
    Operator,
    StackOperator,
    Unreported,
    stacked,
)

Part = tuple[Operator, Floats]  # with the counts of its reports


def margin(likelihood: Likelihood, columns: Sequence[int]) -> Likelihood | None:
    """Return the likelihood of some columns of a table, given by rising numbers; None if the others cannot be left out.

    They can be left out if each report depends on one column only, or is a row and all other rows are alike. It is also None if
    a group has no reports of the columns.
    """
    if not likelihood.variables:  # it is not known which columns the values have
        return None
    chosen = tuple(likelihood.variables[j] for j in columns)
    part = _margin(likelihood.operator, likelihood.counts, [variable.size for variable in likelihood.variables], columns)
    if part is None or not part[1].any(axis=1).all():
        return None
    return Likelihood(*part, chosen[0].layout if len(chosen) == 1 else (), variables=chosen if len(chosen) > 1 else ())


def summed(tables: Floats, shape: Sequence[int], columns: Sequence[int]) -> Floats:
    """Return the margins of tables, shape (groups, cells): sums over all columns but these."""
    others = tuple(1 + j for j in range(len(shape)) if j not in columns)
    return np.asarray(tables.reshape(len(tables), *shape).sum(axis=others).reshape(len(tables), -1))


@singledispatch
def _margin(whole: Operator, counts: Floats, shape: Sequence[int], columns: Sequence[int]) -> Part | None:  # noqa: ARG001
    return None


@_margin.register
def _(whole: KroneckerOperator, counts: Floats, shape: Sequence[int], columns: Sequence[int]) -> Part | None:  # noqa: ARG001
    parts = [whole.parts[j] for j in columns]
    if all(isinstance(part, Unreported) for part in parts):
        return None
    return parts[0] if len(parts) == 1 else KroneckerOperator(parts), summed(counts, whole.reports, columns)


@_margin.register
def _(whole: KhatriRaoOperator, counts: Floats, shape: Sequence[int], columns: Sequence[int]) -> Part | None:  # noqa: ARG001
    some = whole.of_columns(columns)
    return None if some is None else (some, counts)


@_margin.register
def _(whole: KeepOrSpreadOperator, counts: Floats, shape: Sequence[int], columns: Sequence[int]) -> Part | None:
    size = prod(shape[j] for j in columns)
    others = whole.inputs // size  # a row with the same values in these columns is reported for each of their values
    keep = whole.keep + (others - 1) * whole.spread
    return KeepOrSpreadOperator(size, keep, others * whole.spread), summed(counts, shape, columns)


@_margin.register
def _(whole: StackOperator, counts: Floats, shape: Sequence[int], columns: Sequence[int]) -> Part | None:
    ends = np.cumsum([part.outputs for part in whole.parts])[:-1]
    each = [_margin(part, own, shape, columns) for part, own in zip(whole.parts, np.split(counts, ends, axis=1), strict=True)]
    parts = [part for part in each if part is not None]  # the others say nothing about these columns
    if not parts:
        return None
    totals = np.array([own.sum() for _, own in parts])
    if not totals.all():
        return None
    return stacked([part for part, _ in parts], totals / totals.sum()), np.concatenate([own for _, own in parts], axis=1)
