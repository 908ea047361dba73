"""JSON text that every reader reads alike: no name of an object occurs twice."""

from __future__ import annotations

import json
from typing import Any


def read_json(text: str) -> Any:
    """Return what JSON text holds.

    Of a name that occurs twice, Python takes the last value, and other programs and people may take the first one.

    Raises:
        ValueError, RecursionError: if it cannot be read, or a name occurs twice in an object.

    """
    return json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name occurs twice")
    return members
