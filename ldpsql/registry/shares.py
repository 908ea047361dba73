"""The epsilons of the columns of a table's policy: as written, or planned as a share of what a row may spend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from ldpsql.errors import BadSettings, InvalidEpsilon, InvalidSpec, RowBudgetExceeded
from ldpsql.mechanisms.base import Mechanism
from ldpsql.mechanisms.spec import decimal_text, number, read_call
from ldpsql.privacy.claims import Claim, Epsilon, MetricLdp

EPSILON_PER_DISTANCE = "epsilon_per_distance"
_STEPS = 10**6  # planned epsilons are rounded down to millionths, so that they never exceed the total


def planned(table: Mapping[str, Any], named: Mapping[str, Any], kinds: Mapping[str, type[Mechanism]]) -> dict[str, Any]:
    """Return the mechanism of each column as the settings write it, with an epsilon for those without one.

    A mechanism ``{mechanism = "krr", share = 0.5, ...}`` gets this share of the total. The other mechanisms without an epsilon
    divide evenly what remains. Those whose epsilon is per unit of distance have a total of their own.

    Args:
        table: the policy in the settings: ``epsilon`` and ``epsilon_per_distance``, the totals of a row, and ``columns``, the
            mechanism of each column as its text, its parameters or its name.
        named: the mechanisms that the settings name.
        kinds: the classes of mechanisms, by name.

    Raises:
        BadSettings: if a total is not a number, a share is not between 0 and 1, or nothing remains.

    """
    columns = table["columns"]
    specs = {column: _parameters(named.get(spec, spec) if isinstance(spec, str) else spec) for column, spec in columns.items()}
    totals = {column: _total_for(kinds.get(spec.get("mechanism", ""))) for column, spec in specs.items()}
    made: dict[str, Any] = {}
    for key in ("epsilon", EPSILON_PER_DISTANCE):
        parts = {column: spec for column, spec in specs.items() if totals[column] == key}
        for column, epsilon in _shared_out(parts, total_of(table, key), key).items():
            made[column] = specs[column] | {"epsilon": epsilon}
    return {
        column: made.get(column) or (named.get(one, one) if isinstance(one, str) else one) for column, one in columns.items()
    }


def _total_for(kind: type[Mechanism] | None) -> str:
    """Return the total that the epsilon of a mechanism is a part of, or '' if it has no such parameter."""
    if kind is None:
        return "epsilon"
    if "epsilon" not in kind.model_fields:
        return ""
    return EPSILON_PER_DISTANCE if kind.per_distance else "epsilon"


def _shared_out(specs: Mapping[str, dict[str, Any]], total: Fraction, key: str) -> dict[str, str]:
    """Return the epsilons of the mechanisms without one: their shares of a total, or even parts of what remains."""
    shares = {column: _share(spec) * total for column, spec in specs.items() if "share" in spec}
    spent = sum(shares.values()) + sum(_epsilon(spec) for spec in specs.values() if "epsilon" in spec)
    even = [column for column, spec in specs.items() if "epsilon" not in spec and column not in shares]
    shares |= dict.fromkeys(even, (total - spent) / max(len(even), 1))
    return {column: _text(share, key) for column, share in shares.items()}


def total_of(table: Mapping[str, Any], key: str) -> Fraction:
    """Return a total of a policy as an exact number."""
    try:
        value = number(table.get(key, 0))
    except ValueError:
        value = Fraction(-1)
    if value < 0 or (key == "epsilon" and not value):
        raise BadSettings(f"{key} in the policy of a table must be a positive number", "for example epsilon = 2")
    return value


def check_total(name: str, table: Mapping[str, Any], claims: Iterable[Claim]) -> None:
    """Refuse claims that add up to more than the totals, as exact numbers: a row has all of its reports."""
    listed = list(claims)
    far = [claim.epsilon.value for claim in listed if isinstance(claim, MetricLdp)]
    near = [claim.epsilon.value for claim in listed if not isinstance(claim, MetricLdp)]
    delta = [claim.delta for claim in listed]
    for key, parts in (("epsilon", near), (EPSILON_PER_DISTANCE, far), ("delta", delta)):
        spent, total = sum(parts, Fraction(0)), total_of(table, key)
        if spent > total:
            both = f"{key} {decimal_text(spent)} on a row, and its total is {decimal_text(total)}"
            raise RowBudgetExceeded(
                f"the columns of [tables.{name}] spend {both}",
                f"lower the {key} of a column, or write a larger {key} into [tables.{name}]",
            )


def _parameters(spec: Any) -> dict[str, Any]:
    """Return the parameters of a mechanism by name, with its name; the first one without a name is epsilon."""
    if isinstance(spec, Mapping):
        return {"mechanism": spec.get("mechanism"), **spec["parameters"]} if "format" in spec else dict(spec)
    name, arguments, parameters = read_call(str(spec))
    if len(arguments) > 1 and "epsilon" not in parameters:
        return {"mechanism": name, "epsilon": arguments[0], "arguments": arguments}
    return {"mechanism": name, **dict(zip(["epsilon"], arguments, strict=False)), **parameters}


def _share(spec: dict[str, Any]) -> Fraction:
    """Take the share out of the parameters of a mechanism and return it."""
    try:
        share = number(spec.pop("share"))
    except ValueError:
        share = Fraction(0)
    if not 0 < share <= 1 or "epsilon" in spec:
        raise BadSettings(
            "a share of the budget must lie above 0 and be at most 1, and stands for an epsilon",
            'for example {mechanism = "krr", share = 0.5, domain = ["a", "b"]}',
        )
    return share


def _epsilon(spec: Mapping[str, Any]) -> Fraction:
    try:
        return Epsilon.parse(spec["epsilon"]).value
    except (InvalidEpsilon, InvalidSpec):
        return Fraction(0)  # the mechanism itself refuses it


def _text(epsilon: Fraction, key: str) -> str:
    millionths = int(epsilon * _STEPS)
    if millionths <= 0:
        raise BadSettings(
            f"nothing of the total {key} remains for a column", "write a larger total, or lower the other columns"
        )
    return decimal_text(Fraction(millionths, _STEPS))
