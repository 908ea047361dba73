"""Long domains, kept in this process under their fingerprint.

A list in a SQL expression is handled again for every vector of 2,048 rows. So a mechanism in SQL carries an empty list and the
fingerprint instead, and Python reads the values here. They are kept as long as the process lives: a prepared statement may hold
the fingerprint.
"""

from __future__ import annotations

from ldpsql.domains.domain import Domain
from ldpsql.domains.product import Product
from ldpsql.errors import InvalidSpec

LONG = 4096  # values; a domain with fewer is a list in SQL

_PINNED: dict[str, Domain] = {}


def is_long(value: object) -> bool:
    """Return whether a parameter is a domain with too many values for a list in SQL."""
    return isinstance(value, Domain) and not isinstance(value, Product) and len(value) > LONG


def pin(domain: Domain) -> str:
    """Keep a domain, and return its fingerprint."""
    _PINNED.setdefault(domain.digits, domain)
    return domain.digits


def pinned(fingerprint: object) -> Domain:
    """Return the domain with a fingerprint."""
    if not isinstance(fingerprint, str) or fingerprint not in _PINNED:
        raise InvalidSpec(
            "this mechanism was declared in another process, and its domain is not known here",
            "declare it again, with SELECT ldp.declare(name, mechanism) or in ldpsql.toml",
        )
    return _PINNED[fingerprint]
