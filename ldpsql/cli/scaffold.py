"""The files of a new third-party plugin: a mechanism that works as it is, until its author puts in another channel."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

from ldpsql.errors import InvalidParameter

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
    """Write the project ``ldpsql-NAME`` below a directory and return its folder.

    Raises:
        InvalidParameter: if SQL could not call the name, or the folder exists.

    """
    if not _NAME.fullmatch(name):
        raise InvalidParameter("a mechanism needs a name of lowercase letters, digits and _", "for example spinner")
    _refuse_taken(name)
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


def _refuse_taken(name: str) -> None:
    """Refuse the name of a registered mechanism or estimator, and a keyword of Python."""
    from ldpsql.registry.registry import registry

    taken = {*registry().mechanisms, *registry().estimators}
    if name in taken or keyword.iskeyword(name):
        raise InvalidParameter(f"the name '{name}' is taken", "choose another name: each name belongs to one plugin")
