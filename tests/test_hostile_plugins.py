"""A plugin that misbehaves is named with what it did, and everything else works as if it were not there.

In-process Python is trusted code, and loaded only where the allow-list names it: these are accidents and small malice, not a
sandbox. One that calls ``os._exit`` still ends the process.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, ClassVar
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from pydantic import BeforeValidator, field_serializer, model_validator

import ldpsql
from ldpsql import (
    CategoricalMechanism,
    Channel,
    DenseChannel,
    Domain,
    Epsilon,
    Estimator,
    Fit,
    KeepOrSpread,
    Likelihood,
    Mechanism,
    SetReports,
    certify,
    hookimpl,
)
from ldpsql.channels import Weights, Witness
from ldpsql.channels.dense import AliasTables
from ldpsql.errors import InternalError, InvalidParameter, LdpError, NotPrivate, PluginError
from ldpsql.functions import Macros, Registry, Scalar, registry
from ldpsql.ledger import Ledger, Policy
from ldpsql.mechanisms import (
    TOTAL,
    ApproximateLdp,
    CertifiedMechanism,
    EpsilonField,
    Line,
    MetricLdp,
    PrivateHash,
    PureLdp,
    SignedBits,
)
from ldpsql.mechanisms import certified as copies
from ldpsql.privacy.claims import Claim, Distances
from ldpsql.registry import hookspecs
from ldpsql.registry.handles import Handles
from ldpsql.registry.registry import Plugin
from ldpsql.testing import certificate

HEAD = """
from ldpsql import CategoricalMechanism, KeepOrSpread, hookimpl
from ldpsql import Epsilon
from ldpsql.mechanisms import PureLdp


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
    "raises": ("raise RuntimeError('secret')", PluginError),
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
    return tmp_path / f"{name}.py"


