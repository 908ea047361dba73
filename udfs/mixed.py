"""Estimates from several mechanisms, one for each level of a public column, and from several reports of each user."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from ldpsql.functions import (
    MECHANISMS,
    MIXTURES,
    PLANS,
    Aggregate,
    Column,
    Handles,
    InvalidSpec,
    Macros,
    Mixed,
    OutsideDomain,
    Perturbed,
    Repeated,
    Scalar,
    Settings,
    Texts,
    aggregates,
    guarded,
    hookimpl,
    numbers,
    plain,
    read_estimator,
    read_level,
    type_of,
)
from ldpsql.mechanisms import Domain, InvalidParameter, NotPrivate, certify

_FORM = "write MAP {'low': ldp.krr(1, ...), 'high': ldp.krr(3, ...)}, or {'a': ldp.krr(...), 'b': ldp.oue(...)}"


@guarded
def mixture_handle(mechanisms: Column) -> pa.Array:
    """Return the handle of each map from level to mechanism."""
    return pa.array(numbers(plain(mechanisms), lambda levels: MIXTURES.number(_mixed(levels))), pa.int64())


@guarded
def mixed_plan(names: Texts, handles: Handles, confidences: Settings) -> pa.Array:
    """Return the handle of each estimator with a map from level to mechanism."""
    return _plans(names, handles, confidences, MIXTURES.thing)


@guarded
def repeated_plan(names: Texts, handles: Handles, confidences: Settings) -> pa.Array:
    """Return the handle of each estimator with a mechanism that draws several reports of a value."""
    return _plans(names, handles, confidences, lambda handle: Repeated(Perturbed(MECHANISMS.thing(handle))))


def _plans(names: Texts, handles: Handles, confidences: Settings, source: Callable[[int], Mixed | Repeated]) -> pa.Array:
    """Return the handle of each estimator, with the probability of its intervals if there is one, and what drew the reports."""
    plans = []
    for name, handle, confidence in zip(*(plain(column).to_pylist() for column in (names, handles, confidences)), strict=True):
        options = {} if confidence is None else {"confidence": confidence}
        plans.append(PLANS.number((source(handle), read_estimator(name, **options))))
    return pa.array(plans, pa.int64())


def _mixed(by_level: pa.Scalar) -> Mixed:
    """Return the mechanisms of a MAP from level to mechanism, or of a STRUCT whose fields have the names of the levels."""
    if isinstance(by_level, pa.MapScalar) and by_level.is_valid and len(by_level):
        levels, mechanisms = by_level.values.field(0), [read_level(spec) for spec in by_level.values.field(1)]
    elif isinstance(by_level, pa.StructScalar) and by_level.is_valid:
        names = by_level.type.names
        levels, mechanisms = pa.array(names), [read_level(by_level[name]) for name in names]
    else:
        raise InvalidSpec("this is not a map from levels to mechanisms", _FORM)
    levels = plain(levels)
    return Mixed(Domain(levels.dictionary_decode() if pa.types.is_dictionary(levels.type) else levels), tuple(mechanisms))


@guarded
def level_handle(levels: Column, handles: Handles) -> pa.Array:
    """Return for each row the handle of the mechanism of its level."""
    column, by_row = plain(levels), plain(handles).to_numpy(zero_copy_only=False)
    if not len(by_row):
        return pa.array([], pa.int64())
    if (by_row == by_row[0]).all():  # nearly always
        return pa.array(_mechanisms(column, int(by_row[0])))
    out = np.empty(len(column), dtype=np.int64)
    for handle in np.unique(by_row):
        rows = np.flatnonzero(by_row == handle)
        out[rows] = _mechanisms(column.take(pa.array(rows)), int(handle))
    return pa.array(out)


def _mechanisms(levels: pa.Array, handle: int) -> np.ndarray:
    """Return the handle of the mechanism of each level under one mixture."""
    mixed = MIXTURES.thing(handle)
    places = mixed.places(levels)
    if (places < 0).any():
        raise OutsideDomain("a value to be perturbed has no level, or its level has no mechanism", "give every user a level")
    return _handles(handle)[places]


@lru_cache(maxsize=256)
def _handles(handle: int) -> np.ndarray:
    """Return the handles of a mixture's mechanisms; refuse a mixture whose reports do not fit into one column."""
    mechanisms = [level.mechanism for level in MIXTURES.thing(handle).each if isinstance(level, Perturbed)]
    if len(mechanisms) < len(MIXTURES.thing(handle).each):
        raise NotPrivate("a level whose epsilon is infinite would publish the value", "do not perturb it, or choose an epsilon")
    alphabets = [certify(mechanism).reports for mechanism in mechanisms]
    alike = {alphabet if isinstance(alphabet, Domain) else type_of(alphabet) for alphabet in alphabets}
    if len(alike) > 1:
        raise InvalidParameter(
            "the mechanisms of the levels have different reports", "perturb each level in a statement of its own"
        )
    return np.array([MECHANISMS.number(mechanism) for mechanism in mechanisms])


