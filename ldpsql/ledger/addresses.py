"""Addresses on the network as names of data: without what opens them."""

from __future__ import annotations

import re

_SECRET = re.compile(r"(?<=://)[^/]*@|[?#][^/?#]*=.*")  # in an address: a user with a password, a signature


def without_secrets(name: str) -> str:
    """Return a name; without the user and the query if it is an address, since these can hold a password or a signature.

    >>> without_secrets("https://me:secret@host/people.parquet?sig=abc")
    'https://host/people.parquet'
    """
    return _SECRET.sub("", name) if "://" in name else name
