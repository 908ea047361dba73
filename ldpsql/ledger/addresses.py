"""Addresses on the network and connection strings as names of data: without what opens them."""

from __future__ import annotations

import re

_USER = re.compile(r"(?<=://)[^/]*@")  # with a password
_SIGNATURE = re.compile(r"[?#][^/?#]*=.*", re.DOTALL)  # without =, ? may be a pattern of files
_QUERY = re.compile(r"(https?://[^?#]*)[?#].*", re.DOTALL | re.IGNORECASE)  # on the web it never is: it may be a bare token
# password=..., Pwd=..., motherduck_token=... of a connection string; its value may be quoted, also within a string of SQL.
_CREDENTIAL = re.compile(
    r"""(?<![\w/])(\w*(?:pass(?:w(?:or)?d|phrase)?|pwd|auth|credentials?|sas|token|secret|signature|(?:account|access|api|private)_?key)\s*=)
    \s*(?:''.*?''|'(?:\\.|[^'\\])*'|"(?:""|[^"])*"|(?:\\.|[^\s;'"\\])*)""",
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)


def without_secrets(name: str) -> str:
    """Return a name without passwords and tokens; an address without its user and query, since these can hold them.

    >>> without_secrets("https://me:secret@host/people.parquet?sig=abc")
    'https://host/people.parquet'
    >>> without_secrets("dbname=shop password=secret host=db")
    'dbname=shop password= host=db'
    """
    name = _CREDENTIAL.sub(r"\1", name)
    return _SIGNATURE.sub("", _QUERY.sub(r"\1", _USER.sub("", name))) if "://" in name else name