@pytest.mark.slow
@pytest.mark.parametrize("deed", BROKEN)
def test_a_plugin_that_breaks_is_named_and_the_rest_works(deed: str, module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, reason = BROKEN[deed]
    module.write_text(code)
    if "hangs" in deed:
        monkeypatch.setattr(hookspecs, "PATIENCE", 1.0)
    loaded = Registry.load()
    (plugin,) = [plugin for plugin in loaded.plugins if plugin.name == "hostile"]
    assert plugin.status == "broken"
    assert reason in plugin.reason
    assert loaded.mechanisms.keys() == registry().mechanisms.keys()
    assert loaded.owner("krr") == "ldpsql.plugins.mechanisms.krr"
    monkeypatch.setattr("ldpsql.sql.surface.registered", lambda: loaded)
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


CITIES = ["Lima", "Oslo"]
BOLD = Epsilon.parse(30)


class Honest(CategoricalMechanism):
    """A mechanism of a third party; those below each go one way around its certificate."""

    name = "honest"

    def channel(self) -> Channel:
        return KeepOrSpread.within(len(self.domain), self.epsilon.exp_below())


class Loose(PureLdp):
    """A claim that allows any ratio."""

    @property
    def limit(self) -> Fraction:
        return Fraction(10**30)


class Near(Line):
    """A metric whose distances are not what they seem."""

    def below(self, x: int, other: int) -> Fraction:
        return Fraction(1000)


class Eager(Epsilon):
    """An epsilon with an exponential of its own."""

    def exp_below(self) -> Fraction:
        return Fraction(10**30)


class Peeping(Domain):
    """A domain that sees the values."""

    def codes(self, column: pa.Array | pa.ChunkedArray, **_: object) -> np.ndarray:
        raise AssertionError("a domain of a third party saw the values")


class Shifting(np.ndarray):
    """An array of another type."""


class OtherSets(SetReports):
    """An alphabet of another type."""


def bold(size: int = 2) -> KeepOrSpread:
    return KeepOrSpread.within(size, BOLD.exp_below())


def weights(ratio: int) -> Weights:
    low = 2**64 // (ratio + 1)
    return np.array([[2**64 - low, low], [low, 2**64 - low]], dtype=np.uint64)


def shifting_weights() -> Channel:
    return DenseChannel(weights(2).view(Shifting))


def hash_with_another_response() -> Channel:
    class Open(KeepOrSpread):
        pass

    return PrivateHash(2, Open.within(2, Fraction(2)))


def poisoned_distances() -> Claim:
    metric = Distances(((Fraction(0), Fraction(1)), (Fraction(1), Fraction(0))))
    metric.__dict__["_floats"] = np.zeros((2, 2))
    return MetricLdp(Epsilon.parse(1), metric)


def no_distances() -> Claim:
    return MetricLdp(Epsilon.parse(1), Distances(((Fraction(0),) * 2,) * 2))


class Wide(Mechanism):
    """A mechanism that is not categorical."""

    name = "wide"
    epsilon: EpsilonField

    def values(self) -> Domain:
        return Domain.of(CITIES)

    def claim(self) -> Claim:
        return PureLdp(self.epsilon)

    def channel(self) -> Channel:
        return bold()


# what is returned -> by which method of which base
REFUSED: dict[str, tuple[type[Mechanism], str, Callable[[], object]]] = {
    "a claim with a limit of its own": (Wide, "claim", lambda: Loose(Epsilon.parse(1))),
    "an epsilon with an exponential of its own": (Wide, "claim", lambda: PureLdp(Eager(Fraction(1)))),
    "an epsilon beyond the largest": (Wide, "claim", lambda: PureLdp(Epsilon(Fraction(99)))),
    "a larger claim than was asked for": (Wide, "claim", lambda: PureLdp(BOLD)),
    "a metric of its own": (Wide, "claim", lambda: MetricLdp(Epsilon.parse(1), Near(2))),
    "distances with a poisoned cache": (Wide, "claim", poisoned_distances),
    "distances of zero": (Wide, "claim", no_distances),
    "a delta that was not given": (Wide, "claim", lambda: ApproximateLdp(Epsilon.parse(1), Fraction(1))),
    "a claim per unit of its own": (
        Honest,
        "claim",
        lambda: MetricLdp(Epsilon.parse(1), Distances(((Fraction(0), Fraction(9)), (Fraction(9), Fraction(0))))),
    ),
    "a domain that sees the values": (Honest, "values", lambda: Peeping(pa.array(CITIES))),
    "a domain without values": (Honest, "values", lambda: Domain(pa.nulls(2, pa.string()))),
    "an alphabet of another type": (Honest, "alphabet", lambda: OtherSets(2)),
    "an array of another type": (Honest, "channel", shifting_weights),
    "a response of another type": (Honest, "channel", hash_with_another_response),
    "a layout of another size": (Honest, "layout", lambda: (7,)),
}


@pytest.mark.parametrize("deed", REFUSED)
def test_what_is_not_exactly_of_the_core_is_refused(deed: str) -> None:
    base, method, returned = REFUSED[deed]
    kind = type("Hostile", (base,), {"name": "hostile", method: lambda _: returned(), "__module__": __name__})
    mechanism = kind(epsilon=1) if base is Wide else kind(epsilon=1, domain=CITIES)
    with pytest.raises(LdpError) as caught:
        certify(mechanism)
    assert caught.value.code in ("LDP301", "LDP102", "LDP103")


class Held(Honest):
    """Keeps what it returns, to change it afterwards."""

    held: ClassVar[list[DenseChannel]] = []
    domains: ClassVar[list[Domain]] = []

    def values(self) -> Domain:
        self.domains.append(Domain(pa.array(CITIES)))
        return self.domains[-1]

    def channel(self) -> Channel:
        self.held.append(DenseChannel(weights(2)))
        return self.held[-1]


def _change(channel: DenseChannel, domain: Domain) -> None:
    """Let the channel keep every value, and the domain leave the bounds."""
    certain = AliasTables(np.array([[0, 0], [1, 1]], dtype=np.uint64), 1)
    channel.__dict__.update(tables=certain, draw=lambda values, words: values, inputs=9)
    channel._weights.flags.writeable = True
    channel._weights[:] = weights(10**9)
    domain.__dict__["codes"] = lambda *_, **__: np.array([9], dtype=np.int32)
    domain._in_type[pa.string()] = (pa.array(CITIES), pa.array([70, 71], pa.int32()))


def kept_share(certified: CertifiedMechanism) -> float:
    """Return how often a value is kept: 2/3, with an error below 0.03 except once in a million times."""
    drawn = certified.perturb(pa.array(["Lima"] * 6000))
    return drawn.to_pylist().count("Lima") / 6000


def test_what_is_changed_after_the_certificate_changes_nothing() -> None:
    certified = certify(Held(epsilon=1, domain=CITIES))
    _change(Held.held[-1], Held.domains[-1])
    assert abs(kept_share(certified) - 2 / 3) < 0.03


def test_what_was_put_on_the_objects_before_the_certificate_is_not_taken_over() -> None:
    class Prepared(Held):
        name = "prepared"

        def channel(self) -> Channel:
            channel = DenseChannel(weights(2))
            channel.__dict__.update(draw=lambda values, words: values, widest=lambda: None)
            channel.__dict__["tables"] = AliasTables(np.array([[0, 0], [1, 1]], dtype=np.uint64), 1)
            return channel

    assert abs(kept_share(certify(Prepared(epsilon=1, domain=CITIES))) - 2 / 3) < 0.03
    channel = DenseChannel(weights(2))
    channel.__dict__["tables"] = AliasTables(channel.tables.packed ^ np.uint64(1 << 40), 1)
    with pytest.raises(NotPrivate, match="do not give back its weights"):
        certificate(channel, PureLdp(Epsilon.parse(1)))


def test_signed_bits_that_hide_their_own_sign_are_refused() -> None:
    """Reports without the own sign would be likelier by (2^64 - 4)/12, and same/opposite is below 1."""
    with pytest.raises(InvalidParameter, match="less often than at other keys"):
        SignedBits(3, 4, (TOTAL - 4) // 3, TOTAL // 4)


def test_a_largest_ratio_below_one_certifies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeepOrSpread, "widest", lambda _: Witness(Fraction(1, 10**9), 0, 1, 0))
    with pytest.raises(InternalError, match="largest ratio"):
        certificate(bold(), PureLdp(Epsilon.parse(1)))


def test_a_value_outside_of_the_channel_is_refused_before_the_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Domain, "codes", lambda *_, **__: np.array([0, -1], dtype=np.int32))
    with pytest.raises(InternalError, match="a position that it does not have"):
        certify(Honest(epsilon=1, domain=["a", "b", "c"])).draw(pa.array(["a", "b"]))