_ALLOW = {"keep": "true", "estimator": "'ibu(misfit=''allow'')'"}
_WITH_INTERVALS = {"estimator": "'ibu'", "keep": "true", "confidence": "NULL"}
_MIXED: dict[str, Any] = {"columns": ("report", "level"), "counted": "ldp.mixed_counts(report, level, keep := keep)"}
_MIXED_PLAN = "__ldp_mixed_plan(estimator, __ldp_mixture(mechanisms), {})"
_MIXED_DOMAIN = "ldp._kind(ldp._any(mechanisms, mechanisms))"
_DREW = "ldp._drew(reports, m, m) AND ldp._kept(keep)"
_REPEATED: dict[str, Any] = {"columns": ("reports",), "counted": f"ldp.repeated_counts(reports, keep := {_DREW})"}
_REPEATED_PLAN = "__ldp_repeated_plan(estimator, __ldp_mechanism(m), {})"


def _of_numbers(reports: str, mechanisms: str, plan: str, mechanism: str, counted: dict[str, Any]) -> Iterator[Aggregate]:
    """Yield the aggregates of values on a line.

    Args:
        reports: what they are estimated from, 'mixed' or 'repeated' reports.
        mechanisms: the parameter that holds what drew the reports.
        plan: the handle of that and the estimator, in SQL, with a place for the probability of the intervals.
        mechanism: a mechanism over the values, in SQL.
        counted: the columns and their counts.

    """

    def asked(name: str, further: str = "") -> str:
        return f"{{counts}}, __ldp_functional('{name}', {plan.format('confidence')}, NULL, NULL{further})"

    source = {"mixed": "reports of several levels", "repeated": "a list of reports of each user"}[reports]
    positions = f"__ldp_measure_all_positions({asked('quantiles', ', qs')})"
    for name, comment, further, result in (
        ("mean", "the mean of the values", (), f"ldp._in_unit(ldp._kind({mechanism}), __ldp_measure({asked('mean')}))"),
        ("variance", "the variance of the values", (), f"__ldp_measure({asked('variance')})"),
        ("quantiles", "several quantiles", ("qs",), f"ldp._each_at(ldp._domain({mechanism}), {positions})"),
        (
            "range_shares",
            "the shares of several ranges",
            ("lows", "highs"),
            f"__ldp_measure_all({asked('range_shares', ', lows, highs, NULL')})",
        ),
    ):
        parameters = {**dict.fromkeys((mechanisms, *further)), **_WITH_INTERVALS}
        yield Aggregate(f"{name}_{reports}", result, parameters, f"{comment}, from {source}", **counted)


_AGGREGATES = (
    *_of_numbers("mixed", "mechanisms", _MIXED_PLAN, "ldp._any(mechanisms, mechanisms)", _MIXED),
    *_of_numbers("repeated", "m", _REPEATED_PLAN, "m", _REPEATED),
    Aggregate(
        "ibu_mixed",
        f"ldp._rows({_MIXED_DOMAIN}, __ldp_estimate({{counts}}, {_MIXED_PLAN.format('confidence')}))",
        {"mechanisms": None, **_WITH_INTERVALS},
        "the estimate from reports of the mechanisms of several levels, or lists of them for each user, by any estimator",
        **_MIXED,
    ),
    Aggregate(
        "diagnose_mixed",
        f"ldp._diagnosis({_MIXED_DOMAIN}, __ldp_diagnose({{counts}}, {_MIXED_PLAN.format('NULL')}, {{record}}))",
        {"mechanisms": None, **_ALLOW},
        "how far such an estimate can be trusted",
        from_counts=False,
        **_MIXED,
    ),
    Aggregate(
        "ibu_repeated",
        f"ldp._rows(ldp._kind(m), __ldp_estimate({{counts}}, {_REPEATED_PLAN.format('confidence')}))",
        {"m": None, **_WITH_INTERVALS},
        "the estimate from a list of reports of each user, by any estimator",
        **_REPEATED,
    ),
    Aggregate(
        "diagnose_repeated",
        f"ldp._diagnosis(ldp._kind(m), __ldp_diagnose({{counts}}, {_REPEATED_PLAN.format('NULL')}, {{record}}))",
        {"m": None, **_ALLOW},
        "how far such an estimate can be trusted",
        from_counts=False,
        **_REPEATED,
    ),
)


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.perturb_mixed``, the aggregates of its reports and of lists of reports, and the same over counts."""
    return [
        Scalar("__ldp_mixture", mixture_handle, "BIGINT"),
        Scalar("__ldp_level", level_handle, "BIGINT"),
        Scalar("__ldp_mixed_plan", mixed_plan, "BIGINT"),
        Scalar("__ldp_repeated_plan", repeated_plan, "BIGINT"),
        Macros.beside(__file__),
        aggregates(*_AGGREGATES),
    ]
