"""Every verb of the command line, over every mechanism: it works, or refuses with a code and a hint that says what works."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from duckdb import DuckDBPyConnection
from typer.testing import CliRunner

import ldpsql
from ldpsql import Mechanism, certify
from ldpsql.cli.failures import failure
from ldpsql.functions import registry, text_literal
from ldpsql.ledger import Ledger, Policy
from ldpsql.mechanisms import CertifiedMechanism
from ldpsql.mechanisms.base import CertifiedPairs, CertifiedStrings
from ldpsql.testing import examples
from tests.commands import app
from tests.laws.subjects import ESTIMATES_ONLY

N = 600
PAIRS = {"pckv", "pckv_grr", "pckv_pm", "pckv_pm_ue", "pckv_ue"}
STRINGS = {"pem"}
ROWS = {"row", "one_of"}
JOINT = {"joint_krr", "joint_olh"}
WRITTEN = {
    "matrix": "matrix(['no', 'yes'], [['0.7', '0.3'], ['0.3', '0.7']])",
    "optimal_mean": "optimal_mean(1, 0, 8, [8, 7, 6, 5, 4, 3, 2, 1], bins=8)",
}
NO_MECHANISM = {"demo", "doctor", "export-database", "policy", "privic", "rappor-shares", "statement"}  # these take none
Check: TypeAlias = Callable[[str], None]


def small(name: str) -> Mechanism:
    """Return a mechanism over a few values, keys or bins."""
    if name in WRITTEN:
        return registry().mechanism(WRITTEN[name])
    cls = registry().mechanisms[name]
    few = {"bins": 8} if "bins" in cls.model_fields else {}
    return examples(cls)[0].changed(**few)


def raw_column(certified: CertifiedMechanism) -> pa.Array:
    """Return values that a mechanism perturbs."""
    if isinstance(certified, CertifiedStrings):
        return pa.array(["oslo", "rome", ""] * (N // 3))
    values = certified.values.listed.values.take(pa.array(np.arange(N) % len(certified.values.listed)))
    if isinstance(certified, CertifiedPairs):
        return pa.array([[{"key": key, "value": 1.0}] for key in values.to_pylist()])
    return values


class Case:
    """A small mechanism with the raw column that it perturbs, and reports that it drew."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.mechanism = small(name)
        self.text = str(self.mechanism)
        certified = certify(self.mechanism)
        raw = raw_column(certified)
        pq.write_table(pa.table({"x": raw}), folder / "raw.parquet")
        pq.write_table(pa.table({"x": certified.perturb(raw), "y": range(len(raw))}), folder / "reports.parquet")

    @property
    def pairs(self) -> bool:
        return self.name in PAIRS

    def path(self, name: str) -> str:
        return str(self.folder / name)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    return lru_cache(lambda name: Case(name, tmp_path_factory.mktemp(name)))


@pytest.fixture(scope="module")
def attached() -> Iterator[DuckDBPyConnection]:
    with ldpsql.connect() as con:
        yield con


def audit(of: Case) -> tuple[list[str], Check]:
    def check(out: str) -> None:
        facts = {row["fact"]: row["value"] for row in json.loads(out)}
        assert facts["passed"] in (True, "true", "True")
        assert float(facts["epsilon_at_least"]) <= float(facts["claimed_epsilon"])

    return ["audit", "-m", of.text, "--draws", "2000", "--format", "json"], check


def plan(of: Case) -> tuple[list[str], Check]:
    def check(out: str) -> None:
        rows = json.loads(out)
        assert {row["mechanism"] for row in rows} == {of.name}
        assert all(row["std_error"] is None or row["std_error"] > 0 for row in rows)
        assert not of.pairs or all(row["total_variation"] is None for row in rows)

    return ["plan", "-n", "1000", "--epsilon", "1", "-m", of.text, "--format", "json"], check


def plan_by_name(of: Case) -> tuple[list[str], Check]:
    arguments, check = plan(of)
    return [of.name if part == of.text else part for part in arguments] + ["--values", "3"], check


def perturb(of: Case) -> tuple[list[str], Check]:
    def check(_: str) -> None:
        table = pq.read_table(of.path("drawn.parquet"))
        assert len(table) == N
        assert table["x"].type == pq.read_table(of.path("reports.parquet"))["x"].type

    return ["perturb", of.path("raw.parquet"), of.path("drawn.parquet"), "-c", "x", "-m", of.text, "--replace"], check


