"""Plugins are found, checked, named when they are wrong, and never fatal."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest
import typer

import ldpsql
from ldpsql import CategoricalMechanism, Channel, Estimator, Fit, KeepOrSpread, Likelihood, Mechanism, certify, hookimpl
from ldpsql.errors import BadSettings, InvalidParameter, InvalidSpec, PluginError, UnknownName
from ldpsql.estimators import uniform
from ldpsql.functions import Macros, Registry, Scalar, registry
from ldpsql.registry.registry import Plugin
from ldpsql.testing import check_mechanism, examples
from tests import commands


class Whisper(CategoricalMechanism):
    """A mechanism of a third party."""

    name = "whisper"

    def channel(self) -> Channel:
        return KeepOrSpread.within(len(self.domain), self.epsilon.exp_below())


class Guess(Estimator):
    """An estimator of a third party."""

    name = "guess"

    def fit(self, likelihood: Likelihood) -> Fit:
        return Fit.inversion(uniform(likelihood))


def plugin_module(name: str, **hooks: Callable[..., Any]) -> types.ModuleType:
    module = types.ModuleType(name)
    for hook, function in hooks.items():
        setattr(module, hook, hookimpl(function))
    return module


def added(module: types.ModuleType, loaded: Registry | None = None) -> tuple[Registry, Plugin]:
    loaded = loaded or Registry.load()
    plugin = Plugin(module.__name__, "somebody", "1.0", "ok")
    loaded.add(module, plugin)
    return loaded, plugin


def test_everything_built_in_is_found_and_works() -> None:
    assert {"krr", "matrix"} <= set(registry().mechanisms)
    assert {"inv", "inv_n", "inv_p", "ibu"} <= set(registry().estimators)
    assert {plugin.status for plugin in registry().plugins if plugin.package == "ldpsql"} == {"ok"}
    assert {plugin.name for plugin, _ in registry().functions()} == {
        plugin.name for plugin in registry().plugins if plugin.built_in
    }


def test_duckdb_lists_every_public_function_with_a_sentence() -> None:
    with ldpsql.connect() as con:
        rows = con.execute(
            "SELECT DISTINCT function_name, comment FROM duckdb_functions() "
            "WHERE database_name = 'ldp' AND NOT starts_with(function_name, '_')"
        ).fetchall()
    assert [name for name, comment in rows if not comment] == []
    own = {(name, kind.summary()) for name, kind in registry().mechanisms.items()}
    assert own | {(name, f"aggregate: {kind.summary()}") for name, kind in registry().estimators.items()} <= {*rows}


def test_a_third_partys_plugin_adds_its_mechanism_and_its_estimator() -> None:
    module = plugin_module("other", ldpsql_mechanisms=lambda: [Whisper], ldpsql_estimators=lambda: [Guess])
    loaded, plugin = added(module)
    assert (plugin.status, plugin.offers) == ("ok", ["mechanism whisper", "estimator guess"])
    assert loaded.owner("whisper") == "other"
    assert loaded.mechanism("whisper(1, ['a', 'b'])").name == "whisper"
    assert loaded.estimator("guess(confidence=0.9)").confidence == 0.9


def misbehave() -> list[type[Mechanism]]:
    raise RuntimeError("the disk is on fire")


class NoChannel(CategoricalMechanism):
    """Forgot its channel."""

    name = "no_channel"


class TakesKrr(Whisper):
    """Takes the name of a built-in mechanism."""

    name = "krr"


class BadName(Whisper):
    """Has a name that SQL could not call."""

    name = "Drop Table"


class Store:
    """Looks like a database."""

    store = None


WRONG: dict[str, tuple[dict[str, Callable[..., Any]], str]] = {
    "raises": ({"ldpsql_mechanisms": misbehave}, "raised RuntimeError: the disk is on fire"),
    "returns no list": ({"ldpsql_mechanisms": lambda: Whisper}, "must return a list"),
    "returns instances": ({"ldpsql_mechanisms": lambda: [Whisper(epsilon=1, domain=[1, 2])]}, "must return classes"),
    "returns garbage": ({"ldpsql_estimators": lambda: [object, 3]}, "must return classes"),
    "returns an abstract class": ({"ldpsql_mechanisms": lambda: [NoChannel]}, "all methods"),
    "misspells a hook": ({"ldpsql_mechanism": lambda: [Whisper]}, "unknown hook"),
    "takes a bad name": ({"ldpsql_mechanisms": lambda: [BadName]}, "lowercase name"),
    "takes a name": ({"ldpsql_mechanisms": lambda: [TakesKrr]}, "offered by both ldpsql.plugins.mechanisms.krr and bad"),
    "offers one twice": ({"ldpsql_mechanisms": lambda: [Whisper, Whisper]}, "offers the name 'whisper' twice"),
    "takes a database": ({"ldpsql_databases": lambda: [("sqlite", Store)]}, "the database 'sqlite' of bad already exists"),
    "takes files": ({"ldpsql_databases": lambda: [("s3", Store)]}, "the database 's3' of bad already exists"),
    "takes a scheme that none writes": ({"ldpsql_databases": lambda: [("Duck", Store)]}, "not a scheme of addresses"),
    "is half good": ({"ldpsql_mechanisms": lambda: [Whisper], "ldpsql_estimators": lambda: 3}, "must return a list"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_plugin_that_is_wrong_is_listed_with_the_reason_and_changes_nothing(wrong: str) -> None:
    hooks, reason = WRONG[wrong]
    loaded, plugin = added(plugin_module("bad", **hooks))
    assert plugin.status == "broken"
    assert reason in plugin.reason
    assert plugin in loaded.plugins
    assert set(loaded.mechanisms) == set(registry().mechanisms)
    assert set(loaded.estimators) == set(registry().estimators)
    assert len(loaded.functions()) == len(registry().functions())


class TakesCounts(Whisper):
    """Takes the name of a SQL function."""

    name = "counts"


WRONG_FUNCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "no functions": (lambda: ["SELECT 1"], "Scalar and Macros"),
    "takes perturb": (lambda: [Macros("CREATE OR REPLACE MACRO ldp.perturb(x, m) AS x")], "'perturb' is offered by both"),
    "takes quoted": (lambda: [Macros('create macro ldp."describe"(m) as m')], "'describe' is offered by both"),
    "takes a mechanism": (lambda: [Macros("CREATE MACRO ldp.krr(e, d) AS d")], "'krr' is offered by both"),
    "takes a scalar": (lambda: [Scalar("__ldp_perturb", len, "INTEGER")], "'__ldp_perturb' is offered by both"),
}


@pytest.mark.parametrize("wrong", WRONG_FUNCTIONS)
def test_functions_that_are_wrong_break_their_plugin_and_all_it_offers(wrong: str) -> None:
    function, reason = WRONG_FUNCTIONS[wrong]
    loaded, plugin = added(plugin_module("bad", ldpsql_mechanisms=lambda: [Whisper], ldpsql_functions=function))
    assert "whisper" in loaded.mechanisms
    functions = loaded.functions()
    assert plugin.status == "broken"
    assert reason in plugin.reason
    assert "whisper" not in loaded.mechanisms
    assert "bad" not in {p.name for p, _ in functions}
    assert not [f for _, offered in functions for f in offered if isinstance(f, Macros) and "whisper" in f.text]


def test_a_mechanism_cannot_take_the_name_of_a_sql_function() -> None:
    _, plugin = added(plugin_module("bad", ldpsql_mechanisms=lambda: [TakesCounts]))
    assert "'counts' is offered by both ldpsql.udfs.frequency and bad" in plugin.reason


def test_sql_that_duckdb_refuses_breaks_its_plugin_and_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, plugin = added(plugin_module("bad", ldpsql_functions=lambda: [Macros("CREATE MACRO ldp.mine(x) AS SELEC x")]))
    monkeypatch.setattr("ldpsql.sql.surface.registered", lambda: loaded)
    with ldpsql.connect() as con:
        assert con.execute("SELECT ldp.perturb('a', ldp.krr(1, ['a', 'b']))").fetchone() in [("a",), ("b",)]
    assert plugin.status == "broken"
    assert "refused by DuckDB" in plugin.reason


def entry_points_of(**modules: str) -> Callable[..., EntryPoints]:
    return lambda **_: EntryPoints(EntryPoint(name, module, "ldpsql") for name, module in modules.items())


def test_installed_plugins_are_loaded_only_where_they_are_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "somebodys.py").write_text(
        "from ldpsql import Mechanism, hookimpl\n@hookimpl\ndef ldpsql_mechanisms() -> list[type[Mechanism]]:\n    return []\n"
    )
    (tmp_path / "broken_at_import.py").write_text("import a_package_that_is_not_installed\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("ldpsql.registry.hookspecs.entry_points", entry_points_of(a="somebodys", b="broken_at_import"))

    def statuses(allowed: str | None) -> dict[str, str]:
        if allowed is None:
            monkeypatch.delenv("LDPSQL_PLUGINS")
        else:
            monkeypatch.setenv("LDPSQL_PLUGINS", allowed)
        return {p.name: p.status for p in Registry.load().plugins if p.package in ("somebodys", "broken_at_import")}

    assert statuses("0") == {"a": "not enabled", "b": "not enabled"}
    assert statuses("a, b") == {"a": "not enabled", "b": "not enabled"}, "the package counts, not the name of the entry point"
    assert statuses("Somebodys") == {"a": "ok", "b": "not enabled"}
    assert statuses("somebodys, broken_at_import") == statuses("*") == {"a": "ok", "b": "broken"}
    project = tmp_path / "project" / "deeper"
    project.mkdir(parents=True)
    monkeypatch.chdir(project)
    for asked, consent, expected in [
        ('["*"]', None, (False, False)),
        ('["somebodys"]', None, (False, False)),
        ('["somebodys"]', '["somebodys"]', (True, False)),
        ('["*"]', '["somebodys"]', (True, False)),
        ('["somebodys"]', '["*"]', (True, False)),
        ("[]", '["*"]', (False, False)),
        (None, '["somebodys"]', (True, False)),
    ]:
        own, shared = tmp_path / "own.toml", tmp_path / "project" / "ldpsql.toml"
        monkeypatch.setenv("LDPSQL_CONFIG", str(own))
        own.write_text(f"[plugins]\nallow = {consent}\n" if consent else "")
        shared.write_text(f"[plugins]\nallow = {asked}\n" if asked else "")
        read = statuses(None)
        assert (read["a"] != "not enabled", read["b"] != "not enabled") == expected, (asked, consent)
        monkeypatch.setenv("LDPSQL_PLUGINS", "0")
    monkeypatch.chdir(tmp_path)
    assert statuses("") == {"a": "not enabled", "b": "not enabled"}
    monkeypatch.setenv("LDPSQL_PLUGINS", "somebodies")
    assert [p.name for p in Registry.load().plugins if p.status == "not installed"] == ["somebodies"]


COIN = """
from ldpsql.mechanisms import CategoricalMechanism, KeepOrSpread, hookimpl

