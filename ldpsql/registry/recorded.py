"""The mechanism that drew a column of reports, read from what is recorded next to them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from ldpsql.errors import LdpError, MechanismUnrecorded, OtherMechanism
from ldpsql.mechanisms.base import Mechanism
from ldpsql.names import ROW
from ldpsql.registry.agreement import Fingerprints, check_agreement, digits, of_sql_type, several, written_mechanism
from ldpsql.registry.declared import DECLARATIONS
from ldpsql.registry.fingerprint import digits_of
from ldpsql.registry.handles import MECHANISMS
from ldpsql.registry.registry import registry

UNRECORDED = "nothing says which mechanism drew these reports"
_REMEDY = "pass the mechanism that drew them, on the command line with -m"


def recorded(fingerprints: Fingerprints | None) -> Mechanism:
    """Return the mechanism that drew reports with these fingerprints.

    A mechanism with a long domain is not written out. It is then looked for among those that the settings name and those that
    SQL has used in this process.

    Raises:
        MechanismUnrecorded: if there is no fingerprint, or it stands for a mechanism that is not known here.
        OtherMechanism: if several mechanisms drew the reports.

    """
    if not fingerprints:
        raise MechanismUnrecorded(UNRECORDED, _REMEDY)
    if several(fingerprints):
        raise OtherMechanism("several mechanisms drew these reports", "estimate the reports of each by themselves")
    candidates = chain(map(written_mechanism, sorted(fingerprints)), _named_here())
    drew = digits(fingerprints)
    drawn_by = next((one for one in candidates if one is not None and _digits_of(one) in drew), None)
    if drawn_by is None:
        raise MechanismUnrecorded(
            "the mechanism that drew these reports is not written out, and none that is declared here has its fingerprint",
            f"{_REMEDY}, or declare it in ldpsql.toml",
        )
    check_agreement(fingerprints, drawn_by)  # a plugin may have changed what the mechanism draws
    return drawn_by


def recorded_in_type(text: str) -> Mechanism:
    """Return the mechanism that a type in SQL records, of reports or of their counts; that of a row for a struct of reports.

    Raises:
        MechanismUnrecorded, OtherMechanism: see `recorded`.

    """
    fields = of_sql_type(text)
    if not fields or "" in fields:
        return recorded(fields.get(""))
    return registry().mechanism({Mechanism.kind: ROW, "columns": {name: recorded(line) for name, line in fields.items()}})


def _digits_of(mechanism: Mechanism) -> str | None:
    """Return the digits of the fingerprint of a mechanism; None if the mechanism was refused."""
    try:
        return digits_of(mechanism)
    except LdpError:
        return None


def _named_here() -> Iterator[Mechanism]:
    """Yield the mechanisms that SQL has used, then those that the settings name and that can be read without a database."""
    yield from MECHANISMS.things()
    yield from DECLARATIONS.everywhere()
    for name in registry().named:
        try:
            yield registry().mechanism(name)
        except LdpError:  # its domain is in a table
            continue