def budget(of: Case) -> tuple[list[str], Check]:
    """Charge a ledger for reports; the balance is read back."""
    ledger = Path(of.path("budget.ledger"))
    policy = Policy(epsilon_budget=Fraction(64), delta_budget=Fraction(1, 10), distance_budget=Fraction(64))
    Ledger.open(ledger, policy)

    def check(_: str) -> None:
        balance = Ledger.open(ledger).balances()[0]
        assert float(balance.spent) > 0

    arguments, _ = perturb(of)
    return [*arguments, "--ledger", str(ledger), "--dataset", "people"], check


def estimate(of: Case) -> tuple[list[str], Check]:
    def check(out: str) -> None:
        rows = json.loads(out)
        assert len(rows) == len(certify(of.mechanism).values.listed)
        assert sum(row["estimate"] for row in rows) == pytest.approx(1.0)

    return ["estimate", of.path("reports.parquet"), "-c", "x", "-m", of.text, "--format", "json"], check


def ask(of: Case) -> tuple[list[str], Check]:
    def check(out: str) -> None:
        assert json.loads(out)[0]["estimate"] is not None

    return ["ask", "mean", of.path("reports.parquet"), "x", "-m", of.text, "--format", "json"], check


def outcome(of: Case) -> tuple[list[str], Check]:
    def check(out: str) -> None:
        rows = json.loads(out)
        assert len(rows) == len(certify(of.mechanism).values.listed)
        assert all(row["std_error"] is None or row["std_error"] > 0 for row in rows)

    return ["ask", "outcome", of.path("reports.parquet"), "x", "-m", of.text, "--outcome", "y", "--format", "json"], check


def regression(of: Case) -> tuple[list[str], Check]:
    def check(out: str) -> None:
        assert all(row["std_error"] > 0 for row in json.loads(out))

    return ["ask", "regression", of.path("reports.parquet"), "x", "-m", of.text, "--outcome", "y", "--format", "json"], check


def synthesize(of: Case) -> tuple[list[str], Check]:
    def check(out: str) -> None:
        assert len(json.loads(out)) == 7

    return ["synthesize", of.path("reports.parquet"), "-c", "x", "-m", of.text, "-n", "7", "--format", "json"], check


def heavy_hitters(of: Case) -> tuple[list[str], Check]:
    def check(out: str) -> None:
        assert json.loads(out)

    return ["ask", "heavy_hitters", of.path("reports.parquet"), "x", "-m", of.text, "--certain=false", "--format=json"], check


def report(of: Case) -> tuple[list[str], Check]:
    def check(_: str) -> None:
        assert Path(of.path("page.svg")).read_text(encoding="utf-8").startswith("<svg")

    return ["report", of.path("reports.parquet"), "-c", "x", "-m", of.text, "-o", of.path("page.svg")], check


def lint(of: Case) -> tuple[list[str], Check]:
    file = Path(of.path("views.sql"))
    file.write_text(f"CREATE TABLE r AS SELECT ldp.perturb(x, {text_literal(of.text)}) AS x FROM raw ORDER BY random();")

    def check(out: str) -> None:
        assert not json.loads(out)

    return ["lint", str(file), "--format", "json"], check


def export_sql(of: Case) -> tuple[list[str], Check]:
    def check(out: str) -> None:
        assert 'CREATE VIEW "exported"' in out

    return ["export-sql", "-m", of.text, "--name", "exported"], check


def describe(of: Case) -> tuple[list[str], Check]:
    def check(out: str) -> None:
        assert registry().mechanism(out) == of.mechanism

    return ["describe", "-m", of.text], check


def vectors(of: Case) -> tuple[list[str], Check]:
    def check(out: str) -> None:
        assert len([json.loads(line) for line in out.splitlines()]) == 3

    return ["vectors", "-m", of.text, "--count", "3"], check


def export_client(of: Case) -> tuple[list[str], Check]:
    def check(out: str) -> None:
        assert "export function report(value)" in out

    return ["export-client", "-m", of.text], check


def plugins(of: Case) -> tuple[list[str], Check]:
    def check(out: str) -> None:
        assert f"mechanism  {of.name}" in out

    return ["plugins", "show", of.name], check


