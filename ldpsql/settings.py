"""Settings: the project's ``ldpsql.toml``, found upward from here, goes before the user's; the environment before both.

Four sections are known. ``[plugins] allow = ["coin"]`` lists the installed plugins that may be loaded (LDPSQL_PLUGINS);
``[mechanisms] city = "krr(epsilon=1, domain=['Lima', 'Oslo'])"`` names a mechanism, which is then ``city`` in Python and on the
command line and ``ldp.m.city()`` in SQL; ``[defaults] format = "json"`` is for the command line (LDPSQL_FORMAT); ``[ledger]``
has the path of the ledger (LDPSQL_LEDGER), the key of permanent reports (LDPSQL_KEY), and the ledger's policy.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ldpsql.errors import BadSettings

FILE = "ldpsql.toml"
DEFAULTS = ("format", "estimator")
_KNOWN: dict[str, tuple[str, ...] | None] = {"plugins": ("allow",), "mechanisms": None, "defaults": DEFAULTS, "ledger": None}
_EXAMPLE = 'for example [plugins] and below it allow = ["name"]'


@dataclass(frozen=True)
class Settings:
    """What the settings files say; ``allow`` is None where no file speaks of plugins."""

    project: Path | None = None
    user: Path | None = None
    allow: frozenset[str] | None = None
    mechanisms: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    ledger: Mapping[str, Any] = field(default_factory=dict)


def load() -> Settings:
    """Read the files that apply in the current folder.

    Raises:
        BadSettings: for a file that cannot be read or holds something that is not known.

    """
    project, user = project_file(), user_file()
    layers = [_read(path) for path in (user, project) if path is not None and path.is_file()]
    merged: dict[str, dict[str, Any]] = {name: {} for name in _KNOWN}
    for layer in layers:
        for section, entries in layer.items():
            merged[section] |= entries
    allow = merged["plugins"].get("allow")
    allowed = None if allow is None else frozenset(allow)
    return Settings(project, user, allowed, merged["mechanisms"], merged["defaults"], merged["ledger"])


def project_file() -> Path | None:
    """Return the nearest ``ldpsql.toml`` at or above the current folder."""
    here = Path.cwd()
    return next((file for folder in (here, *here.parents) if (file := folder / FILE).is_file()), None)


def user_file() -> Path:
    """Return the user's own file, which need not exist: LDPSQL_CONFIG, else where the platform keeps settings."""
    told = os.environ.get("LDPSQL_CONFIG")
    if told:
        return Path(told)
    import typer  # noqa: PLC0415  # slow to import

    return Path(typer.get_app_dir("ldpsql")) / FILE


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise BadSettings(f"{path.name} cannot be read: {error}", _EXAMPLE) from None
    for section, entries in told.items():
        known = _KNOWN.get(section, ())
        if section not in _KNOWN or not isinstance(entries, dict) or (known and entries.keys() - set(known)):
            raise BadSettings(f"{path.name} holds a section or a key that is not known", f"known sections: {', '.join(_KNOWN)}")
    allow = told.get("plugins", {}).get("allow", [])
    if not isinstance(allow, list) or not all(isinstance(name, str) for name in allow):
        raise BadSettings(f"allow in {path.name} must be a list of names", _EXAMPLE)
    if not all(isinstance(value, str) for value in told.get("defaults", {}).values()):
        raise BadSettings(f"the defaults in {path.name} must be texts", 'for example format = "json"')
    if not all(isinstance(value, str | dict) for value in told.get("mechanisms", {}).values()):
        raise BadSettings(
            f"the mechanisms in {path.name} must be texts", "for example city = \"krr(epsilon=1, domain=['a', 'b'])\""
        )
    ledger = told.get("ledger", {})
    for name in ("path", "key"):
        if not isinstance(ledger.get(name, ""), str):
            raise BadSettings(f"{name} of the ledger in {path.name} must be a text", 'for example path = "budget.ledger"')
        if name in ledger:  # relative to the file that says so
            ledger[name] = str(path.parent / ledger[name])
    return told
