"""What ``ldpsql plugins`` does: the allow-list, installation, the files of a new plugin, and the conformance suite."""

from __future__ import annotations

import keyword
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from importlib import invalidate_caches
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomlkit
from packaging.utils import canonicalize_name
from tomlkit.exceptions import TOMLKitError

from ldpsql import settings
from ldpsql.errors import BadSettings, InvalidParameter, LdpError, PluginError, UnknownName
from ldpsql.registry.hookspecs import package_of, packages_of
from ldpsql.settings import short_name

if TYPE_CHECKING:
    from ldpsql.estimators.base import Estimator
    from ldpsql.registry.registry import Plugin


def installed(name: str) -> EntryPoint:
    """Return the entry point of an installed plugin, by its name or that of its package."""
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
    """Remove a plugin from the user's own file, which revokes it in every folder; return the file."""
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


def install(package: str) -> list[str]:
    """Install a package and return the names of its plugins."""
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


_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}", re.ASCII)

MECHANISM = '''\
"""The {name} mechanism.

Say here who proposed it, where and when.
"""

from ldpsql.mechanisms import CategoricalMechanism, Channel, KeepOrSpread, Mechanism, hookimpl


class {Name}(CategoricalMechanism):
    """{Title} mechanism: keep the value with probability e^epsilon/(e^epsilon+k-1), else report any other evenly.

    Say here what is reported, and when to choose it.

    >>> channel = {Name}(epsilon=1, domain=["Lima", "Oslo", "Rome"]).channel()
    >>> channel.probabilities().round(3)[0].tolist()
    [0.576, 0.212, 0.212]
    """

    name = "{name}"

    def channel(self) -> Channel:
        """Return the channel that keeps as often as epsilon allows."""
        return KeepOrSpread.within(len(self.domain), self.epsilon.exp_below())


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer {name}."""
    return [{Name}]
'''

TEST = '''\
"""The conformance check is the test of a mechanism."""

import doctest

import ldpsql_{name}
import pytest

from ldpsql.testing import check_mechanism


@pytest.mark.parametrize("epsilon", ["0.5", "1", "4"])
def test_{name}_conforms(epsilon: str) -> None:
    check_mechanism(ldpsql_{name}.{Name}(epsilon=epsilon, domain=["no", "perhaps", "yes"]))


def test_the_example_is_right() -> None:
    assert doctest.testmod(ldpsql_{name}).failed == 0
'''

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "ldpsql-{dashed}"
version = "0.1.0"
description = "The {name} mechanism for ldpsql."
requires-python = ">=3.11"
dependencies = ["ldpsql"]

# ldpsql finds the plugin by this entry point, and loads it if LDPSQL_PLUGINS or ldpsql.toml names `{name}`.
[project.entry-points.ldpsql]
{name} = "ldpsql_{name}"

[tool.hatch.build.targets.wheel]
only-include = ["ldpsql_{name}.py"]
"""

README = """\
# ldpsql-{dashed}
The {name} mechanism for ldpsql.

```console
ldpsql plugins check .
ldpsql plugins install .
ldpsql plugins enable {name}
LDPSQL_PLUGINS={name} python -m pytest
ldpsql sql -c "SELECT ldp.perturb('yes', ldp.{name}(1, ['no', 'yes']))"
```
"""


def write(name: str, directory: Path) -> Path:
    """Write the project ``ldpsql-NAME`` below a directory and return its folder."""
    from ldpsql.registry.registry import registry

    if not _NAME.fullmatch(name):
        raise InvalidParameter("a mechanism needs a name of lowercase letters, digits and _", "for example spinner")
    taken = {*registry().mechanisms, *registry().estimators}
    if name in taken or keyword.iskeyword(name):
        raise InvalidParameter(f"the name '{name}' is taken", "choose another name: each name belongs to one plugin")
    words = {
        "name": name,
        "dashed": name.replace("_", "-"),
        "Name": "".join(part.capitalize() for part in name.split("_")),
        "Title": name.replace("_", " ").capitalize(),
    }
    folder = directory / f"ldpsql-{words['dashed']}"
    if folder.exists():
        raise InvalidParameter("a folder of this name exists", "choose another --directory, or another name")
    files = {f"ldpsql_{name}.py": MECHANISM, f"tests/test_{name}.py": TEST, "pyproject.toml": PYPROJECT, "README.md": README}
    for file, text in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text.format(**words), encoding="utf-8")
    return folder


def verdicts(target: str, mechanisms: list[str]) -> list[dict[str, Any]]:
    """Check what a plugin offers; return one row a check: what, verdict ("conforms" or "fails") and reason.

    Args:
        target: an installed plugin, a mechanism, an estimator, a ``.py`` file or a folder with a ``pyproject.toml``.
        mechanisms: the mechanisms to check, as text; by default those that `ldpsql.testing.examples` makes.
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