VERBS: dict[str, Callable[[Case], tuple[list[str], Check]]] = {
    "audit": audit,
    "plan": plan,
    "plan by name": plan_by_name,
    "perturb": perturb,
    "budget": budget,
    "estimate": estimate,
    "ask": ask,
    "ask outcome": outcome,
    "ask regression": regression,
    "synthesize": synthesize,
    "ask heavy_hitters": heavy_hitters,
    "report": report,
    "lint": lint,
    "export-sql": export_sql,
    "describe": describe,
    "vectors": vectors,
    "export-client": export_client,
    "plugins": plugins,
}
STATEMENTS = {
    "describe in SQL": "SELECT ldp.describe({m})",
    "document": "SELECT ldp.document({m})",
    "channel": "FROM ldp.channel({m})",
    "diagnose": "SELECT ldp.diagnose(x, {m}) FROM {reports}",
    "mean": "SELECT ldp.mean(x, {m}) FROM {reports}",
    "key_value": "SELECT unnest(ldp.key_value(x, {m}), recursive := true) FROM {reports}",
    "heavy_hitters": "SELECT ldp.heavy_hitters(x, {m}) FROM {reports}",
}
FOR_SINGLE_VALUES = {"estimate", "ask", "synthesize", "export-sql", "channel", "diagnose", "mean"}
NOT_LISTED = {"export-sql", "channel"}  # further: of sets, hashes and private seeds


def refusal_fits(verb: str, of: Case, code: str, message: str, hint: str) -> bool:  # noqa: PLR0911  # one for each kind
    """Tell whether a verb may refuse this mechanism, and in these words."""
    of_column = "--of " if verb.startswith("ask") else "of := "
    if of.name in ROWS and verb in {"mean", "report", "key_value", "heavy_hitters", "ask heavy_hitters", *NOT_LISTED}:
        return code == "LDP103" and any(words in hint for words in ("margin", "its own mechanism", of_column))
    if verb in ("vectors", "export-client"):
        return (of.pairs or of.name in STRINGS) and code == "LDP406" and "krr" in hint
    if verb in ("ask outcome", "ask regression"):
        of_listed_values = not of.pairs and of.name not in {*STRINGS, *ROWS, *JOINT}
        return code == "LDP103" and not of_listed_values and bool(hint)
    if verb in ("heavy_hitters", "ask heavy_hitters"):
        return code == "LDP103" and "not listed" in message and ("key_value" if of.pairs else "ldp.ibu") in hint
    if of.pairs:
        return verb in FOR_SINGLE_VALUES and code == "LDP103" and "key_value" in hint and "pairs" in message
    if of.name in STRINGS and verb in FOR_SINGLE_VALUES | {"report", "key_value"}:
        return code == "LDP103" and "heavy_hitters" in hint
    if verb == "key_value":
        return code == "LDP103" and "pairs" in message and "ldp.ibu" in hint
    if verb == "ask" and of.name in {*ROWS, *JOINT}:
        return code == "LDP103" and ("its columns are" in hint or of_column in hint)
    if verb in ("mean", "ask"):
        unordered = code in ("LDP102", "LDP304") and "order" in message
        return unordered or (of.name in JOINT and code == "LDP103" and of_column in hint)
    if verb in ("plan", "plan by name"):
        return code == "LDP103" and of.name in hint
    if code == "LDP402":
        return verb == "export-sql" and "too large to invert" in message
    return verb in NOT_LISTED and code == "LDP103" and bool(hint)


def test_every_command_is_among_the_verbs() -> None:
    commands = {str(one.name) for one in app.registered_commands} | {str(one.name) for one in app.registered_groups}
    assert commands - NO_MECHANISM - {"sql"} <= VERBS.keys()
    assert {name for name in registry().mechanisms if name.startswith("pckv")} == PAIRS


EACH = ["krr", "hierarchy", "row", "pckv_ue", "pem"]  # one of a kind
IN_TURN = [
    (name, verb)
    for i, name in enumerate(one for one in registry().mechanisms if one not in ESTIMATES_ONLY)
    for j, verb in enumerate([*VERBS, *STATEMENTS])
    if name in EACH or (i + j) % 12 == 0  # the others share the verbs
]


@pytest.mark.parametrize(("name", "verb"), IN_TURN)
def test_every_verb_works_or_says_what_does(
    name: str, verb: str, case: Callable[[str], Case], attached: DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("options", "sql", "plan"):  # attaching takes longer than all else
        monkeypatch.setattr(f"ldpsql.cli.{module}.opened", lambda _: nullcontext(attached))
    of, typed = case(name), ""
    try:
        if verb in STATEMENTS:
            typed = STATEMENTS[verb].format(m=text_literal(of.text), reports=text_literal(of.path("reports.parquet")))
            assert attached.execute(typed).fetchall()
            return
        arguments, check = VERBS[verb](of)
        typed = " ".join(arguments)
        check(CliRunner().invoke(app, arguments, catch_exceptions=False).stdout)
    except Exception as error:
        if isinstance(error, AssertionError):
            raise
        refusal = failure(error, typed)
        assert not refusal.code.startswith("LDP9"), refusal
        assert refusal_fits(verb, of, refusal.code, refusal.message, refusal.hint), refusal
