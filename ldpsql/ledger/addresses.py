"""Addresses on the network as names of data: without what opens them."""

from __future__ import annotations

import re

_USER = re.compile(r"(?<=://)[^/]*@")  # with a password
_SIGNATURE = re.compile(r"[?#][^/?#]*=.*", re.DOTALL)  # without =, ? may be a pattern of files
_QUERY = re.compile(r"(https?://[^?#]*)[?#].*", re.DOTALL | re.IGNORECASE)  # on the web it never is: it may be a bare token


def without_secrets(name: str) -> str:
    """Return a name; without the user and the query if it is an address, since these can hold a password or a signature.

    >>> without_secrets("https://me:secret@host/people.parquet?sig=abc")
    'https://host/people.parquet'
    """
    return _SIGNATURE.sub("", _QUERY.sub(r"\1", _USER.sub("", name))) if "://" in name else name
