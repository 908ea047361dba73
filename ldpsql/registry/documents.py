"""Mechanisms as documents: JSON that holds all that another program needs to draw the same reports, and its fingerprint.

A document is read back only if the mechanism that its parameters make is still the same in every number: a plugin that changed
its channel is noticed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from ldpsql.channels import ChannelOf, PlanarNoise
from ldpsql.channels.exported import exported as exported_channel
from ldpsql.channels.exported import name_of
from ldpsql.domains.domain import Domain
from ldpsql.domains.exported import exported as exported_domain
from ldpsql.domains.exported import exported_list
from ldpsql.domains.product import Product
from ldpsql.domains.ranges import Whole
from ldpsql.errors import InvalidSpec, OtherMechanism, SourceRefused
from ldpsql.mechanisms.base import CertifiedMechanism, CertifiedRow, CertifiedValues, Mechanism, certify
from ldpsql.privacy.certificate import Certificate
from ldpsql.privacy.claims import ApproximateLdp, Distances, Grid, Metric, MetricLdp, NoClaim
from ldpsql.registry.fingerprint import digits_of
from ldpsql.reports import Alphabet
from ldpsql.settings.sections import read_json

# Claims as JSON, in exact numbers, so that another program can check them against a channel.
#
# `examples/ldpsql-verify` is such a program.


def exported_claim(certificate: Certificate) -> dict[str, Any]:
    """Return the claim of a certificate as plain JSON: ``epsilon``, and ``delta`` with its exact value, or ``metric``."""
    if isinstance(certificate.claimed, NoClaim):
        return {"epsilon": None}
    claim, own = certificate.claim, {"epsilon": str(certificate.claim.epsilon)}
    if isinstance(claim, ApproximateLdp):
        return own | {"delta": str(claim.delta), "exact_delta": str(certificate.delta)}
    return own | {"metric": _metric(claim.metric)} if isinstance(claim, MetricLdp) else own


def exported_ratio(certificate: Certificate, channel: ChannelOf[Any]) -> str | None:
    """Return the exact ratio that decides about the claim; None if delta or the distances of many points decide."""
    if isinstance(certificate.claimed, ApproximateLdp | NoClaim) or isinstance(channel, PlanarNoise):
        return None
    return str(certificate.ratio)


def _metric(metric: Metric) -> dict[str, Any]:
    if isinstance(metric, Grid):
        return {"kind": "grid", "columns": metric.columns, "rows": metric.rows, "side": str(metric.side)}
    if isinstance(metric, Distances):
        return {"kind": "distances", "table": [[str(distance) for distance in row] for row in metric.table]}
    return {"kind": "line", "count": len(metric)}


# Forms of reports as JSON: how what a channel drew is written.


def exported_reports(reports: Alphabet) -> dict[str, Any]:
    """Return a form of reports as plain JSON: its ``form`` and the parts that determine it.

    >>> from ldpsql.reports import SetReports
    >>> exported_reports(SetReports(70))
    {'form': 'set', 'size': 70}
    """
    if isinstance(reports, Domain):
        own = exported_domain if isinstance(reports, Product | Whole) else exported_list
        return {"form": "value", "values": own(reports)}
    parts = {part.name: _of_part(getattr(reports, part.name)) for part in fields(cast("Any", reports))}
    return {"form": name_of(type(reports)).removesuffix("_reports"), **parts}


def _of_part(part: Any) -> Any:
    if isinstance(part, tuple):
        return [_of_part(one) for one in part]
    if isinstance(part, bool | int | str):
        return part
    return exported_reports(part)


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
        "claim": str(certified.certificate.claimed),
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
    """Return a document, or a mapping with a mechanism's parameters, from JSON text or itself; None for anything else."""
    if isinstance(spec, str) and spec.lstrip().startswith("{"):
        try:
            spec = read_json(spec)
        except (ValueError, RecursionError):
            problem = "this text begins like a document of a mechanism, and is not JSON in which each name occurs once"
            raise InvalidSpec(problem, _EXAMPLE) from None
    return spec if isinstance(spec, Mapping) else None


def parameters(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the name and the parameters that a document holds."""
    if spec.get("format") != FORMAT or not isinstance(spec.get("parameters"), Mapping):
        raise InvalidSpec("this JSON is not a document of a mechanism", _EXAMPLE)
    version = spec.get("version")
    if type(version) is not int or version != VERSION:  # true and 1.0 are 1 in Python, and not in other languages
        raise InvalidSpec(f"this document does not have version {VERSION}", "update ldpsql, or write the document again")
    return {Mechanism.kind: spec.get("mechanism"), **spec["parameters"]}


def check(spec: Mapping[str, Any], mechanism: Mechanism) -> Mechanism:
    """Return a mechanism after a check that it is the one of a document, in every number."""
    own = document(mechanism)
    differing = sorted(name for name in own.keys() | spec.keys() if own.get(name) != spec.get(name))
    if differing:
        raise OtherMechanism(
            f"the parameters of this document make another mechanism than it describes: {', '.join(differing)}",
            "the document or the plugin was changed: use the version that wrote it, or write the document again",
        )
    return mechanism


def from_file(path: Path) -> Mapping[str, Any]:
    """Return the document in a file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        raise SourceRefused(f"the document {path} cannot be read", _EXAMPLE) from None
    document = parsed(text)
    if document is None:
        raise InvalidSpec("this file does not hold a document of a mechanism", _EXAMPLE)
    return document