class Coin(CategoricalMechanism):
    name = "coin"
    def channel(self):
        return KeepOrSpread.within(len(self.domain), self.epsilon.exp_below())

@hookimpl
def ldpsql_mechanisms():
    return [Coin]
"""


def test_a_loose_file_of_ten_lines_and_a_folder_of_files_are_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (Path(__file__).parents[1] / "docs" / "guides" / "plugins.md").read_text(encoding="utf-8")
    assert COIN in guide
    assert len(COIN.strip().splitlines()) == 10
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "coin.py").write_text(COIN)
    (folder / "wrong.py").write_text("1 / 0")
    (folder / "_helper.py").write_text("1 / 0")
    monkeypatch.chdir(folder)

    def found(variable: str) -> dict[str, str]:
        monkeypatch.setenv("LDPSQL_PLUGINS", variable)
        return {p.name: p.status for p in Registry.load().plugins if p.package.endswith(".py")}

    assert found("./coin.py") == found("coin.py") == found(f"0, {folder}/coin.py") == {"coin": "ok"}
    assert found("../own") == {"coin": "ok", "wrong": "broken"}
    assert found("./none.py") == {"none": "not installed"}
    assert found("coin") == {}
    monkeypatch.setenv("LDPSQL_PLUGINS", "./coin.py")
    loaded = Registry.load()
    check_mechanism(loaded.mechanism("coin(1, ['no', 'yes'])"))
    assert loaded.owner("coin") == "coin"


def test_settings_files_load_no_loose_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "coin.py").write_text(COIN)
    own = tmp_path / "own.toml"
    own.write_text('[plugins]\nallow = ["./coin.py"]\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LDPSQL_PLUGINS")
    monkeypatch.setenv("LDPSQL_CONFIG", str(own))
    assert "coin" not in Registry.load().mechanisms


@pytest.mark.parametrize("text", ["[plugins", '[plugin]\nallow = ["a"]', '[plugins]\nallow = "a"', '[plugins]\nallows = ["a"]'])
def test_a_settings_file_that_is_wrong_is_named(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ldpsql.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LDPSQL_PLUGINS")
    with pytest.raises(BadSettings, match=r"ldpsql\.toml"):
        Registry.load()


def nameless() -> typer.Typer:
    return typer.Typer()


NO_COMMANDS = [lambda: 1 / 0, lambda: [nameless()], lambda: nameless, lambda: [7], lambda: [nameless, nameless]]


@pytest.mark.parametrize("offered", NO_COMMANDS)
def test_commands_that_are_none_break_their_plugin_only(offered: Callable[..., Any]) -> None:
    module = plugin_module("commander", ldpsql_commands=offered, ldpsql_mechanisms=lambda: [Whisper])
    loaded, plugin = added(module)
    assert (plugin.status, plugin.offers) == ("broken", [])
    assert not {"commander", "nameless"} & loaded.commands.keys()
    assert "whisper" not in loaded.mechanisms
    assert "krr" in loaded.mechanisms


def test_two_plugins_cannot_offer_the_same_command() -> None:
    loaded, first = added(plugin_module("first", ldpsql_commands=lambda: [nameless]))
    _, second = added(plugin_module("second", ldpsql_commands=lambda: [nameless]), loaded)
    assert (first.offers, second.status) == (["command nameless"], "broken")
    assert loaded.commands == {"nameless": nameless}
    loaded.refuse(first, "no longer")
    assert not loaded.commands


def test_a_forgotten_hookimpl_is_noticed() -> None:
    module = types.ModuleType("forgetful")
    module.ldpsql_mechanisms = lambda: [Whisper]  # type: ignore[attr-defined]
    _, plugin = added(module)
    assert "@hookimpl" in plugin.reason


@pytest.mark.parametrize(
    "text",
    [
        *("", "krr(", "krr(1, ['a', 'b'])(2)", "a.b(1)", "krr(epsilon=open('x'))", "krr(1, ['a', 'b'], 3, 4, 5)", "1"),
        *("krr(*[1])", "krr(1, ['a', 'b'], epsilon=2)", "[" * 5000),
    ],
)
def test_text_that_is_not_a_spec_is_refused_and_nothing_in_it_is_run(text: str) -> None:
    with pytest.raises(InvalidSpec):
        registry().mechanism(text)


def test_text_may_be_written_as_sql_writes_it() -> None:
    assert registry().estimator("ibu(stop := 7)") == registry().estimator("ibu(stop=7)") == registry().estimator("ibu(7)")
    mixed = registry().mechanism("krr(epsilon=1, domain=['true', ':='], nulls := 'as:true', outside := NULL)")
    assert mixed == registry().mechanism("krr(1, ['true', ':='], nulls='as:true')")
    assert registry().mechanism("pckv_grr(1, ['a', 'b'], clip := true)").given()["clip"] is True


def test_a_mechanism_that_fails_to_give_its_channel_is_named() -> None:
    class Fails(Whisper):
        name = "fails"

        def channel(self) -> Channel:
            raise ZeroDivisionError

    with pytest.raises(PluginError, match="the mechanism fails raised ZeroDivisionError"):
        certify(Fails(epsilon=1, domain=["a", "b"]))


def test_unknown_names_come_with_a_suggestion() -> None:
    with pytest.raises(UnknownName, match="did you mean 'krr'"):
        registry().mechanism("kr(1, ['a', 'b'])")
    assert UnknownName("plugin", "coin", (), "ldpsql plugins install").hint == "ldpsql plugins install"
    assert UnknownName("plugin", "coin", ()).hint
    with pytest.raises(UnknownName, match="did you mean 'em_mr'"):
        registry().estimator("em-mr")
    with pytest.raises(UnknownName, match="did you mean 'planar_laplace'"):
        registry().mechanism("planar-laplace")
    with pytest.raises(UnknownName, match="did you mean 'domain'"):
        registry().mechanism("krr(epsilon=1, domains=['a', 'b'])")


def test_the_core_imports_without_plugins() -> None:
    code = (
        "import sys, ldpsql, ldpsql.registry.registry, ldpsql.sql.attach, ldpsql.estimates.estimate, ldpsql.bulk.frames;"
        "assert not [m for m in sys.modules if m.startswith(('ldpsql.plugins', 'ldpsql.udfs'))]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_examples_can_be_guessed_for_all_built_in_mechanisms_but_those_whose_lists_must_fit() -> None:
    without = [name for name, mechanism in registry().mechanisms.items() if not examples(mechanism)]
    assert without == ["matrix", "not_private", "optimal_mean"]


def test_a_mechanism_that_no_plugin_offers_passes_the_conformance_suite() -> None:
    check_mechanism(Whisper(epsilon=1, domain=["a", "b"]), draws=60_000)
    assert "whisper" not in registry().mechanisms


CLOSURE = """
import gc, types
import ldpsql, pyarrow as pa
from ldpsql.functions import Macros, Scalar, guarded, hookimpl
from ldpsql.registry.registry import Plugin
from ldpsql.functions import registry

