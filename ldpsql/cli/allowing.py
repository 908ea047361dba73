"""The allow-list in a settings file; the rest of the file, also its comments, stays as it is."""

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


def allow(name: str, *, user: bool) -> list[Path]:
    """Allow the package of an installed plugin in the user's own file and, unless ``user``, in the project's; return the files.

    The command is the user's consent. A project's file alone allows nothing, because it may be part of a download.
    """
    package = short_name(package_of(installed(name)))
    return [change(package, allowed=True, user=True), *([] if user else [change(package, allowed=True, user=False)])]


def change(name: str, *, allowed: bool, user: bool) -> Path:
    """Add a plugin to the allow-list, or remove it; return the file, which is created if it does not exist."""
    path = _file(user=user)
    document = _read(path)
    listed = document.setdefault("plugins", tomlkit.table()).setdefault("allow", tomlkit.array())
    if allowed and name not in listed:
        listed.append(name)
    for item in [item for item in listed if not allowed and short_name(item) == short_name(name)]:
        listed.remove(item)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(tomlkit.dumps(document), encoding="utf-8")
    return path


def disallow(name: str, *, user: bool) -> Path:
    """Remove a plugin from the allow-list; return the file that allowed it.

    Raises:
        UnknownName: if the file does not allow it.

    """
    listed, package = _allowed(user=user), next(iter(packages_of(name)), name)
    if not is_allowed(package, user=user):
        hint = "does LDPSQL_PLUGINS allow it, or your own file (--user)? see ldpsql plugins list"
        raise UnknownName("allowed plugin", name, listed, hint)
    return change(package, allowed=False, user=user)


def is_allowed(name: str, *, user: bool) -> bool:
    """Return whether the file allows a package."""
    return short_name(name) in map(short_name, _allowed(user=user))


def warn_of_environment() -> None:
    """Write a note on stderr if the environment overrides the files."""
    if "LDPSQL_PLUGINS" in os.environ:
        sys.stderr.write("note: LDPSQL_PLUGINS is set and takes precedence over this file\n")


def _allowed(*, user: bool) -> list[str]:
    return list(_read(_file(user=user)).get("plugins", {}).get("allow", []))


def _file(*, user: bool) -> Path:
    return settings.user_file() if user else settings.project_file() or Path(settings.FILE)


def _read(path: Path) -> Any:
    settings.load()  # raises if something is wrong with the file
    try:
        return tomlkit.parse(path.read_text(encoding="utf-8")) if path.is_file() else tomlkit.document()
    except (TOMLKitError, OSError) as error:
        raise BadSettings(f"{path.name} cannot be changed: {error}", "edit it by hand") from None
