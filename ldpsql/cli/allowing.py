"""The allow-list in the user's own settings file; the rest of the file, also its comments, stays as it is."""

from __future__ import annotations

import os
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from ldpsql import settings
from ldpsql.errors import BadSettings, PluginError, UnknownName
from ldpsql.registry.discovery import package_of, packages_of
from ldpsql.settings import short_name


def installed(name: str) -> EntryPoint:
    """Return the entry point of an installed plugin, by its name or that of its package.

    Raises:
        UnknownName: if no plugin of this name is installed.
        PluginError: if several packages have a plugin of this name.

    """
    points, packages = entry_points(group="ldpsql"), packages_of(name)
    if not packages:
        raise UnknownName("installed plugin", name, points.names, "install one: ldpsql plugins install PACKAGE")
    if len(packages) > 1:
        raise PluginError(f"several packages have a plugin named '{name}'", f"name the package: {', '.join(packages)}")
    return next(point for point in points if package_of(point) == packages[0])


def allow(name: str) -> Path:
    """Allow the package of an installed plugin in the user's own file, the only place that grants anything; return the file.

    A project's file may be part of a download, so it can only narrow what the user allows: see `narrowed`.
    """
    return _change(short_name(package_of(installed(name))), allowed=True)


def disallow(name: str) -> Path:
    """Remove a plugin from the user's own file, which revokes it in every folder; return the file.

    Raises:
        UnknownName: if the file does not allow it.
        BadSettings: if the file allows all plugins.

    """
    listed, package = _allowed(), next(iter(packages_of(name)), name)
    if "*" in listed:
        raise BadSettings(
            f"{settings.user_file()} allows all plugins", "write the names of those that you trust in place of '*'"
        )
    if not is_allowed(package):
        raise UnknownName("allowed plugin", name, listed, "does LDPSQL_PLUGINS allow it? see ldpsql plugins list")
    return _change(package, allowed=False)


def is_allowed(name: str) -> bool:
    """Return whether the user's own file names a package."""
    return short_name(name) in map(short_name, _allowed())


def warn_of_others(name: str | None = None) -> None:
    """Write a note on stderr if the environment overrides the file, or the project's file leaves out a plugin."""
    if "LDPSQL_PLUGINS" in os.environ:
        sys.stderr.write("note: LDPSQL_PLUGINS is set and takes precedence over this file\n")
    chosen = settings.load()
    if name is not None and short_name(package_of(installed(name))) not in map(short_name, chosen.allow or ()):
        sys.stderr.write(f"note: [plugins] in {chosen.project} allows other plugins only; add this one there to use it here\n")


def _change(name: str, *, allowed: bool) -> Path:
    """Add a plugin to the allow-list, or remove it; return the file, which is created if it does not exist."""
    path = settings.user_file()
    document = _read(path)
    listed = document.setdefault("plugins", tomlkit.table()).setdefault("allow", tomlkit.array())
    if allowed and name not in listed and "*" not in listed:
        listed.append(name)
    for item in [item for item in listed if not allowed and short_name(item) == short_name(name)]:
        listed.remove(item)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(tomlkit.dumps(document), encoding="utf-8")
    return path


def _allowed() -> list[str]:
    return list(_read(settings.user_file()).get("plugins", {}).get("allow", []))


def _read(path: Path) -> Any:
    settings.load()  # raises if something is wrong with the file
    try:
        return tomlkit.parse(path.read_text(encoding="utf-8")) if path.is_file() else tomlkit.document()
    except (TOMLKitError, OSError) as error:
        raise BadSettings(f"{path.name} cannot be changed: {error}", "edit it by hand") from None
