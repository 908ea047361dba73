"""The allow-list in a settings file; all else that is written there, comments too, stays as it is."""

from __future__ import annotations

import os
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from ldpsql import settings
from ldpsql.errors import BadSettings, UnknownName


def installed(name: str) -> EntryPoint:
    """Return an installed plugin.

    Raises:
        UnknownName: where none of this name is installed.

    """
    points = {point.name: point for point in entry_points(group="ldpsql")}
    if name not in points:
        raise UnknownName("installed plugin", name, points, "none is: ldpsql plugins install PACKAGE")
    return points[name]


def change(name: str, *, allowed: bool, user: bool) -> Path:
    """Allow a plugin, or allow it no longer; return the file that says so, made where there was none."""
    path = _file(user=user)
    told = _read(path)
    listed = told.setdefault("plugins", tomlkit.table()).setdefault("allow", tomlkit.array())
    if allowed and name not in listed:
        listed.append(name)
    elif not allowed and name in listed:
        listed.remove(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(tomlkit.dumps(told), encoding="utf-8")
    return path


def disallow(name: str, *, user: bool) -> Path:
    """Allow a plugin no longer; return the file that allowed it.

    Raises:
        UnknownName: where the file does not allow it.

    """
    listed = _allowed(user=user)
    if name not in listed:
        where = "is LDPSQL_PLUGINS, or with --user your own file, what allows it? see ldpsql plugins list"
        raise UnknownName("allowed plugin", name, listed, where)
    return change(name, allowed=False, user=user)


def is_allowed(name: str, *, user: bool) -> bool:
    """Tell whether the file allows a plugin."""
    return name in _allowed(user=user)


def warn_of_environment() -> None:
    """Say on stderr where the environment goes before the files."""
    if "LDPSQL_PLUGINS" in os.environ:
        sys.stderr.write("note: LDPSQL_PLUGINS is set and goes before this file\n")


def _allowed(*, user: bool) -> list[str]:
    return list(_read(_file(user=user)).get("plugins", {}).get("allow", []))


def _file(*, user: bool) -> Path:
    return settings.user_file() if user else settings.project_file() or Path(settings.FILE)


def _read(path: Path) -> Any:
    settings.load()  # refuses what is wrong with it
    try:
        return tomlkit.parse(path.read_text(encoding="utf-8")) if path.is_file() else tomlkit.document()
    except (TOMLKitError, OSError) as error:
        raise BadSettings(f"{path.name} cannot be changed: {error}", "edit it by hand") from None
