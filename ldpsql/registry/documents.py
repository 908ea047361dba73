"""Mechanisms as documents: JSON that holds all that another program needs to draw the same reports, and its fingerprint.

A document is read back only if the mechanism that its parameters make is still the same in every number: a plugin that changed
its channel is noticed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from decimal import Decimal
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.channels import ChannelOf, KeepOrSpread, PlanarNoise
from ldpsql.channels.exported import digest as channel_digest
from ldpsql.channels.exported import exported as exported_channel
from ldpsql.channels.exported import name_of
from ldpsql.domains.composite import Product
from ldpsql.domains.domain import Domain
from ldpsql.domains.unlisted import Whole
from ldpsql.domains.written import exported as exported_domain
from ldpsql.domains.written import exported_list
from ldpsql.errors import InvalidSpec, OtherMechanism, SourceRefused
from ldpsql.mechanisms.base import CertifiedMechanism, CertifiedRow, CertifiedValues, Mechanism, certify
from ldpsql.mechanisms.spec import Parts
from ldpsql.privacy.certificate import Certificate
from ldpsql.privacy.claims import ApproximateLdp, Distances, Grid, Metric, MetricLdp, NoClaim
from ldpsql.reports import Alphabet
from ldpsql.settings.sections import read_json

# The fingerprint of a mechanism: one line of text that says what drew a report.
#
# A fingerprint is ``ldpsql:``, 32 hexadecimal digits, a dot, 16 digits of the channel, and the mechanism as text; of a long
# domain, the text has only length and digits. The digits are the same for mechanisms that draw alike: rules for NULL and
# other values do not count, nor does the type of a declared value. Those of the channel differ if a plugin draws otherwise
# with the same parameters.

_SHORT = 20_000  # characters of a mechanism as text
_NAME = 1_000  # the same in the name of a field
_RULES = ("nulls", "outside")  # parameters that do not change what is drawn
_PART = 1 << 14  # values of a domain at a time


def fingerprint(mechanism: Mechanism) -> str:
    """Return the fingerprint of a mechanism."""
    return certify(mechanism).derived(_fingerprint)


def record_name(mechanism: Mechanism) -> str:
    """Return the fingerprint as the name of the only field of a STRUCT that records what drew a report.

    Its text is shorter, and has no rules for NULL and other values, so that those who write another rule draw the same type.
    """
    return certify(mechanism).derived(_record_name)


def _record_name(certified: CertifiedMechanism) -> str:
    mechanism = certified.mechanism
    text = short_text(mechanism, _NAME)
    if text is not None:
        rules = {rule: None for rule in _RULES if getattr(mechanism, rule, None) is not None}
        text = str(mechanism.changed(**rules)) if rules else text
    return _line(certified, text or _abridged(mechanism, _NAME))


def _fingerprint(certified: CertifiedMechanism) -> str:
    mechanism = certified.mechanism
    return _line(certified, short_text(mechanism, _SHORT) or _abridged(mechanism, _SHORT))


def _line(certified: CertifiedMechanism, text: str) -> str:
    both = f"{certified.derived(_digits)}.{_channel_digits(certified)}"
    return f"ldpsql:{both} {text if text.isprintable() else certified.mechanism.name}"


def short_text(mechanism: Mechanism, most: int) -> str | None:
    """Return a mechanism as text, None if that has more characters; a long domain is not written."""
    parameters = [getattr(mechanism, name) for name in type(mechanism).model_fields]
    columns = [part.mechanism for value in parameters if isinstance(value, Parts) for part in value]
    domains = [value for value in parameters if isinstance(value, Domain)]
    sizes = [sum(value.shape) if isinstance(value, Product) else len(value) for value in domains]
    long = max(sizes, default=0) > most
    if long or any(short_text(part, most) is None for part in columns):
        return None
    text = str(mechanism)
    return text if len(text) <= most else None


def _abridged(mechanism: Mechanism, most: int) -> str:
    """Return a mechanism as text, with the lengths and the digits of its domains instead of their values.

    If that has more than ``most`` characters, return its name.
    """
    values = {name: getattr(mechanism, name) for name in type(mechanism).model_fields if name not in _RULES}
    domains = {
        name: {"length": len(value), "fingerprint": value.digits} for name, value in values.items() if isinstance(value, Domain)
    }
    own = mechanism.given(without={*domains, *_RULES}) | domains
    parameters = {name: domains.get(name, value) for name, value in own.items()}
    text = f"{mechanism.name}({', '.join(f'{name}={value!r}' for name, value in parameters.items())})"
    return text if len(text) <= most else mechanism.name


def _digits(certified: CertifiedMechanism) -> str:
    """Return the digest of the name and the parameters that decide what is drawn."""
    mechanism = certified.mechanism
    domains = {name for name in type(mechanism).model_fields if isinstance(getattr(mechanism, name), Domain)}
    names = {*mechanism.given(without=domains), *domains}.difference(_RULES)
    unordered = _unordered(certified)
    digest = blake2b(f"[{json.dumps(mechanism.name)}, {{".encode(), digest_size=16)
    for place, name in enumerate(sorted(names)):
        digest.update(f"{', ' if place else ''}{json.dumps(name)}: ".encode())
        for part in _canonical(getattr(mechanism, name), unordered=unordered):
            digest.update(part.encode())
    digest.update(b"}]")
    return digest.hexdigest()


def _channel_digits(certified: CertifiedMechanism) -> str:
    """Return the digits of the channel; those of several columns do not depend on the order of the columns."""
    mechanism = certified.mechanism
    columns = [part for name in type(mechanism).model_fields for part in _columns(getattr(mechanism, name))]
    if not columns:
        return channel_digest(certified.channel)
    own = {part.column: _channel_digits(certify(part.mechanism)) for part in columns}
    written = json.dumps([type(certified.channel).__name__, own], sort_keys=True)
    return blake2b(written.encode(), digest_size=8).hexdigest()


def _columns(value: object) -> Parts | tuple[()]:
    """Return the columns of a row, none if a parameter is anything else."""
    return value if isinstance(value, Parts) else ()


def _canonical(value: object, *, unordered: bool) -> Iterator[str]:
    """Yield a parameter as JSON; a domain in parts, since a long one takes ten times its memory in Python's strings."""
    if isinstance(value, Product):
        yield json.dumps({name: part.digits for name, part in zip(value.names, value.parts, strict=True)})
        return
    if isinstance(value, Parts):
        yield json.dumps({part.column: digits_of(part.mechanism) for part in value}, sort_keys=True)
        return
    if not isinstance(value, Domain):
        yield json.dumps(value, sort_keys=True, default=str)
        return
    texts = _texts(value)
    order = pc.sort_indices(texts) if unordered else None  # by bytes of UTF-8, which is the order of Python's strings
    for start in range(0, len(texts), _PART):
        part = slice(start, start + _PART)
        listed = json.dumps((texts[part] if order is None else texts.take(order[part])).to_pylist())[1:-1]
        yield f"{', ' if start else '['}{listed}"
    yield "]"


def _texts(domain: Domain) -> pa.Array:
    """Return the values of a domain as text, the same for every type of number."""
    if pa.types.is_decimal(domain.values.type):
        return pa.array([format(Decimal(text).normalize(), "f") for text in domain.written.to_pylist()])  # 1.50 is 1.5
    return domain.written


def order_of(certified: CertifiedMechanism) -> NDArray[np.int64] | None:
    """Return the positions of the values in the order of the fingerprint; None if that is the order of the domain."""
    return certified.derived(_order)


def _order(certified: CertifiedMechanism) -> NDArray[np.int64] | None:
    if not _unordered(certified) or isinstance(certified.values, Product) or not isinstance(certified.values, Domain):
        return None
    return pc.sort_indices(_texts(certified.values)).to_numpy().astype(np.int64)


def _unordered(certified: CertifiedMechanism) -> bool:
    """Return whether all values other than the true one are alike, so that their order does not matter."""
    return isinstance(certified.channel, KeepOrSpread) and certified.named is not None


def digits_of(mechanism: Mechanism) -> str:
    """Return the 32 digits of the fingerprint of a mechanism, which distinguish what it draws from what others draw."""
    return certify(mechanism).derived(_digits)


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
