"""The conformance suite over a plugin, as rows with a verdict."""

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
        mechanisms: how to make the mechanisms to check; by default as `ldpsql.testing.examples` guesses.

    Raises:
        PluginError: if it cannot be loaded, or offers nothing that can be checked.

    """
    from ldpsql.registry.registry import registry
    from ldpsql.testing import check_mechanism, examples

    names, known = _offered(target), registry()
    made = [known.mechanism(text) for text in mechanisms]
    made += [] if made else [one for name in names if name in known.mechanisms for one in examples(known.mechanisms[name])]
    checks = [(str(mechanism), partial(check_mechanism, mechanism)) for mechanism in made]
    checks += [(name, partial(_check_estimator, known.estimators[name])) for name in names if name in known.estimators]
    checks += [(f"command {name}", partial(_check_command, known.commands[name])) for name in names if name in known.commands]
    if not checks:
        raise PluginError("nothing could be made to check", "say how to make it: --mechanism \"coin(1, ['no', 'yes'])\"")
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
    except Exception as error:  # noqa: BLE001  # what the command line says of a function is its own
        raise AssertionError(f"the command line cannot be made of it: {error}") from None


def _verdict(check: Callable[[], None]) -> dict[str, str]:
    try:
        check()
    except (AssertionError, LdpError) as error:
        return {"verdict": "fails", "reason": str(error)}
    return {"verdict": "conforms", "reason": "-"}


def _offered(target: str) -> list[str]:
    """Load a plugin if need be, and return the names of the mechanisms, estimators and commands that it offers."""
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
        raise PluginError("the project's pyproject.toml cannot be read", "see what: ldpsql plugins new") from None
    points: dict[str, str] = project_file.get("project", {}).get("entry-points", {}).get("ldpsql", {})
    if not points:
        raise PluginError("the project has no entry point in the group ldpsql", "see what: ldpsql plugins new")
    return points


def _load(name: str, module: str, folder: Path) -> Plugin:
    from ldpsql.registry.registry import Plugin, registry

    os.environ["LDPSQL_PLUGINS"] = ""  # the copy in hand, not an installed one
    sys.path[:0] = [str(folder.resolve()), str((folder / "src").resolve())]
    plugin = Plugin(name, str(folder), "-", "ok")
    registry().add_module(module, plugin)
    return _usable(plugin)


def _usable(plugin: Plugin) -> Plugin:
    if plugin.status != "ok":
        raise PluginError(f"the plugin '{plugin.name}' is {plugin.status}: {plugin.reason}", "fix that first")
    return plugin


def _installed(target: str) -> list[str]:
    """Return what an installed plugin offers; it is loaded for this check whether it is allowed or not."""
    if "*" not in os.environ.get("LDPSQL_PLUGINS", ""):
        os.environ["LDPSQL_PLUGINS"] = ",".join([*os.environ.get("LDPSQL_PLUGINS", "").split(","), *packages_of(target)])
    from ldpsql.registry.registry import registry

    found = next((p for p in registry().plugins if target in (p.name, p.package) and p.status != "not installed"), None)
    if found is None and target in {**registry().mechanisms, **registry().estimators}:
        return [target]
    if found is None:
        known = [
            *registry().mechanisms,
            *(p.name for p in registry().plugins if not p.built_in and p.status != "not installed"),
        ]
        raise UnknownName("plugin", target, known)
    return [offer.split()[-1] for offer in _usable(found).offers]
