"""Mechanisms as documents: JSON that holds all that another program needs to draw the same reports, and its fingerprint.

A document is read back only if the mechanism that its parameters make is still the same in every number: a plugin that changed
its channel is noticed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ldpsql.channels.exported import exported as exported_channel
from ldpsql.domains.exported import exported as exported_domain
from ldpsql.errors import InvalidSpec, OtherMechanism, SourceRefused
from ldpsql.mechanisms.base import CertifiedMechanism, CertifiedRow, CertifiedValues, Mechanism, certify
from ldpsql.privacy.exported import exported as exported_claim
from ldpsql.privacy.exported import exported_ratio
from ldpsql.registry.fingerprint import digits_of
from ldpsql.reports.exported import exported as exported_reports
from ldpsql.settings.sections import read_json

FORMAT, VERSION = "ldpsql.mechanism", 1
_EXAMPLE = "write one with: ldpsql describe -m city -o city.json"


def document(mechanism: Mechanism | str) -> dict[str, Any]:
    """Return a mechanism, its text or its name in the settings as a document, in plain JSON."""
    certified = certify(mechanism)
    mechanism = certified.mechanism
    parameters = {name: value for name, value in mechanism.to_json().items() if name != Mechanism.kind}
    return {
        "format": FORMAT,
        "version": VERSION,
        "mechanism": mechanism.name,
        "parameters": json.loads(json.dumps(parameters, default=str)),
        "claim": str(certified.certificate.claim),
        "privacy": _privacy(certified),
        "ratio": exported_ratio(certified.certificate, certified.channel),
        "values": _values(certified),
        "channel": exported_channel(certified.channel),
        "reports": exported_reports(certified.reports),
        "fingerprint": digits_of(mechanism),
    }


def _privacy(certified: CertifiedMechanism) -> dict[str, Any]:
    """Return the claim of a mechanism in exact numbers, with those of its columns."""
    own = exported_claim(certified.certificate)
    return own | {"parts": [_privacy(part) for part in certified.parts]} if isinstance(certified, CertifiedRow) else own


def _values(certified: CertifiedMechanism) -> dict[str, Any]:
    """Return the values of a mechanism, with the positions that stand for NULL and for values outside."""
    if isinstance(certified, CertifiedRow):
        return exported_domain(certified.values) | {"parts": [_values(part) for part in certified.parts]}
    values = exported_domain(certified.values)
    if isinstance(certified, CertifiedValues):
        values |= {"null": certified.null_code, "outside": certified.outside_code}
    return values


def document_text(mechanism: Mechanism) -> str:
    """Return a mechanism as a document, as text with one part on each line."""
    parts = [f"  {json.dumps(name)}: {json.dumps(part, ensure_ascii=False)}" for name, part in document(mechanism).items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def parsed(spec: object) -> Mapping[str, Any] | None:
    """Return a document, or a mapping with a mechanism's parameters, from JSON text or itself; None for anything else.

    Raises:
        InvalidSpec: if the text begins like JSON and cannot be read.

    """
    if isinstance(spec, str) and spec.lstrip().startswith("{"):
        try:
            spec = read_json(spec)
        except (ValueError, RecursionError):
            problem = "this text begins like a document of a mechanism, and is not JSON in which each name occurs once"
            raise InvalidSpec(problem, _EXAMPLE) from None
    return spec if isinstance(spec, Mapping) else None


def parameters(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the name and the parameters that a document holds.

    Raises:
        InvalidSpec: unless it is a document of this version.

    """
    if spec.get("format") != FORMAT or not isinstance(spec.get("parameters"), Mapping):
        raise InvalidSpec("this JSON is not a document of a mechanism", _EXAMPLE)
    version = spec.get("version")
    if type(version) is not int or version != VERSION:  # true and 1.0 are 1 in Python, and not in other languages
        raise InvalidSpec(f"this document does not have version {VERSION}", "update ldpsql, or write the document again")
    return {Mechanism.kind: spec.get("mechanism"), **spec["parameters"]}


def check(spec: Mapping[str, Any], mechanism: Mechanism) -> Mechanism:
    """Return a mechanism after a check that it is the one of a document, in every number.

    Raises:
        OtherMechanism: if it is another one.

    """
    own = document(mechanism)
    differing = sorted(name for name in own.keys() | spec.keys() if own.get(name) != spec.get(name))
    if differing:
        raise OtherMechanism(
            f"the parameters of this document make another mechanism than it describes: {', '.join(differing)}",
            "the document or the plugin was changed: use the version that wrote it, or write the document again",
        )
    return mechanism


def from_file(path: Path) -> Mapping[str, Any]:
    """Return the document in a file.

    Raises:
        SourceRefused: if the file cannot be read.
        InvalidSpec: if it does not hold a document.

    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        raise SourceRefused(f"the document {path} cannot be read", _EXAMPLE) from None
    document = parsed(text)
    if document is None:
        raise InvalidSpec("this file does not hold a document of a mechanism", _EXAMPLE)
    return document
