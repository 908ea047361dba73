"""What is made of estimates: distances, rows that are drawn from one, and what groups have in common, learned from all."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from ldpsql.domains.columns import family
from ldpsql.engine.groups import answering, in_order, learnt_from, learnt_from_order, with_prior
from ldpsql.estimates.simulated import drawn_cells, weights
from ldpsql.estimators import Estimator, InvalidParameter, sharing
from ldpsql.functions import (
    MECHANISMS,
    Column,
    Handles,
    Lists,
    Macros,
    Scalar,
    Settings,
    Texts,
    Wholes,
    by_row,
    guarded,
    hookimpl,
    names_withheld,
    one_thread,
    plain,
    python_value,
    registry,
)
from ldpsql.questions import NUMBERS, Estimates, Kind, Lines, Margin, Question, Source, distances
from ldpsql.registry.agreement import values_type_of
from ldpsql.registry.handles import ASKED


@by_row(Column, Column, Texts, Wholes, Settings, returns=pa.float64())
def distance(p: pa.Scalar, q: pa.Scalar, metric: str | None, handle: int | None, power: Any) -> float | None:
    """Return the distance of two distributions; NULL if one of them is NULL."""
    if not (p.is_valid and q.is_valid):
        return None
    if None not in (_values(p), _values(q)) and _values(p) != _values(q):
        raise InvalidParameter("these are estimates over different values", "compare estimates of one mechanism's domain")
    mechanism = None if handle is None else MECHANISMS.thing(handle)
    if isinstance(power, bool) or not isinstance(power, int | float | Decimal):
        raise InvalidParameter("power must be a number of at least 1", "1 gives the earth mover's distance")
    return distances.distance(metric or "", _shares(p), _shares(q), mechanism, float(power))


def _values(distribution: pa.Scalar) -> list[Any] | None:
    """Return the values of an estimate; None for a plain list."""
    items = distribution.values if isinstance(distribution, pa.ListScalar) else pa.nulls(0)
    has_values = pa.types.is_struct(items.type) and items.type.get_field_index("value") >= 0
    return [python_value(value) for value in items.field("value")] if has_values else None


def _shares(distribution: pa.Scalar) -> np.ndarray:
    """Return the numbers of a list, or the shares of an estimate."""
    items = distribution.values if isinstance(distribution, pa.ListScalar) else pa.nulls(0)
    if pa.types.is_struct(items.type) and items.type.get_field_index("estimate") >= 0:
        items = items.field("estimate")
    if family(items.type) != "number" or items.null_count:
        raise InvalidParameter("a distance needs two lists of equally many finite numbers", "pass the estimates, without NULL")
    return np.asarray(items.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))


# Rows that are drawn from an estimate.


@by_row(Lists, Settings, returns=pa.list_(pa.int64()))
def synthesized(estimate: pa.ListScalar, number: int | None) -> pa.Array:
    """Return which of the rows of an estimate are drawn, counted from 1."""
    rows = getattr(estimate, "values", None)  # a NULL without a type has none
    if rows is None or not pa.types.is_struct(rows.type):
        raise InvalidParameter("there is no estimate to draw rows from", "the table is empty")
    return drawn_cells(weights(rows), -1 if number is None else number) + 1


_PRIOR = pa.struct([(name, pa.list_(pa.float64())) for name in sharing.Prior.__dataclass_fields__])
_RUNS = pa.struct([("runs", pa.list_(pa.int32())), ("priors", pa.list_(_PRIOR))])


@by_row(Handles, returns=pa.bool_())
def learns(plan: int) -> bool:
    """Return whether the estimator of a plan has to learn from all groups first."""
    return ASKED.thing(plan).estimator.needs_groups


@by_row(Texts, returns=pa.bool_())
def borrows(name: str | None) -> bool:
    """Return whether an estimator shares anything between groups; one that is not named does not."""
    return _borrows(name)


def _borrows(name: str | None) -> bool:
    with names_withheld():
        return name is not None and registry().estimator(name).borrows


@by_row(Texts, Texts, Texts, returns=pa.string())
def shares_type(kind: str, text: str | None, estimator: str | None) -> str:
    """Return the type of the shares of a group, as from_json reads it, with what an estimator borrows from other groups."""
    with names_withheld():
        fields = {"value": values_type_of(kind, text, None, None), **dict.fromkeys(NUMBERS, "DOUBLE"), "n": "BIGINT"}
    return json.dumps([fields | ({"borrowed": "DOUBLE"} if _borrows(estimator) else {})])


@guarded
@one_thread
def learn(groups: Lists, pooled: Column, plans: Wholes) -> pa.Array:
    """Return the prior of each list of counts of groups; NULL if it is empty.

    ``pooled`` are the counts of all groups together, if the lists hold only some of them; NULL if they hold all. The handle
    of what is asked is NULL if there are no rows.

    Raises:
        InvalidParameter: if the estimator does not learn from groups.

    """
    lists, totals = plain(groups), plain(pooled)
    rows = zip(range(len(lists)), plain(plans).to_pylist(), strict=True)
    return pa.array([_learnt(lists[row], totals[row], handle) for row, handle in rows], _PRIOR)


def _learnt(groups: pa.ListScalar, pooled: pa.Scalar, handle: int | None) -> Any:
    if not groups.is_valid:
        return None
    source, estimator = _of(handle)
    if not estimator.needs_groups:
        raise InvalidParameter(f"{estimator.name} has nothing to learn from all groups", "for example estimator := 'shared'")
    learned = learnt_from(source, groups.values, estimator, pooled if pooled.is_valid else None)
    return learned and learned.given()["prior"]


def _of(handle: int | None) -> tuple[Source, Estimator]:
    asked = ASKED.thing(handle)
    return asked.source, asked.estimator


@guarded
@one_thread
def learn_in_order(groups: Lists, plans: Handles, keys: Column) -> pa.Array:
    """Return the run of each group of lists of counts in order, and the priors of the runs; NULL for no group.

    ``keys`` are one key of each list, whose type says whether the order of groups has a meaning.
    """
    lists, ordered = plain(groups), in_order(keys.type)
    rows = zip(range(len(lists)), plain(plans).to_pylist(), strict=True)
    return pa.array([_in_order(lists[row], handle, ordered=ordered) for row, handle in rows], _RUNS)


def _in_order(groups: pa.ListScalar, handle: int, *, ordered: bool) -> Any:
    if not groups.is_valid:
        return None
    if not ordered:
        return {"runs": [0] * len(groups.values), "priors": [_learnt(groups, pa.scalar(None), handle)]}
    runs, estimators = learnt_from_order(_of(handle)[0], groups.values, _of(handle)[1])
    return {"runs": runs, "priors": [estimator.given()["prior"] for estimator in estimators]}


@guarded
def learnt(handles: Handles, runs: Wholes, priors: Column) -> pa.Array:
    """Return the handle of each question with the prior of its run, if there are any; all ask the same question."""
    learned = plain(priors)
    if learned.null_count == len(learned):
        return plain(handles)
    run = plain(runs).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    _, first, place = np.unique(run, return_index=True, return_inverse=True)
    asked = ASKED.thing(handles[0].as_py())
    estimators = [with_prior(asked.estimator, learned[row].as_py()) for row in first.tolist()]
    made = [ASKED.number(replace(asked, estimator=estimator)) for estimator in estimators]
    return pa.array(np.array(made, dtype=np.int64)[place])


class Borrowing(Question):
    """The share of every value, with what each group borrowed: what ``FROM ldp.estimate`` asks."""

    name = "_borrowing"
    fields = {"value": Kind.VALUE, **NUMBERS, "n": Kind.WHOLE, "borrowed": Kind.NUMBER}
    rows = True

    @classmethod
    def measured(cls, functional: Margin, estimates: Estimates) -> Lines:
        """Return the shares of every group, and from 0 to 1 which part of them comes from other groups."""
        measure, groups = functional.measure(estimates), len(estimates.fit.theta)
        borrowed = np.array(estimates.fit.borrowed or [np.nan] * groups)[:, None]
        people = estimates.likelihood.of_people.n[:, None]
        numbers: dict[str, Any] = {name: getattr(measure, name) for name in NUMBERS}
        return Lines.of_numbers({"value": np.arange(measure.estimate.shape[1]), **numbers, "n": people, "borrowed": borrowed})


_SHARES = ", ".join(f"{field.name} DOUBLE[]" for field in _PRIOR)


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer distances, ``ldp.synthesize``, ``ldp.prior``, and what estimators that learn from all groups need."""
    return [
        Scalar("__ldp_distance", distance, "DOUBLE"),
        Scalar("__ldp_synthesized", synthesized, "BIGINT[]"),
        Scalar("__ldp_learns", learns, "BOOLEAN"),
        Scalar("__ldp_borrows", borrows, "BOOLEAN"),
        Scalar("__ldp_shares_type", shares_type, "VARCHAR"),
        Scalar("__ldp_learn", learn, f"STRUCT({_SHARES})"),
        Scalar("__ldp_learn_in_order", learn_in_order, f"STRUCT(runs INTEGER[], priors STRUCT({_SHARES})[])"),
        Scalar("__ldp_learnt", learnt, "BIGINT"),
        answering(Borrowing, ASKED.thing),
        Macros.beside(__file__),
    ]
