"""The mechanism of the first cycle."""

from __future__ import annotations

from collections.abc import Sequence

from ldpsql.errors import InvalidParameter
from ldpsql.mechanisms.families import MAX_CELLS, PriorMechanism
from ldpsql.privic.step import STEPS, full_prior
from ldpsql.registry.registry import registry


def start(
    beta: object,
    domain: Sequence[object],
    *,
    columns: int | None = None,
    prior: Sequence[float] | None = None,
    iterations: int = STEPS,
    mechanism: str | None = None,
    **options: object,
) -> PriorMechanism:
    """Return the mechanism of the first cycle, made for ``prior`` or for the uniform prior.

    Args:
        beta: the loss parameter per unit of distance.
        domain: the values; for a grid its cells, row by row.
        columns: the number of columns of the grid; without a grid pass ``distances``.
        prior: positive shares of the values that sum to 1; they must be public.
        iterations: steps of Blahut-Arimoto.
        mechanism: the name of a mechanism that is made for a prior, by default the first one registered: Blahut-Arimoto.
        options: ``mixing``, ``side``, ``distances`` and other parameters of the mechanism.

    Raises:
        InvalidParameter, InvalidEpsilon: if a parameter is out of range, or the mechanism is not made for a prior.

    """
    if len(domain) > MAX_CELLS:
        raise InvalidParameter(f"a metric space may have at most {MAX_CELLS} values", "use larger cells")
    arguments = {"beta": beta, "domain": domain, "columns": columns, "iterations": iterations, **options}
    name = mechanism or _made_for_prior()
    made = registry().mechanism({"mechanism": name, "prior": full_prior(prior, len(domain)), **arguments})
    if not isinstance(made, PriorMechanism):
        raise InvalidParameter(f"{made.name} is not made for a prior", "allow the plugin that comes with ldpsql")
    return made


def _made_for_prior() -> str:
    """Return the name of the first registered mechanism that is made for a prior."""
    for name, kind in registry().mechanisms.items():
        if issubclass(kind, PriorMechanism):
            return name
    raise InvalidParameter("no mechanism is made for a prior", "allow the plugin that comes with ldpsql")