def ldpsql_functions():
    summand = 41
    def more(column):
        return pa.array([number.as_py() + summand for number in column])
    return [Scalar("__ldp_more", guarded(more), "BIGINT"), Macros("CREATE MACRO ldp.more(x) AS __ldp_more(x)")]

module = types.ModuleType("more")
module.ldpsql_functions = hookimpl(ldpsql_functions)
registry().add(module, Plugin("more", "somebody", "1.0", "ok"))
con = ldpsql.connect()
for _ in range(5):
    gc.collect()
    assert con.execute("SELECT ldp.more(range) FROM range(2)").fetchall() == [(41,), (42,)]
"""


@pytest.mark.slow
def test_a_function_that_a_hook_makes_at_each_call_lives_as_long_as_duckdb_may_call_it() -> None:
    done = commands.python(CLOSURE)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", ["ibu(intervals='canary')", "ibu(misfit='canary')", "pool(neighbours='canary')"])
def test_a_choice_that_does_not_exist_is_refused_with_those_that_do(text: str) -> None:
    name = text.split("(")[1].split("=", maxsplit=1)[0]
    with pytest.raises(InvalidParameter, match=rf"{name} of \w+: input should be '\w+' or '\w+'") as caught:
        registry().estimator(text)
    assert "canary" not in str(caught.value)
    assert {p.type for p in registry().estimators["ibu"].parameters() if p.name == name} <= {"str"}