class Twin(Honest):
    """Says that it is equal to every other mechanism."""

    def __hash__(self) -> int:
        return hash(registry().mechanism("krr(0.1, ['x', 'y'])"))

    def __eq__(self, other: object) -> bool:
        return True

    def channel(self) -> Channel:
        return bold()


def test_no_mechanism_takes_the_place_of_another_in_the_caches() -> None:
    krr = registry().mechanism("krr(0.1, ['x', 'y'])")
    twin = Twin(epsilon=30, domain=["x", "y"])
    with pytest.raises(PluginError, match="has its own __eq__"):
        certify(twin)
    handles: Handles[Mechanism] = Handles()
    assert handles.number(twin) != handles.number(krr)
    assert handles.number(krr) == handles.number(registry().mechanism("krr(0.1, ['x', 'y'])"))
    assert certify(krr).epsilon <= 0.1
    assert certify(krr) is certify(registry().mechanism("krr(0.1, ['x', 'y'])"))


def test_a_mechanism_that_writes_two_epsilons_alike_is_charged_for_each(tmp_path: Path) -> None:
    class Mumbler(Honest):
        name = "mumbler"

        @field_serializer("epsilon")
        def _alike(self, _: Epsilon) -> str:
            return "1"

    weak, strong = (Mumbler(epsilon=epsilon, domain=CITIES) for epsilon in ("0.1", "1"))
    assert weak.to_json() == strong.to_json()
    ledger = Ledger.open(tmp_path / "ledger", Policy(epsilon_budget=2))
    for mechanism in (weak, strong):
        release = ledger.charge("people", {"city": mechanism}, "reports")
        assert not release.stored
        assert ledger.publish(release).stored
        assert ledger.charge("people", {"city": mechanism}, "reports").stored
    assert [row["epsilon"] for row in ledger.history()] == ["0.1", "1"]


def test_a_mechanism_that_raises_its_epsilon_on_the_way_is_refused() -> None:
    class Riser(Honest):
        name = "riser"

        def claim(self) -> PureLdp:
            object.__setattr__(self.epsilon, "value", Fraction(30))
            return PureLdp(self.epsilon)

    with pytest.raises(NotPrivate, match="claims more than the epsilon it was given"):
        certify(Riser(epsilon=1, domain=CITIES))


def added(*mechanisms: type[Mechanism], functions: tuple[Scalar | Macros, ...] = ()) -> tuple[Registry, Plugin]:
    module = types.ModuleType("somebodys")
    module.ldpsql_mechanisms = hookimpl(lambda: [*mechanisms])  # type: ignore[attr-defined]
    module.ldpsql_functions = hookimpl(lambda: [*functions])  # type: ignore[attr-defined]
    module.ldpsql_mechanisms.__name__, module.ldpsql_functions.__name__ = "ldpsql_mechanisms", "ldpsql_functions"
    loaded, plugin = Registry.load(), Plugin("somebodys", "somebody", "1.0", "ok")
    loaded.add(module, plugin)
    loaded.functions()
    return loaded, plugin


def test_a_mechanism_that_changes_the_epsilon_that_users_write_is_refused() -> None:
    class Deaf(Honest):
        name = "deaf"

        @model_validator(mode="before")
        @classmethod
        def _louder(cls, arguments: dict[str, object]) -> dict[str, object]:
            return {**arguments, "epsilon": 30}

    class Later(Honest):
        name = "later"

        def model_post_init(self, _: object) -> None:
            self.__dict__["epsilon"] = BOLD

    class Gone(Honest):
        name = "gone"

        def model_post_init(self, _: object) -> None:
            del self.__dict__["epsilon"]

    class Reading(Honest):
        name = "reading"
        epsilon: Annotated[Epsilon, BeforeValidator(lambda _: BOLD)]

    for kind in (Deaf, Later, Gone, Reading):
        loaded, plugin = added(kind)
        assert plugin.status == "ok", plugin.reason
        with pytest.raises(LdpError, match="changes the epsilon"):
            loaded.mechanism(f"{kind.name}(0.1, ['Lima', 'Oslo'])")
        with pytest.raises(LdpError, match="changes the epsilon"):
            kind(epsilon=Epsilon.parse("0.1"), domain=Domain.of(CITIES))


