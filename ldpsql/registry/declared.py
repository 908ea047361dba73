"""Mechanisms that SQL declared by name, with ``ldp.declare``: each catalog has its own names."""

from __future__ import annotations

import re
from threading import Lock

from ldpsql.errors import InvalidParameter, UnknownName
from ldpsql.mechanisms.base import Mechanism, certify

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)


class Declarations:
    """Mechanisms by catalog and name. SQL does not distinguish upper from lower case, so neither do the names."""

    def __init__(self) -> None:
        self._mechanisms: dict[int, dict[str, Mechanism]] = {}
        self._lock = Lock()

    def declare(self, catalog: int, name: str, mechanism: Mechanism, *, replace: bool = False) -> None:
        """Certify a mechanism and store it under a name.

        Args:
            catalog: the number of the catalog.
            name: the name, of letters, digits and _.
            mechanism: the mechanism.
            replace: whether it takes the place of another mechanism of that name.

        Raises:
            InvalidParameter: if the name is not a plain one, or that of another mechanism.
            NotPrivate, InvalidParameter, PluginError: if the mechanism cannot be certified.

        """
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise InvalidParameter("a declared mechanism needs a name of letters, digits and _", "for example item")
        certify(mechanism)
        with self._lock:
            names = self._mechanisms.setdefault(catalog, {})
            if not replace and names.get(name.casefold(), mechanism) != mechanism:
                raise InvalidParameter(
                    "another mechanism, or another version of its domain, is declared under this name",
                    "choose another name, such as item_2, or replace := true",
                )
            names[name.casefold()] = mechanism

    def declared(self, catalog: int, name: str) -> Mechanism:
        """Return the mechanism of a name.

        Raises:
            UnknownName: if there is none.

        """
        names = self.names(catalog)
        if not isinstance(name, str) or name.casefold() not in names:
            raise UnknownName("declared mechanism", str(name), names, "SELECT ldp.declare('item', ldp.krr(...)) declares one")
        return names[name.casefold()]

    def names(self, catalog: int) -> dict[str, Mechanism]:
        """Return all mechanisms of a catalog by their names, in alphabetical order."""
        with self._lock:
            return dict(sorted(self._mechanisms.get(catalog, {}).items()))

    def everywhere(self) -> list[Mechanism]:
        """Return the mechanisms of all catalogs."""
        with self._lock:
            return [mechanism for declared in self._mechanisms.values() for mechanism in declared.values()]


DECLARATIONS = Declarations()
