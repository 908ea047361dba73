"""Key-value data: frequency and mean of every key as an aggregate, and diagnosis and distribution of the values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import cast

import numpy as np
import pyarrow as pa

from ldpsql.estimators import Estimator, Likelihood
from ldpsql.functions import (
    MECHANISMS,
    PLANS,
    ROW,
    Aggregate,
    Column,
    Handles,
    Macros,
    Scalar,
    SetDiagnosis,
    Texts,
    aggregates,
    arrow_fields,
    counts_of,
    estimate_densities,
    estimate_key_value,
    guarded,
    hookimpl,
    likelihoods,
    listed,
    of_symbols,
    once_a_run,
    plain,
    read_estimator,
    struct_type,
)
from ldpsql.mechanisms import InvalidParameter, KeyValueMechanism, Mechanism, certify

_DENSITY = ("key", "value", "share")


@guarded
def plan_handle(names: Texts, mechanisms: Handles, confidences: Texts) -> pa.Array:
    """Return the handle of each pair of mechanism and estimator; 'unbiased' counts as an estimator."""
    rows = zip(plain(names).to_pylist(), plain(mechanisms).to_pylist(), plain(confidences).to_pylist(), strict=True)
    return pa.array([_plan(name, handle, confidence) for name, handle, confidence in rows], pa.int64())


def _plan(name: str, handle: int, confidence: str | None) -> int:
    estimator = read_estimator(of_symbols(name), **({} if confidence is None else {"confidence": confidence}))
    return PLANS.number((MECHANISMS.thing(handle), estimator))


def _counted(histograms: Column, plans: Handles) -> Iterator[tuple[np.ndarray, Mechanism, Estimator, Likelihood]]:
    """Yield the rows of groups that hold reports, with their mechanism, estimator and likelihood."""
    for handle, counts in counts_of(histograms, plans):
        source, estimator = PLANS.thing(handle)
        if not isinstance(source, KeyValueMechanism):
            raise InvalidParameter("these are not reports of sets of pairs", certify(cast("Mechanism", source)).remedy)
        for rows, likelihood in likelihoods(source, counts):
            yield rows, source, estimator, likelihood


@guarded
@once_a_run
def estimate(histograms: Column, plans: Handles) -> pa.Array:
    """Return the list of keys as text, frequencies and means of each group; NULL if the group is empty."""
    parts = [
        (rows, mechanism.values().listed.written, estimate_key_value(mechanism, likelihood, estimator).rows())
        for rows, mechanism, estimator, likelihood in _counted(histograms, plans)
    ]
    return listed(parts, len(histograms), ("key", *ROW))


@guarded
@once_a_run
def diagnose(histograms: Column, plans: Handles) -> pa.Array:
    """Return the diagnosis of each group, with share of dummies and warning; NULL if the group is empty."""
    out: list[dict[str, object] | None] = [None] * len(histograms)
    for rows, mechanism, estimator, likelihood in _counted(histograms, plans):
        estimates = estimate_key_value(mechanism, likelihood, estimator)
        for place, row in enumerate(rows):
            out[row] = asdict(estimates[place].sets)
    return pa.array(out, pa.struct(arrow_fields(SetDiagnosis)))


@guarded
@once_a_run
def density(histograms: Column, plans: Handles) -> pa.Array:
    """Return each key as text, with centre and share of each of its bins; NULL for an empty group."""
    parts = []
    for rows, mechanism, estimator, likelihood in _counted(histograms, plans):
        centres, shares = estimate_densities(mechanism, likelihood, estimator)
        keys, bins = shares.shape[1:]
        texts = mechanism.values().listed.written.take(pa.array(np.repeat(np.arange(keys), bins)))
        middles = np.broadcast_to(np.tile(centres, keys), (len(rows), keys * bins))
        parts.append((rows, texts, np.stack([middles, shares.reshape(len(rows), -1)], axis=-1)))
    return listed(parts, len(histograms), _DENSITY)


def _keyed(names: tuple[str, ...]) -> str:
    return f"STRUCT(key VARCHAR, {', '.join(f'{name} DOUBLE' for name in names)})[]"


def _options(estimator: str, **others: str) -> dict[str, str | None]:
    return {"m": None, "estimator": f"'{estimator}'", **others}


_AGGREGATES = (
    Aggregate(
        "key_value",
        "ldp._keyed(ldp._kind(m), __ldp_key_value({counts}, ldp._key_value_plan(estimator, m, confidence)))",
        _options("unbiased", confidence="NULL"),
        "frequency and mean of every key, with errors and intervals",
        rows=True,
    ),
    Aggregate(
        "key_value_diagnose",
        "__ldp_key_value_diagnose({counts}, ldp._key_value_plan(estimator, m, NULL))",
        _options("unbiased"),
        "share of dummies, whether sets seem larger than the padding, and goodness of fit",
    ),
    Aggregate(
        "key_value_density",
        "ldp._densities(ldp._kind(m), __ldp_key_value_density({counts}, ldp._key_value_plan(estimator, m, NULL)))",
        _options("ibu"),
        "distribution of the values of every key, for pckv_pm",
        rows=True,
    ),
)


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.key_value``, ``ldp.key_value_diagnose`` and ``ldp.key_value_density``, each also over counts."""
    return [
        Scalar("__ldp_key_value_plan", plan_handle, "BIGINT"),
        Scalar("__ldp_key_value", estimate, _keyed(ROW)),
        Scalar("__ldp_key_value_diagnose", diagnose, struct_type(SetDiagnosis)),
        Scalar("__ldp_key_value_density", density, _keyed(_DENSITY[1:])),
        Macros.beside(__file__),
        aggregates(*_AGGREGATES),
    ]
