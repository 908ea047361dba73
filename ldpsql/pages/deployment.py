"""A collection as an entry of the registry of deployments of differential privacy that NIST proposed: its fields, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ldpsql.ledger.collections import Collection
from ldpsql.ledger.policy import EPSILON, PER_DISTANCE, ROW
from ldpsql.pages.answers import plain, possible


def entry(collected: Collection) -> str:
    """Return the entry as JSON; what the policy does not say is null."""
    words = collected.words
    product = {
        "name": collected.name,
        "data_curators": [words["collector"]] if "collector" in words else None,
        "intended_use": words.get("purpose"),
        "data_product_type": "Individual records, each changed at random",
        "data_product_region": None,
        "data_product_sector": None,
        "description": _description(words),
        "publication_date": None,
    }
    deployment = {
        "product": product,
        "dp_flavor": _flavor(collected),
        "privacy_loss": _loss(collected),
        "model": _model(collected),
        "accounting": {"post_processing": None, "composition": _composition(collected)},
        "implementation": _implementation(collected),
        "resources": {"sources": None, "registry_authors": None},
    }
    return json.dumps({"status": "Draft", "tier": None, "deployment": deployment}, indent=2, ensure_ascii=False)


def _description(words: Mapping[str, str]) -> str | None:
    parts = (("people", "From"), ("recipient", "Recipient"))
    return "; ".join(f"{name}: {words[key]}" for key, name in parts if key in words) or None


def _flavor(collected: Collection) -> dict[str, Any]:
    kinds = ("Approximate DP" if collected.delta else "Pure DP", "Metric DP")
    there = (collected.epsilon(), collected.epsilon(PER_DISTANCE))
    answers = [f"{column}: {possible(certified)}" for column, certified in collected.items.items()]
    return {
        "name": ", ".join(kind for kind, epsilon in zip(kinds, there, strict=True) if epsilon),
        "data_domain": "; ".join(answers),
        "unprotected_quantities": "; ".join(["who takes part, and when", *collected.keep]),
    }


def _loss(collected: Collection) -> dict[str, Any]:
    by_row = collected.unit == ROW
    once, far, delta = collected.epsilon(), collected.epsilon(PER_DISTANCE), collected.delta
    parameters = {"epsilon": once, "epsilon_per_distance": far, "delta": delta}
    year = collected.planned()
    planned = f"; a year as planned: {plain(year)}" if year and once else ""
    return {
        "privacy_unit": "user-level" if by_row else "event-level",
        "privacy_unit_description": "a row is a person" if by_row else f"a row of a person; people have a {collected.unit}",
        "privacy_parameters": {name: float(value) for name, value in parameters.items() if value},
        "privacy_parameters_description": f"of one collection{planned}; {_composition(collected)}",
    }


def _model(collected: Collection) -> dict[str, Any]:
    return {
        "model_name": "Local",
        "model_name_description": "Each answer is replaced at random before it is handed on",
        "release_type": None
        if collected.rounds is None
        else "Single release"
        if collected.rounds == 1
        else "Multiple releases",
        "release_type_description": collected.words.get("frequency"),
        "access_type": "Non-interactive",
    }


def _composition(collected: Collection) -> str:
    limit = collected.limit
    if limit is None:
        return "epsilons of collections add up, and nothing limits their sum"
    window = limit.policy.budget_window
    return f"at most epsilon {plain(limit.epsilon(EPSILON))} for a person {f'in {window}' if window else 'in total'}"


def _implementation(collected: Collection) -> dict[str, Any]:
    names = ", ".join(dict.fromkeys(certified.name for certified in collected.items.values()))
    return {
        "pre_processing_eda_hyperparameter_tuning": None,
        "mechanisms": names,
        "justification": "The exact probabilities of each mechanism are compared with its epsilon before it draws",
    }
