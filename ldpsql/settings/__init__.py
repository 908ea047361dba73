"""Settings: the environment overrides the project's ``ldpsql.toml`` (in this folder or above), which overrides the user's.

There are six sections. ``[plugins] allow = ["coin"]`` lists the packages whose plugins may be loaded (LDPSQL_PLUGINS): a
project's file may come with a download, so it allows only those that the user's own file allows too, and turns off the others.
``[mechanisms] city = "krr(epsilon=1, domain=['Lima', 'Oslo'])"`` names a mechanism, which is then ``city`` in Python and on the
command line and ``ldp.m.city()`` in SQL. ``[defaults] format = "json"`` is for the command line (LDPSQL_FORMAT). ``[ledger]``
has the path of the ledger (LDPSQL_LEDGER), the key of permanent reports (LDPSQL_KEY), and the ledger's policy.
``[tables.people]`` is the policy of a table: the mechanisms of its columns, the total epsilon of a row and the columns to keep.
``[lineage]`` has the address or the file that gets an event of OpenLineage for each release of a ledger.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ldpsql import system

FILE = "ldpsql.toml"
_MERGED = ("mechanisms", "defaults", "tables", "ledger", "lineage")  # the project's entries replace the user's


@dataclass(frozen=True)
class Settings:
    """The content of the settings files; ``allow`` is None if the user's own file allows no plugins."""

    project: Path | None = None
    user: Path | None = None
    allow: frozenset[str] | None = None
    mechanisms: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, Any] = field(default_factory=dict)
    ledger: Mapping[str, Any] = field(default_factory=dict)
    lineage: Mapping[str, str] = field(default_factory=dict)

    @property
    def allowed(self) -> frozenset[str]:
        """The packages whose plugins may be loaded: those that LDPSQL_PLUGINS names, or those of the settings."""
        if "LDPSQL_PLUGINS" not in os.environ:
            return frozenset(short_name(name) for name in self.allow or ())
        return frozenset(short_name(name) for name in _of_variable() if not _is_path(name)) - {"", "0"}

    @property
    def files(self) -> tuple[Path, ...]:
        """The files and folders of plugins that LDPSQL_PLUGINS names; settings name packages only."""
        return tuple(Path(name) for name in _of_variable() if _is_path(name))


def _of_variable() -> list[str]:
    return [name.strip() for name in os.environ.get("LDPSQL_PLUGINS", "").split(",")]


def _is_path(name: str) -> bool:
    """Return whether a name is that of a file or a folder, such as ./coin.py or ./plugins, and not of a package."""
    return name.endswith(".py") or "/" in name or os.sep in name


def load() -> Settings:
    """Return the settings that apply in the current folder.

    Raises:
        BadSettings: if a file cannot be read or contains an unknown section or key.

    """
    project, user = project_file(), user_file()
    own, shared = _sections(user), _sections(project)
    allowed = _consented(own.get("plugins", {}).get("allow"), shared.get("plugins", {}).get("allow"))
    merged = {name: own.get(name, {}) | shared.get(name, {}) for name in _MERGED}
    return Settings(project, user, allowed, **merged)


@cache
def of_process() -> Settings:
    """Return the settings that applied when this process first asked for them, whatever its folder is now."""
    return load()


def _sections(path: Path | None) -> dict[str, dict[str, Any]]:
    if path is None or not path.is_file():
        return {}
    from ldpsql.settings.sections import read  # noqa: PLC0415  # pydantic is slow to import

    return read(path)


def _consented(own: list[str] | None, shared: list[str] | None) -> frozenset[str] | None:
    """Return the plugins that the user's own file allows, reduced to those of the project's file if that lists plugins."""
    if own is None or shared is None or "*" in shared:
        return None if own is None else frozenset(own)
    if "*" in own:
        return frozenset(shared)
    return frozenset(name for name in own if short_name(name) in {short_name(other) for other in shared})


def short_name(package: str) -> str:
    """Return the name of a package in the allow-list: normalised as package names are, without the prefix ``ldpsql-``."""
    from packaging.utils import canonicalize_name  # noqa: PLC0415  # without plugins, nothing needs it

    return canonicalize_name(package).removeprefix("ldpsql-")


def project_file() -> Path | None:
    """Return the nearest ``ldpsql.toml`` at or above the current folder."""
    here = Path.cwd()
    return next((file for folder in (here, *here.parents) if (file := folder / FILE).is_file()), None)


def user_file() -> Path:
    """Return the path of the user's own file, which need not exist: LDPSQL_CONFIG, else in the platform's settings folder."""
    path = os.environ.get("LDPSQL_CONFIG")
    return Path(path) if path else system.settings_folder() / "ldpsql" / FILE
