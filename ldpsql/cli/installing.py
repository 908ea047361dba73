"""Installs and removes packages with uv or pip; if there is neither, the error names the command to run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import invalidate_caches
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from packaging.utils import canonicalize_name

from ldpsql.cli.allowing import installed
from ldpsql.errors import PluginError
from ldpsql.registry.discovery import package_of, packages_of


def install(package: str) -> list[str]:
    """Install a package and return the names of its plugins.

    Raises:
        PluginError: if it cannot be installed, or has no plugins.

    """
    # A folder needs its full path: a name alone would be looked up in the package index.
    _run("install", str(Path(package).resolve()) if Path(package).exists() else package)
    invalidate_caches()
    wanted = canonicalize_name(_project_name(package))
    names = [
        point.name for point in entry_points(group="ldpsql") if point.dist and canonicalize_name(point.dist.name) == wanted
    ]
    if not names:
        raise PluginError(
            "the package was installed, but it is not a plugin", "a plugin has an entry point in the group ldpsql"
        )
    return names


def uninstall(name: str) -> str:
    """Remove the package of an installed plugin, and return the name of the package."""
    package = package_of(installed(name))
    _run("uninstall", package)
    return package


def check_in_a_new_process(name: str) -> None:
    """Run ``ldpsql plugins check`` in a new process, which can import the new package."""
    command = [sys.executable, "-m", "ldpsql", "plugins", "check", name]
    if subprocess.run(command, env={**os.environ, "LDPSQL_PLUGINS": ",".join(packages_of(name))}, check=False).returncode:  # noqa: S603
        raise PluginError(f"'{name}' is installed, but does not conform", f"remove it: ldpsql plugins uninstall {name}")


def _run(action: str, package: str) -> None:
    """Install or uninstall a package in this Python's environment; the output of the installer goes to stderr."""
    uv = shutil.which("uv")
    yes = ["--yes"] if action == "uninstall" and not uv else []
    command = [uv, "pip", action, "--python", sys.executable] if uv else [sys.executable, "-m", "pip", action, *yes]
    if not uv and find_spec("pip") is None:
        raise PluginError("neither uv nor pip was found", f"run: uv pip {action} --python {sys.executable} {package}")
    if package.startswith("-"):
        raise PluginError("this is not the name of a package", "pass a name or a folder")
    if subprocess.run([*command, package], stdout=sys.stderr, check=False).returncode:  # noqa: S603
        raise PluginError(f"the package could not be {action}ed", "see the output above")


def _project_name(package: str) -> str:
    project = Path(package) / "pyproject.toml"
    if project.is_file():
        return str(tomllib.loads(project.read_text(encoding="utf-8")).get("project", {}).get("name", ""))
    wheel = re.match(r"(.+?)-\d.*\.(?:whl|tar\.gz)$", Path(package).name)
    return wheel[1] if wheel else re.split(r"[\s\[<>=!~;@]", package, maxsplit=1)[0]
