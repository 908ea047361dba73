"""Runs the conformance suite over a plugin; each check becomes a row with a verdict."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ldpsql.errors import LdpError, PluginError, UnknownName
from ldpsql.registry.discovery import packages_of

if TYPE_CHECKING:
    from ldpsql.estimators.base import Estimator
    from ldpsql.registry.registry import Plugin


def verdicts(target: str, mechanisms: list[str]) -> list[dict[str, Any]]:
    """Check what a plugin offers; return one row a check: what, verdict ("conforms" or "fails") and reason.

    Args:
        target: an installed plugin, a mechanism, an estimator, a ``.py`` file or a folder with a ``pyproject.toml``.
        mechanisms: the mechanisms to check, as text; by default those that `ldpsql.testing.examples` makes.

    Raises:
        PluginError: if it cannot be loaded, or offers nothing that can be checked.

    """
    from ldpsql.registry.registry import registry
    from ldpsql.testing import check_mechanism, examples

    names = _offered(target)
    kinds, estimators, commands = registry().mechanisms, registry().estimators, registry().commands
    made = [registry().mechanism(text) for text in mechanisms]
    made += [] if made else [example for name in names if name in kinds for example in examples(kinds[name])]
    checks = [(str(mechanism), partial(check_mechanism, mechanism)) for mechanism in made]
    checks += [(name, partial(_check_estimator, estimators[name])) for name in names if name in estimators]
    checks += [(f"command {name}", partial(_check_command, commands[name])) for name in names if name in commands]
    if not checks:
        raise PluginError("no mechanism can be made from its defaults", "write one: --mechanism \"coin(1, ['no', 'yes'])\"")
    return [{"checked": what, **_verdict(check)} for what, check in checks]


def _check_estimator(estimator: type[Estimator]) -> None:
    from ldpsql.testing import check_estimator

    check_estimator(estimator)


def _check_command(command: Callable[..., Any]) -> None:
    """Check that the command line can be made of a command."""
    import typer

    from ldpsql.cli.app import add_command

    made = typer.Typer()
    add_command(made, "command", command)
    try:
        typer.main.get_command(made)
    except Exception as error:  # noqa: BLE001  # Typer may raise anything
        raise AssertionError(f"the command line cannot be made of it: {error}") from None


def _verdict(check: Callable[[], None]) -> dict[str, str]:
    try:
        check()
    except (AssertionError, LdpError) as error:
        return {"verdict": "fails", "reason": str(error)}
    return {"verdict": "conforms", "reason": "-"}


def _offered(target: str) -> list[str]:
    """Load a plugin if it is not loaded, and return the names of the mechanisms, estimators and commands that it offers."""
    path = Path(target)
    if path.suffix == ".py" and path.is_file():
        plugins = [_load(path.stem, path.stem, path.parent)]
    elif (path / "pyproject.toml").is_file():
        plugins = [_load(name, module, path) for name, module in _entry_points(path).items()]
    else:
        return _installed(target)
    return [offer.split()[-1] for plugin in plugins for offer in plugin.offers]


def _entry_points(project: Path) -> dict[str, str]:
    try:
        project_file = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise PluginError("the project's pyproject.toml cannot be read", "for a valid one: ldpsql plugins new") from None
    points: dict[str, str] = project_file.get("project", {}).get("entry-points", {}).get("ldpsql", {})
    if not points:
        raise PluginError("the project has no entry point in the group ldpsql", "for an example: ldpsql plugins new")
    return points


def _load(name: str, module: str, folder: Path) -> Plugin:
    from ldpsql.registry.registry import Plugin, registry

    os.environ["LDPSQL_PLUGINS"] = ""  # so that an installed copy is not loaded
    sys.path[:0] = [str(folder.resolve()), str((folder / "src").resolve())]
    plugin = Plugin(name, str(folder), "-", "ok")
    registry().add_module(module, plugin)
    return _usable(plugin)


def _usable(plugin: Plugin) -> Plugin:
    if plugin.status != "ok":
        raise PluginError(f"the plugin '{plugin.name}' is {plugin.status}: {plugin.reason}", "fix that first")
    return plugin


def _installed(target: str) -> list[str]:
    """Return what an installed plugin offers; for this check it is loaded even if it is not allowed."""
    if "*" not in os.environ.get("LDPSQL_PLUGINS", ""):
        os.environ["LDPSQL_PLUGINS"] = ",".join([*os.environ.get("LDPSQL_PLUGINS", "").split(","), *packages_of(target)])
    from ldpsql.registry.registry import registry

    installed = [plugin for plugin in registry().plugins if plugin.status != "not installed"]
    plugin = next((plugin for plugin in installed if target in (plugin.name, plugin.package)), None)
    if plugin is not None:
        return [offer.split()[-1] for offer in _usable(plugin).offers]
    if target not in {**registry().mechanisms, **registry().estimators}:
        raise UnknownName("plugin", target, [*registry().mechanisms, *(p.name for p in installed if not p.built_in)])
    return [target]
