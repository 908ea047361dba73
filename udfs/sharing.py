"""What groups have in common, as a value: learned from the counts of all groups, passed to an estimator of one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ldpsql.estimators import InvalidParameter, sharing
from ldpsql.functions import (
    PLANS,
    SOURCES,
    Column,
    Handles,
    Lists,
    Macros,
    Options,
    Scalar,
    Texts,
    estimator_of_shares,
    guarded,
    hookimpl,
    in_order,
    learnt_from,
    learnt_from_order,
    names_withheld,
    numbers,
    one_thread,
    plain,
    registry,
    with_prior,
)

_PRIOR = pa.struct([(name, pa.list_(pa.float64())) for name in sharing.Prior.__dataclass_fields__])
_RUNS = pa.struct([("runs", pa.list_(pa.int32())), ("priors", pa.list_(_PRIOR))])


@guarded
def learner(names: Texts, sources: Handles) -> pa.Array:
    """Return the handle of each estimator, which may have to learn from all groups first, with what drew the reports."""
    rows = zip(plain(names).to_pylist(), map(SOURCES.thing, plain(sources).to_pylist()), strict=True)
    with names_withheld():
        plans = [(source, registry().estimator(name or estimator_of_shares(source))) for name, source in rows]
        return pa.array(map(PLANS.number, plans), pa.int64())


@guarded
def learns(plans: Handles) -> pa.Array:
    """Return for each plan whether its estimator has to learn from all groups first."""
    return pa.array([PLANS.thing(handle)[1].needs_groups for handle in plain(plans).to_pylist()], pa.bool_())


@guarded
def borrows(names: Texts) -> pa.Array:
    """Return whether each estimator shares anything between groups; one that is not named does not."""
    with names_withheld():
        named = plain(names).to_pylist()
        return pa.array([name is not None and registry().estimator(name).borrows for name in named], pa.bool_())


@guarded
@one_thread
def learn(groups: Lists, pooled: Column, plans: Handles) -> pa.Array:
    """Return the prior of each list of counts of groups; NULL if it is empty.

    ``pooled`` are the counts of all groups together, if the lists hold only some of them; NULL if they hold all.

    Raises:
        InvalidParameter: if the estimator does not learn from groups.

    """
    lists, totals = plain(groups), plain(pooled)
    rows = zip(range(len(lists)), plain(plans).to_pylist(), strict=True)
    return pa.array([_learnt(lists[row], totals[row], handle) for row, handle in rows], _PRIOR)


def _learnt(groups: pa.ListScalar, pooled: pa.Scalar, handle: int) -> Any:
    source, estimator = PLANS.thing(handle)
    if not groups.is_valid:
        return None
    maps = groups.values
    if not estimator.needs_groups:
        raise InvalidParameter(f"{estimator.name} has nothing to learn from all groups", "for example estimator := 'shared'")
    if pa.types.is_null(maps.type):
        return None
    learned = learnt_from(source, maps, estimator, pooled if pooled.is_valid else None)
    return learned and learned.given()["prior"]


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
    runs, estimators = learnt_from_order(PLANS.thing(handle)[0], groups.values, PLANS.thing(handle)[1])
    return {"runs": runs, "priors": [estimator.given()["prior"] for estimator in estimators]}


@guarded
def learnt_plan(plans: Handles, priors: Options) -> pa.Array:
    """Return the plan of each estimator with its prior; the same one for a NULL."""
    rows = pa.StructArray.from_arrays([plain(plans), plain(priors)], ["plan", "prior"])
    return pa.array(numbers(rows, lambda row: _with_prior(row["plan"].as_py(), row["prior"].as_py())), pa.int64())


def _with_prior(handle: int, prior: Any) -> int:
    if prior is None:
        return handle
    source, estimator = PLANS.thing(handle)
    return PLANS.number((source, with_prior(estimator, prior)))


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.prior``, and what ``ldp.estimate_by`` needs for estimators that learn from all groups."""
    shares = ", ".join(f"{field.name} DOUBLE[]" for field in _PRIOR)
    return [
        Scalar("__ldp_learner", learner, "BIGINT"),
        Scalar("__ldp_learns", learns, "BOOLEAN"),
        Scalar("__ldp_borrows", borrows, "BOOLEAN"),
        Scalar("__ldp_learn", learn, f"STRUCT({shares})"),
        Scalar("__ldp_learn_in_order", learn_in_order, f"STRUCT(runs INTEGER[], priors STRUCT({shares})[])"),
        Scalar("__ldp_learnt_plan", learnt_plan, "BIGINT"),
        Macros.beside(__file__),
    ]
