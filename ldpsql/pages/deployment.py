"""A collection as an entry of the public registry of deployments of differential privacy, at its highest tier: YAML.

The names of the fields are those of https://github.com/opendp/deployments-registry-data in July 2026.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from ldpsql.ledger.policy import EPSILON, PER_DISTANCE, ROW
from ldpsql.ledger.review import Collection
from ldpsql.mechanisms.audit import empirical
from ldpsql.mechanisms.base import CertifiedMechanism
from ldpsql.mechanisms.spec import decimal_text
from ldpsql.pages.statement import possible
from ldpsql.registry.documents import digits_of

_DRAWS = 100_000  # of each mechanism, that the audit compares with its claim
_UNSTATED = "Not stated"
_CODE = {".py", ".sql", ".c", ".h", ".mjs"}
_SAFE = (
    "Floating point: probabilities are whole numbers out of 2^64, draws compare whole numbers with 64 random bits, and claims "
    "are checked in whole numbers, so the rounding of doubles cannot raise a ratio above the claim. Random bits: AES-256 or "
    "ChaCha20 with a key of the operating system, or OpenSSL. Platform: DuckDB's spill files, deleted pages and statistics may "
    "hold the original values on the machine that perturbs; messages and logs of ldpsql hold none. Timing: reports are written "
    "in one batch in random order, or in the order of the rows if that was asked for; a draw may take longer for some values, "
    "which only somebody who shares the machine can measure."
)
_CHECKED = (
    "Before it draws, each channel is compared with its claim in whole numbers. Anybody can do so again with `ldpsql-verify`, "
    "which shares no code with ldpsql, from the output of `ldpsql describe`."
)
_ACTORS = (
    "Everybody whose values are perturbed trusts the machine that perturbs, and nobody else. Adversaries: all who receive the "
    "reports, with any other knowledge, any computation, and all other reports. Not defended against: people with access to "
    "the original values, people who send false reports, and the parameters of plugins that change between collections."
)


def entry(collected: Collection) -> str:
    """Return the entry as YAML; what the policy does not say is "Not stated"."""
    name = re.sub(r"[^a-z0-9]+", "_", collected.name.lower()).strip("_") or "collection"
    deployment = {
        "basic": _basic(collected),
        "dp_variant": _variant(collected),
        "privacy_loss": _loss(collected),
        "deployment_model": _model(collected),
        "accounting": {
            "post_processing": "Estimates are computed from the reports alone, and cost no further epsilon.",
            "composition": _composition(collected),
        },
        "implementation": _implementation(collected),
        "administrative": _administrative(collected),
    }
    whole = {"url_slug": name, "status": "Draft", "tier": 3, "deployment": deployment}
    return "\n".join(_yaml(whole)) + "\n"


def _yaml(value: Any, indent: str = "") -> Iterator[str]:
    """Yield the lines of a mapping; JSON's texts and numbers are YAML, too."""
    for key, held in value.items():
        if isinstance(held, dict):
            yield f"{indent}{key}:"
            yield from _yaml(held, f"{indent}  ")
        elif isinstance(held, list):
            yield from (f"{indent}{key}:", *(f"{indent}  - {json.dumps(one, ensure_ascii=False)}" for one in held))
        else:
            yield f"{indent}{key}: {json.dumps(held, ensure_ascii=False)}"


def _basic(collected: Collection) -> dict[str, Any]:
    words = collected.words
    return {
        "name": collected.name,
        "data_curators": [words.get("collector", _UNSTATED)],
        "description": f"Records of people, each value changed at random. From: {words.get('people', _UNSTATED)}.",
        "intended_use": words.get("purpose", _UNSTATED),
        "data_product_type": "Dataset",
        "data_product_region": f"That of: {words.get('people', _UNSTATED)}",
        "publication_date": _published(collected) or datetime.now(UTC).date().isoformat(),
    }


def _published(collected: Collection) -> str | None:
    """Return the day of the first release of the ledger, None if nothing was released."""
    return collected.limit.published[0][:10] if collected.limit and collected.limit.published else None


def _variant(collected: Collection) -> dict[str, Any]:
    answers = [f"{column}: {possible(certified)}" for column, certified in collected.items.items()]
    far, delta = collected.epsilon(PER_DISTANCE), collected.delta
    return {
        "variant_name": "Custom" if far else "Approximate DP" if delta else "Pure DP",
        "data_domain": "; ".join(answers),
        "unprotected_quantities": "; ".join(["who takes part, and when", *collected.keep]),
    }