def test_a_plugin_that_reads_its_parameters_by_itself_is_broken() -> None:
    class Own(Honest):
        name = "own"

        def __init__(self, **written: Any) -> None:
            super().__init__(**{**written, "epsilon": 30})

    _, plugin = added(Own)
    assert (plugin.status, plugin.reason) == ("broken", "the plugin class Own has its own __init__")


READING = [
    *("[city, city]", "(SELECT list(city) FROM people)", "list_transform([1, 2], lambda i: city)", "getvariable('x')"),
    *("[1]) FROM people --", "ldp.mine()", "people.city", "[random()]", "[1]); DROP TABLE people; SELECT (1"),
    *("list_transform([1], lambda city: city) || [city]", "COLUMNS(*)", "domain IN (FROM people)", "current_query()"),
]


@pytest.mark.parametrize("text", READING)
def test_a_constructor_that_reads_more_than_its_parameters_breaks_its_plugin(text: str) -> None:
    kind = type("Reader", (Honest,), {"name": "reader", "sql_reports": text, "__module__": __name__})
    loaded, plugin = added(kind)
    assert plugin.status == "broken"
    assert "reads more than its parameters" in plugin.reason
    assert "reader" not in loaded.mechanisms.keys() | loaded.constructors.keys()


TAKING = [
    *("CREATE OR REPLACE MACRO ldp._guard() AS NULL::BIGINT", "CREATE MACRO ldp.PERTURB(x, m) AS x", "DROP MACRO ldp.perturb"),
    *("CREATE /* */ OR REPLACE MACRO ldp.perturb(x, m) AS x", "CREATE MACRO ldp.mine(x) AS x; DETACH ldp", "ATTACH 'x.db'"),
    *("CREATE MACRO ldp.mine(x) AS x; COPY people TO 'x.csv'", "CREATE TEMP MACRO perturb(x, m) AS x"),
]


@pytest.mark.parametrize("text", TAKING)
def test_macros_that_take_a_place_or_do_more_break_their_plugin(text: str) -> None:
    assert added(functions=(Macros(text),))[1].status == "broken"


def test_a_scalar_that_takes_a_place_by_other_letters_breaks_its_plugin() -> None:
    assert added(functions=(Scalar("__LDP_PERTURB", len, "INTEGER"),))[1].status == "broken"
    assert (
        added(functions=(Scalar("__ldp_own", len, "INTEGER"), Macros("-- mine\nCREATE MACRO ldp.own(x) AS x")))[1].status
        == "ok"
    )


def test_a_mechanism_that_raises_is_named_with_its_file_and_line(module: Path) -> None:
    text = HEAD.replace(
        "return KeepOrSpread.within(len(self.domain), self.epsilon.exp_below())", "raise RuntimeError('secret')"
    )
    module.write_text(text + OFFER)
    line = text.splitlines().index("        raise RuntimeError('secret')") + 1
    with pytest.raises(PluginError, match=rf"mechanism quiet raised RuntimeError at {module.name}, line {line},") as caught:
        ldpsql.perturb(["a"], Registry.load().mechanism("quiet(1, ['a', 'b'])"))
    assert "secret" not in str(caught.value)


class Failing(Estimator):
    """An estimator of a third party."""

    name = "failing"

    def fit(self, likelihood: Likelihood) -> Fit:
        raise ZeroDivisionError(f"secret {likelihood}")


def test_an_estimator_that_raises_is_named_with_its_file_and_line() -> None:
    expected = rf"estimator failing raised ZeroDivisionError at {Path(__file__).name}, line \d+,"
    with pytest.raises(PluginError, match=expected) as caught:
        ldpsql.estimate(["a", "b"], "krr(1, ['a', 'b'])", Failing())
    assert "secret" not in str(caught.value)


def test_a_domain_is_copied_while_another_thread_fills_its_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries on several cursors share a mechanism: each of them may be the first to ask its domain for something."""
    values, copied = Domain.of(["a", "b"]), copies._own_part

    def meanwhile(part: object) -> object:
        values.__dict__[f"cache_{len(vars(values))}"] = part
        return copied(part)

    monkeypatch.setattr(copies, "_own_part", meanwhile)
    assert copies.own_values(values) == Domain.of(["a", "b"])
