"""Fingerprints: which mechanism drew a column of reports, written next to the reports, and compared before they are estimated.

A fingerprint is one line of text: ``ldpsql:``, 32 hexadecimal digits, a dot, 16 digits of the channel, and the mechanism as
text; of a long domain, the text has only length and digits. Arrow and Parquet keep it in the metadata of the schema, under
``ldpsql.mechanism.COLUMN``; DuckDB in the comment of the column. The digits are the same for mechanisms that draw alike: rules
for NULL and other values do not count, nor does the type of a declared value. Those of the channel differ if a plugin draws
otherwise with the same parameters; a record without them fits any channel.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from itertools import product
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.channels import KeepOrSpread
from ldpsql.channels.exported import digest as channel_digest
from ldpsql.domains.domain import Domain
from ldpsql.domains.product import Product
from ldpsql.errors import LdpError, OtherMechanism, UnmarkedReports
from ldpsql.mechanisms.base import CertifiedMechanism, Mechanism, certify
from ldpsql.mechanisms.parts import Parts
from ldpsql.registry.registry import registry

KEY = "ldpsql.mechanism."
_SHORT = 20_000  # characters of a mechanism as text
_LINE = re.compile(r"\bldpsql:([0-9a-f]{32})(?:\.([0-9a-f]{16}))?(?: (.*))?")
_SAID = 200
_PART = 1 << 14  # values of a domain at a time

Fingerprints: TypeAlias = frozenset[str]  # lines of text, one for each mechanism that drew reports of a column
NONE: Fingerprints = frozenset()


def fingerprint(mechanism: Mechanism) -> str:
    """Return the fingerprint of a mechanism."""
    return certify(mechanism).derived(_fingerprint)


def _fingerprint(certified: CertifiedMechanism) -> str:
    mechanism = certified.mechanism
    text = _text(mechanism, _SHORT) or _abridged(mechanism)
    both = f"{_digits(certified)}.{_channel_digits(certified)}"
    return f"ldpsql:{both} {text if text.isprintable() else mechanism.name}"


def _text(mechanism: Mechanism, most: int) -> str | None:
    """Return a mechanism as text, None if that has more characters; a long domain is not written."""
    parameters = [getattr(mechanism, name) for name in type(mechanism).model_fields]
    columns = [part.mechanism for value in parameters if isinstance(value, Parts) for part in value]
    domains = [value for value in parameters if isinstance(value, Domain)]
    sizes = [sum(value.shape) if isinstance(value, Product) else len(value) for value in domains]
    long = max(sizes, default=0) > most
    if long or any(_text(part, most) is None for part in columns):
        return None
    text = str(mechanism)
    return text if len(text) <= most else None


def _abridged(mechanism: Mechanism) -> str:
    """Return a mechanism as text, with the lengths and the digits of its domains instead of their values."""
    values = {name: getattr(mechanism, name) for name in type(mechanism).model_fields}
    domains = {
        name: {"length": len(value), "fingerprint": value.digits} for name, value in values.items() if isinstance(value, Domain)
    }
    parameters = {name: domains.get(name, value) for name, value in (mechanism.given(without=domains) | domains).items()}
    text = f"{mechanism.name}({', '.join(f'{name}={value!r}' for name, value in parameters.items())})"
    return text if len(text) <= _SHORT else mechanism.name


def _digits(certified: CertifiedMechanism) -> str:
    """Return the digest of the name and the parameters that decide what is drawn."""
    mechanism = certified.mechanism
    domains = {name for name in type(mechanism).model_fields if isinstance(getattr(mechanism, name), Domain)}
    names = {*mechanism.given(without=domains), *domains} - {"nulls", "outside"}
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
        yield json.dumps({part.column: _digits(certify(part.mechanism)) for part in value}, sort_keys=True)
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


def metadata(mechanisms: Mapping[str, Mechanism]) -> dict[str, str]:
    """Return the metadata of a schema whose columns these mechanisms drew."""
    return {f"{KEY}{column}": fingerprint(mechanism) for column, mechanism in mechanisms.items()}


def of_schema(schema: pa.Schema, column: str) -> Fingerprints:
    """Return the fingerprints of a column in the metadata of a schema, as Arrow, Parquet or Spark wrote them."""
    keys = {key.decode(errors="replace").casefold(): value for key, value in (schema.metadata or {}).items()}
    written = keys.get(f"{KEY}{column}".casefold(), b"").decode(errors="replace")
    return of_text(written) | _of_spark(keys.get("org.apache.spark.sql.parquet.row.metadata", b"{}"), column)


def _of_spark(row: bytes, column: str) -> Fingerprints:
    try:
        fields = json.loads(row).get("fields", [])
        texts = [field["metadata"].get(KEY[:-1], "") for field in fields if field["name"].casefold() == column.casefold()]
    except (ValueError, KeyError, AttributeError, TypeError):  # written by something else
        return NONE
    return of_text("\n".join(map(str, texts)))


def of_text(text: str | None) -> Fingerprints:
    """Return the fingerprints in a text, such as a comment."""
    return frozenset(match[0] for match in _LINE.finditer(text or ""))


def digits(fingerprints: Iterable[str]) -> set[str]:
    """Return the digits of fingerprints, which distinguish mechanisms."""
    return {match[1] for line in fingerprints if (match := _LINE.match(line))}


def identifier(mechanism: Mechanism) -> str:
    """Return eight digits of the fingerprint of a mechanism, for names that other mechanisms should not share."""
    (own,) = digits([fingerprint(mechanism)])
    return own[:8]


def marks(fingerprints: Iterable[str]) -> set[tuple[str, str]]:
    """Return the digits of mechanisms and of their channels; '' if a record has none of the channel."""
    return {(match[1], match[2] or "") for line in fingerprints if (match := _LINE.match(line))}


def agree(fingerprints: Iterable[str], others: Iterable[str]) -> bool:
    """Return whether all fingerprints of one set stand for the same channel as all of another set."""
    pairs = product(marks(fingerprints), marks(others))
    return all(one[0] == other[0] and (one[1] == other[1] or "" in (one[1], other[1])) for one, other in pairs)


def several(fingerprints: Iterable[str]) -> bool:
    """Return whether fingerprints stand for different mechanisms."""
    lines = list(fingerprints)
    return not agree(lines, lines)


def check(fingerprints: Fingerprints, mechanism: Mechanism) -> None:
    """Refuse reports that another mechanism drew, or several; those without a fingerprint pass.

    Raises:
        OtherMechanism: if another mechanism drew them, or several did.

    """
    if not marks(fingerprints) or agree(fingerprints, [own := fingerprint(mechanism)]):
        return
    if several(fingerprints):
        raise OtherMechanism("several mechanisms drew these reports", "estimate the reports of each by themselves")
    if digits(fingerprints) == digits([own]):
        raise OtherMechanism(
            f"{_short(mechanism)} drew these reports with other probabilities than it has now",
            "its plugin, or ldpsql, was changed: estimate with the version that drew them",
        )
    drawn, own = _described(next(iter(fingerprints))), _short(mechanism)
    raise OtherMechanism(
        f"{drawn} drew these reports" + (f", and {own} is to estimate them" if drawn != own else ""),
        "estimate with the mechanism that drew them; with another version of its domain it is another mechanism",
    )


def together(parts: Iterable[Fingerprints]) -> Fingerprints:
    """Return the fingerprints of counts that are added up.

    Raises:
        OtherMechanism: if different mechanisms drew them.

    """
    union = frozenset[str]().union(*parts)
    if several(union):
        raise OtherMechanism("reports of different mechanisms do not add up", "estimate them separately")
    return union


def written_mechanism(line: str) -> Mechanism | None:
    """Return the mechanism that a fingerprint writes out; None if the text is not that of a mechanism with these digits."""
    match = _LINE.match(line)
    try:
        mechanism = registry().mechanism(match[3]) if match and match[3] else None
        same = mechanism is not None and digits([fingerprint(mechanism)]) == digits([line])
    except LdpError:
        return None
    return mechanism if same else None


def _described(line: str) -> str:
    """Return the mechanism that a fingerprint names; only what is a mechanism of these digits is repeated in a message."""
    mechanism = written_mechanism(line)
    return _short(mechanism) if mechanism is not None else "another mechanism"


def _short(mechanism: Mechanism) -> str:
    return _text(mechanism, _SAID) or f"{mechanism.name} with other parameters or another domain"


@lru_cache(maxsize=1)
def warn_unmarked() -> None:
    """Warn, once in a process, that no fingerprint names the mechanism that drew the reports."""
    warnings.warn(f"{UNMARKED}: {REMEDY}", UnmarkedReports, stacklevel=3)


UNMARKED = "nothing says which mechanism drew these reports, so nothing was compared"
REMEDY = "a raw column or the reports of another mechanism may give plausible estimates"
