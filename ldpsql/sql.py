"""What a plugin hands to a DuckDB connection: scalar functions in Python, and macros as SQL text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ldpsql.errors import InternalError, LdpError

_CATALOG = re.compile(r"\bldp\.")


@dataclass(frozen=True)
class Scalar:
    """A module-level Arrow function: one Arrow column an argument, of any type, to one column of type ``returns``.

    ``volatile`` is for functions that draw: DuckDB then calls them for every row and never folds or merges two calls.
    """

    name: str
    function: Callable[..., Any]
    returns: str
    volatile: bool = False


@dataclass(frozen=True)
class Macros:
    """SQL text that creates macros in the catalog ``ldp``; `attach` puts in the name it was given."""

    text: str

    @classmethod
    def beside(cls, module_file: str) -> Macros:
        """Read the ``.sql`` file beside a module."""
        return cls(Path(module_file).with_suffix(".sql").read_text(encoding="utf-8"))

    def statements(self, catalog: str) -> str:
        """Return the text for a catalog of this name."""
        quoted = '"' + catalog.replace('"', '""') + '".'
        return _CATALOG.sub(lambda _: quoted, self.text)


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let only ldpsql's own errors out of a function, without traceback: any other message may hold a raw value.

    The wrapper shows no annotations, so DuckDB accepts arguments of any type.
    """

    def call(*columns: Any) -> Any:
        try:
            return function(*columns)
        except LdpError as error:
            raise error.with_traceback(None) from None
        except Exception:  # noqa: BLE001  # whatever it was, its text stays here
            raise InternalError(f"{function.__name__} failed", "please report how it was called, without the data") from None

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    return call


def struct_text(fields: dict[str, str]) -> str:
    """Return a SQL struct of named expressions."""
    return "{" + ", ".join(f"'{name}': {expression}" for name, expression in fields.items()) + "}"
