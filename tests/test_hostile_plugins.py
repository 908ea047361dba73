"""A plugin that misbehaves is named with what it did, and everything else works as if it were not there.

In-process Python is trusted code, and loaded only where the allow-list names it: these are accidents and small malice, not a
sandbox. One that calls ``os._exit`` still ends the process.
"""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

import ldpsql
from ldpsql import discovery
from ldpsql.errors import NotPrivate, PluginError
from ldpsql.registry import Registry, registry

HEAD = """
from ldpsql import CategoricalMechanism, KeepOrSpread, hookimpl
from ldpsql.privacy import Epsilon, PureLdp


class Quiet(CategoricalMechanism):
    "Somebody's mechanism."
    name = "quiet"

    def channel(self):
        return KeepOrSpread.within(len(self.domain), self.epsilon.exp_below())
"""
OFFER = """

@hookimpl
def ldpsql_mechanisms():
    return [Quiet]
"""
BROKEN = {
    "raises at import": ("raise RuntimeError('no disk')", "importing it raised RuntimeError: no disk"),
    "leaves at import": ("raise SystemExit(3)", "importing it raised SystemExit: 3"),
    "interrupts at import": ("raise KeyboardInterrupt", "importing it raised KeyboardInterrupt"),
    "misses a dependency": ("import not_installed_anywhere", "ModuleNotFoundError: No module named 'not_installed_anywhere'"),
    "is no Python": ("def (", "importing it raised SyntaxError"),
    "hangs at import": ("import time; time.sleep(60)", "TimeoutError: it was not done after 1 seconds"),
    "raises in a hook": (HEAD + "\n@hookimpl\ndef ldpsql_mechanisms():\n    1 / 0\n", "it raised ZeroDivisionError"),
    "leaves in a hook": (HEAD + "\n@hookimpl\ndef ldpsql_mechanisms():\n    raise SystemExit\n", "it raised SystemExit"),
    "returns garbage": (HEAD + "\n@hookimpl\ndef ldpsql_mechanisms():\n    return [3, None, Quiet]\n", "must return classes"),
    "takes a name": (
        HEAD.replace('"quiet"', '"krr"') + OFFER,
        "'krr' is offered by both ldpsql.plugins.mechanisms.krr",
    ),
}
# what it does when it is used -> its channel, and what is raised
USED = {
    "claims a smaller epsilon": ("return KeepOrSpread.within(len(self.domain), Epsilon.parse('3').exp_below())", NotPrivate),
    "returns a channel of another size": ("return KeepOrSpread.within(9, self.epsilon.exp_below())", ldpsql.LdpError),
    "returns no channel": ("return 'secret'", ldpsql.LdpError),
    "raises": ("raise RuntimeError('late')", PluginError),
}


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of an installed plugin; each has a name of its own, for one that hangs keeps the lock on its name."""
    name = f"hostile_{uuid4().hex}"
    info = tmp_path / "hostile-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[ldpsql]\nhostile = {name}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("LDPSQL_PLUGINS", "hostile")
    monkeypatch.setattr(discovery, "PATIENCE", 1.0)
    return tmp_path / f"{name}.py"


@pytest.mark.parametrize("deed", BROKEN)
def test_a_plugin_that_breaks_is_named_and_the_rest_works(deed: str, module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, reason = BROKEN[deed]
    module.write_text(code)
    loaded = Registry.load()
    (plugin,) = [plugin for plugin in loaded.plugins if plugin.name == "hostile"]
    assert plugin.status == "broken"
    assert reason in plugin.reason
    assert loaded.mechanisms.keys() == registry().mechanisms.keys()
    assert loaded.owner("krr") == "ldpsql.plugins.mechanisms.krr"
    monkeypatch.setattr("ldpsql.duck.registry", lambda: loaded)
    with ldpsql.connect() as con:
        assert con.execute("SELECT ldp.perturb('a', ldp.krr(1, ['a', 'b']))").fetchone() in {("a",), ("b",)}


@pytest.mark.parametrize("deed", USED)
def test_a_mechanism_that_breaks_its_word_draws_nothing(deed: str, module: Path) -> None:
    channel, error = USED[deed]
    text = HEAD.replace("return KeepOrSpread.within(len(self.domain), self.epsilon.exp_below())", channel)
    module.write_text(text + OFFER)
    loaded = Registry.load()
    mechanism = loaded.mechanism("quiet(1, ['a', 'b'])")
    with pytest.raises(error) as caught:
        ldpsql.perturb(["a"], mechanism)
    assert "secret" not in str(caught.value)
    assert len(ldpsql.perturb(["a"], loaded.mechanism("krr(1, ['a', 'b'])"))) == 1