def _loss(collected: Collection) -> dict[str, Any]:
    by_row, year = collected.unit == ROW, collected.planned()
    once, far, delta = collected.epsilon(), collected.epsilon(PER_DISTANCE), collected.delta
    unit = "a row is a person" if by_row else f"a row of a person; people have a {collected.unit}"
    parts = [f"epsilon {decimal_text(once)} of one collection"] if once else []
    parts += [f"epsilon {decimal_text(far)} per unit of distance of one collection (metric privacy)"] if far else []
    parts += [f"a year as planned: {decimal_text(year)}"] if year and once else []
    return {
        "privacy_unit": "user-level" if by_row else "event-level",
        "privacy_unit_details": f"{unit}. Adjacent: any two values of the columns of one row.",
        "privacy_parameters": {"epsilon": float(once or far)} | ({"delta": float(delta)} if delta else {}),
        "privacy_parameters_details": "; ".join([*parts, _composition(collected)]),
    }


def _model(collected: Collection) -> dict[str, Any]:
    words, rounds = collected.words, collected.rounds
    release = {} if rounds is None else {"release_type": "One release" if rounds == 1 else "Many releases"}
    return {
        "model_name": "Local",
        "model_name_details": "Each value is replaced at random before it is handed on.",
        "actors": f"Recipient: {words.get('recipient', _UNSTATED)}. {_ACTORS}",
        **release,
        "release_type_details": f"How often: {words.get('frequency', _UNSTATED)}. Kept: {words.get('retention', _UNSTATED)}.",
        "data_source_type": "Static" if rounds == 1 else "Dynamic",
        "access_type": "Non-interactive",
        "access_type_details": "The recipient gets the reports, and asks the people nothing.",
    }


def _composition(collected: Collection) -> str:
    limit = collected.limit
    if limit is None:
        return "epsilons of collections add up, and nothing limits their sum"
    window = limit.policy.budget_window
    return f"at most epsilon {decimal_text(limit.epsilon(EPSILON))} for a person {f'in {window}' if window else 'in total'}"


def _implementation(collected: Collection) -> dict[str, str]:
    from ldpsql import __version__  # noqa: PLC0415  # the package imports this module

    names = "; ".join(
        f"{column}: {made.name}, fingerprint {digits_of(made.mechanism)}" for column, made in collected.items.items()
    )
    return {
        "preprocessing_and_hyperparameter_tuning": "Domains are declared: ldpsql infers none from the values that it perturbs.",
        "mechanisms": f"{names}. ldpsql {__version__}, SHA-256 of the code {code_digest()}. {_SAFE}",
        "justification": f"{_CHECKED} {_tested(collected.items)}",
    }


def _tested(items: Mapping[str, CertifiedMechanism]) -> str:
    """Return what certificates and audits say of each column."""
    audits = ((column, made, empirical(made.mechanism, _DRAWS)) for column, made in items.items())
    found = [
        f"{column}: certified {made.certificate.claim}, exact ratio {made.certificate.ratio}; {audit.draws:,} draws of each of "
        f"two values prove epsilon at least {audit.epsilon_at_least:.3g} ({'passed' if audit.passed else 'FAILED'})"
        for column, made, audit in audits
    ]
    return f"Adversarial testing with `ldpsql audit`, false alarms below 1e-6: {'; '.join(found)}."


def _administrative(collected: Collection) -> dict[str, Any]:
    unpublished = (
        "" if _published(collected) else "Nothing is published: publication_date is the day on which this was written. "
    )
    return {
        "notes": f"{unpublished}Settings: SHA-256 {collected.digest}. Written by `ldpsql statement`.",
        "registry_authors": [collected.words.get("collector", _UNSTATED)],
    }


def code_digest() -> str:
    """Return the SHA-256 of the code of ldpsql, the same for an installation and a checkout of one version."""
    digest = sha256()
    for package in ("ldpsql", "ldpsql.plugins", "ldpsql.udfs"):
        folder = Path(import_module(package).__path__[0])
        files = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if file.suffix in _CODE}
        for name in sorted(files):
            if package != "ldpsql" or name.partition("/")[0] not in {"plugins", "udfs"}:
                digest.update(f"{package}/{name}\n".encode() + files[name].read_bytes())
    return digest.hexdigest()
