"""What groups have in common, as a value: learned from the counts of all groups, passed to an estimator of one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ldpsql.estimators import InvalidParameter, sharing
from ldpsql.functions import (
    MECHANISMS,
    PLANS,
    Macros,
    Scalar,
    estimator_of_shares,
    guarded,
    hookimpl,
    learnt_from,
    names_withheld,
    numbers,
    one_thread,
    plain,
    registry,
)
from ldpsql.mechanisms import Mechanism

_PRIOR = pa.struct([(name, pa.list_(pa.float64())) for name in sharing.Prior.__dataclass_fields__])


@guarded
def learner(names: pa.ChunkedArray, mechanisms: pa.ChunkedArray) -> pa.Array:
    """Return the handle of each pair of mechanism and estimator, which may have to learn from all groups first."""
    rows = zip(plain(names).to_pylist(), plain(mechanisms).to_pylist(), strict=True)
    with names_withheld():
        return pa.array([_plan(name, MECHANISMS.thing(m)) for name, m in rows], pa.int64())


def _plan(name: str | None, mechanism: Mechanism) -> int:
    return PLANS.number((mechanism, registry().estimator(name or estimator_of_shares(mechanism))))


@guarded
def learns(plans: pa.ChunkedArray) -> pa.Array:
    """Return for each plan whether its estimator has to learn from all groups first."""
    return pa.array([PLANS.thing(handle)[1].needs_groups for handle in plain(plans).to_pylist()], pa.bool_())


@guarded
@one_thread
def learn(groups: pa.ChunkedArray, pooled: pa.ChunkedArray, plans: pa.ChunkedArray) -> pa.Array:
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
def learnt_plan(plans: pa.ChunkedArray, priors: pa.ChunkedArray) -> pa.Array:
    """Return the plan of each estimator with its prior; the same one for a NULL."""
    rows = pa.StructArray.from_arrays([plain(plans), plain(priors)], ["plan", "prior"])
    return pa.array(numbers(rows, lambda row: _with_prior(row["plan"].as_py(), row["prior"].as_py())), pa.int64())


def _with_prior(handle: int, prior: Any) -> int:
    if prior is None:
        return handle
    source, estimator = PLANS.thing(handle)
    return PLANS.number((source, registry().estimator({"estimator": estimator.name, **estimator.given(), "prior": prior})))


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.prior``, and what ``ldp.estimate_by`` needs for estimators that learn from all groups."""
    shares = ", ".join(f"{field.name} DOUBLE[]" for field in _PRIOR)
    return [
        Scalar("__ldp_learner", learner, "BIGINT"),
        Scalar("__ldp_learns", learns, "BOOLEAN"),
        Scalar("__ldp_learn", learn, f"STRUCT({shares})"),
        Scalar("__ldp_learnt_plan", learnt_plan, "BIGINT"),
        Macros.beside(__file__),
    ]
