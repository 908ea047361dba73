"""The nodes of a dbt project that perturb, whether their reports are drawn once and kept, and the charge of each."""

from __future__ import annotations

import ast
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any

import pyarrow as pa
from dbt.adapters.events.types import AdapterEventWarning
from dbt.adapters.factory import get_adapter_by_type
from dbt_common.events.functions import warn_or_error
from duckdb import DuckDBPyConnection

from ldpsql.bulk.charging import return_charge
from ldpsql.bulk.fingerprints import Marking
from ldpsql.bulk.releases import marking_of_query, people, permanent_columns, permanent_reports, refuse_others
from ldpsql.bulk.sinks import write_token, written_tokens
from ldpsql.engine.identity import Identity, identity_of
from ldpsql.errors import InvalidParameter, LdpError, NotReleased, Redrawn
from ldpsql.ledger import Ledger, Release
from ldpsql.ledger.guard import Guard
from ldpsql.ledger.permanent import Reported, charge_columns_once
from ldpsql.ledger.policy import ROW
from ldpsql.mechanisms.base import Mechanism
from ldpsql.registry.registry import registry
from ldpsql.registry.tables import check_policies, table_policy
from ldpsql.sql.drawing import IN_PYTHON, DrawingFunctions, Draws, Statement, statements
from ldpsql.sql.lineage import Calls
from ldpsql.sql.scripts import IN_ORDER, SHUFFLE
from ldpsql.sql.structure import keeps_order, parsed
from ldpsql.sql.uses import leaks

# Whether the text of a model perturbs: SQL with Jinja, before dbt compiles it, or Python.


_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_JINJA = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_CALLED = re.compile(r"(\w+)[\"`]?\s*\(")
_MAKES_A_MACRO = re.compile(r"\bcreate\s+(or\s+replace\s+)?(temp(orary)?\s+)?(macro|function)\b", re.IGNORECASE)


def draws_of(text: str, drawing: DrawingFunctions, *, python: bool = False) -> Draws:
    """Return what a text draws; what Jinja inserts is read when dbt runs it."""
    if python:
        try:
            tree = ast.parse(text)
        except SyntaxError:
            return Draws.UNKNOWN
        names = set(_names(tree))
        if names & IN_PYTHON or drawing.named(names):
            return Draws.REPORTS
        strings = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
        return max(map(drawing.of, strings), default=Draws.NOTHING)
    if not text:
        return Draws.NOTHING
    if drawing.named(_CALLED.findall(" ".join(_JINJA.findall(_COMMENT.sub(" ", text))))):
        return Draws.REPORTS
    return drawing.of(_without_jinja(text))


def _without_jinja(text: str) -> str:
    return _JINJA.sub(" x ", _COMMENT.sub(" ", text))


def _names(tree: ast.AST) -> Iterator[str]:
    """Yield the names of variables, attributes and imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2]


_NOT_STORED = ("view", "ephemeral")
_NEVER_RUN = ("analysis",)
_KEEP = "materialize them as incremental, with unique_key and full_refresh=false"
_KEEP_OR_SAY_SO = f"{_KEEP}, or, if new reports at each run are intended, set meta={{'ldp': {{'redraw': true}}}}"


def perturbing(manifest: Any, drawing: DrawingFunctions) -> dict[str, Draws]:
    """Return the nodes of dbt's manifest that perturb, by themselves, in a hook or through macros, by their ids."""
    nodes = getattr(manifest, "nodes", {})
    drawing.define((node.name, _text(node)) for node in getattr(manifest, "functions", {}).values())
    hooks = [hook for node in nodes.values() for hook in _hooks(node)]
    for text in [*map(_text, manifest.macros.values()), *map(_text, nodes.values()), *hooks]:
        drawing.define_all(_without_jinja(text) if _MAKES_A_MACRO.search(text) else "")
    drawn = {
        name: _draws(node, manifest.macros, drawing) for name, node in nodes.items() if node.resource_type not in _NEVER_RUN
    }
    return {name: draws for name, draws in drawn.items() if draws is not Draws.NOTHING}


def refuse_redrawn(nodes: Iterable[Any], drawing: DrawingFunctions) -> None:
    """Refuse nodes that perturb and do not keep what they drew."""
    redrawn = [(node.name, why) for node in nodes if (why := _why_redrawn(node, drawing))]
    unstored = [(name, why) for name, why in redrawn if why in _NOT_STORED]
    if unstored:
        raise Redrawn(f"these models perturb, but are not stored: {_list(unstored)}", _KEEP)
    if redrawn:
        raise Redrawn(f"these perturb again whenever dbt runs them: {_list(redrawn)}", _KEEP_OR_SAY_SO)


def refuse_uncharged(models: Iterable[Any]) -> None:
    """Refuse models that perturb and do not say what to charge to the ledger."""
    silent = [model.name for model in models if not _complete(ldp_meta(model))]
    if silent:
        raise NotReleased(
            f"these models perturb, and do not say what their ledger is to charge: {', '.join(sorted(silent))}",
            "write meta={'ldp': {'dataset': 'new_people', 'columns': {'city': 'city'}}} into their config, or a table",
        )


def ldp_meta(model: Any) -> Any:
    """Return the entry ``meta.ldp`` of a model, None if there is none."""
    return (getattr(model.config, "meta", None) or {}).get("ldp")


def is_permanent(node: Any) -> bool:
    """Return whether a node declares that its reports are permanent: ``meta={'ldp': {'permanent': true, ...}}``."""
    release = ldp_meta(node)
    return isinstance(release, dict) and release.get("permanent") is True


def charged_first(node: Any) -> bool:
    """Return whether a node is charged before its statements: no statement that we see draws new reports."""
    return getattr(node, "language", "sql") == "python" or (is_permanent(node) and not charged_at_commit(node))


def charged_at_commit(node: Any) -> bool:
    """Return whether COMMIT charges the reports of a node: nobody can see them before, and it draws in that transaction."""
    config = node.config
    in_table = getattr(node, "language", "sql") != "python" and str(config.materialized) in ("incremental", "table")
    return in_table and not config.post_hook and config.incremental_strategy != "microbatch"


def _complete(release: Any) -> bool:
    if not isinstance(release, dict) or release.keys() - {"dataset", "columns", "redraw", "table", "permanent"}:
        return False
    columns = release.get("columns")
    if isinstance(release.get("table"), str) and columns is None:
        return isinstance(release.get("dataset"), str)
    return isinstance(release.get("dataset"), str) and isinstance(columns, dict) and bool(columns)


def redraws_on_purpose(node: Any) -> bool:
    """Return whether a node declares that it draws again: ``meta={'ldp': {'redraw': true}}``."""
    release = ldp_meta(node)
    return isinstance(release, dict) and release.get("redraw") is True


def _why_redrawn(node: Any, drawing: DrawingFunctions) -> str:
    """Return what makes dbt draw the reports of a node again, or the empty string."""
    materialized = str(node.config.materialized)
    if node.resource_type == "model" and materialized in _NOT_STORED:
        return materialized
    if redraws_on_purpose(node):
        return ""
    if any(draws_of(hook, drawing) for hook in _hooks(node)):
        return "in a hook"
    if node.resource_type != "model":
        return str(node.resource_type)
    return _why_repeated(node.config) if materialized == "incremental" else materialized


def _why_repeated(config: Any) -> str:
    """Return what makes dbt draw rows of an incremental model again, or the empty string."""
    if config.incremental_strategy == "microbatch":
        return "incremental by microbatch"
    if not config.unique_key:
        return "incremental without unique_key"
    return "" if config.full_refresh is False else "incremental without full_refresh=false"


def _list(redrawn: list[tuple[str, str]]) -> str:
    return ", ".join(sorted(f"{name} ({why})" for name, why in redrawn))


def _draws(node: Any, macros: Mapping[str, Any], drawing: DrawingFunctions) -> Draws:
    """Return what a node draws: in its text, its hooks and the macros that it calls, directly or through others."""
    called = _called(node, macros, {})
    texts = [*_hooks(node), *(_text(macro) for macro in called.values())]
    python = getattr(node, "language", "sql") == "python"
    return max([draws_of(_text(node), drawing, python=python), *(draws_of(text, drawing) for text in texts)])


def _called(node: Any, macros: Mapping[str, Any], seen: dict[str, Any]) -> dict[str, Any]:
    """Return the macros of dbt that a node calls, directly and through others."""
    for name in node.depends_on.macros:
        if name not in seen and name in macros:
            seen[name] = macros[name]
            _called(macros[name], macros, seen)
    return seen


def _text(node: Any) -> str:
    return getattr(node, "macro_sql", "") or getattr(node, "raw_code", "")


def _hooks(node: Any) -> list[str]:
    config = node.config
    return [hook.sql for hook in [*getattr(config, "pre_hook", ()), *getattr(config, "post_hook", ())]]


# The statements that dbt runs, read just before: compiled SQL, with all that Jinja put into it.

_ENDS = {"commit", "end"}  # a transaction
_ASKED_FOR = "run-operation"  # a person starts each of its runs
_FIXTURES = "unit_test."  # their rows are not of people


def ends_transaction(sql: str) -> bool:
    """Return whether SQL makes visible what its transaction wrote."""
    return any(_ENDS & {*statement.words[:1]} for statement in statements(sql))


class StatementChecks:
    """The checks of one run's statements; each node is warned about once."""

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def check(self, sql: str, connection: str, drawing: DrawingFunctions) -> Any:
        """Refuse a statement that perturbs and does not store what it draws; warn if what it stores gives values away.

        Returns:
            The node whose reports the statement draws; None if it draws none.

        Args:
            sql: the statement.
            connection: the name of dbt's connection: the id of a node, or another name.
            drawing: the functions that draw; macros that the statement creates are added.
        """
        drawing.define_all(sql)
        if drawing.of(sql) is Draws.NOTHING or connection.startswith(_FIXTURES):
            return None
        adapter = get_adapter_by_type("duckdb")
        command = adapter.config.args.which
        node = getattr(adapter.get_macro_resolver(), "nodes", {}).get(connection)
        if command == "show":
            raise Redrawn("dbt show perturbs at every run, and keeps nothing", "show what was built from the reports")
        if node is not None:
            refuse_redrawn([node], drawing)
            # Any other statement than the one that builds a node is a hook, which dbt runs again with every build.
            if not redraws_on_purpose(node) and (node.compiled_code or "").strip() not in sql:
                raise Redrawn(f"a hook of {node.name} perturbs whenever dbt runs it", "perturb in the model itself")
            self._warn_of_leaks(node, [statement for statement in statements(sql) if drawing.draws(statement)], drawing)
        elif command != _ASKED_FOR:
            raise Redrawn(f"{connection} perturbs whenever dbt runs it", "perturb in a model, materialized as incremental")
        return node

    def _warn_of_leaks(self, node: Any, perturbing: list[Statement], drawing: DrawingFunctions) -> None:
        """Warn once of a node whose reports keep the order of the rows, or are stored next to what gives values away."""
        if node.unique_id in self._warned:
            return
        trees = [tree for statement in perturbing if (tree := parsed(statement.sql)) is not None]
        found = [f"{leak.problem}; {leak.remedy}" for tree in trees for leak in leaks(tree, Calls(drawing))]
        if any(map(keeps_order, perturbing)):
            found.insert(0, f"{IN_ORDER}; {SHUFFLE}")
        if found:
            self._warned.add(node.unique_id)
        for text in found:
            warn_or_error(AdapterEventWarning(name="ldpsql", base_msg=f"{node.name}: {text}", args=[]))


# A charge to the ledger for every materialisation that perturbs.
#
#     first statement that draws: check that everybody can pay -> the transaction draws -> COMMIT: charge, sign the table
#     -> dbt says that the model is finished: publish
#
# A model that fails before COMMIT charges nobody. A model whose reports can be seen before, such as one in Python or with a
# hook after it, is charged before it draws.

_LOG = logging.getLogger("ldpsql")


@dataclass
class _Building:
    """What one model draws: for whom, and the releases once they are charged; ``at_commit`` if COMMIT is to charge them."""

    columns: dict[str, Mechanism]
    dataset: Identity
    destination: str
    part: str = ""
    users: pa.ChunkedArray | None = None
    permanent: dict[str, Reported] = field(default_factory=dict)
    at_commit: bool = False
    unseen: bool = False  # whether nothing but the COMMIT that charged them shows the reports
    releases: list[Release] = field(default_factory=list)
    check: Callable[[], None] = lambda: None


class Releases:
    """The open releases of one run of dbt, by model."""

    def __init__(self, ledger: Ledger, mechanisms: Mapping[str, Any], con: DuckDBPyConnection, guard: Guard) -> None:
        """Open no release yet.

        Args:
            ledger: the ledger to charge.
            mechanisms: the mechanisms of the profile, by name.
            con: the connection whose cursors dbt works with; it is open when they are closed.
            guard: what lets the connection draw.

        """
        self._ledger, self._mechanisms, self._con, self._guard = ledger, mechanisms, con, guard
        self._open: dict[str, _Building] = {}
        self._lock = Lock()

    def begin(self, model: Any, dataset: str, run: str, within: DuckDBPyConnection | None) -> None:
        """Let a model draw a report for each row of its dataset, in each of its columns, if everybody can pay.

        Permanent reports are charged once for each person and value, when they are first drawn.

        Args:
            model: the node of dbt's manifest.
            dataset: its dataset, as SQL names it: the rows that this run perturbs.
            run: the id of this run; if rows are charged, its rows are distinct from those of other runs.
            within: the cursor that draws, if all that it writes can be seen only after its COMMIT, which then charges.

        Raises:
            BudgetExceeded, LedgerError: if it may not be drawn.
            NotReleased: if it was published before.

        """
        with self._lock:
            if model.unique_id in self._open:
                return
            for release in self._ledger.unpublished():  # of an earlier build that was killed
                if release.release in written_tokens(self._con):
                    self._ledger.publish(self._ledger.release_of(release.release))
                elif release.destination == model.relation_name and release.returnable and not release.drawn:
                    self._ledger.give_back(release.release)
            (columns, policy), unit = self._columns(ldp_meta(model)), self._ledger.policy.privacy_unit
            with self._con.cursor() as cursor:
                rows, users = people(within or cursor, dataset, unit)
                data = identity_of(cursor, dataset, rows=unit == ROW)
            check_policies(data, columns, permanent=is_permanent(model), policy=policy, con=self._con)
            building = _Building(columns, data, model.relation_name, run if unit == ROW else "", users)
            if rows and is_permanent(model):
                with self._con.cursor() as cursor:
                    table = permanent_columns(within or cursor, dataset, columns, unit)
                building.permanent = permanent_reports(self._guard, columns, table)
                charged = charge_columns_once(
                    self._ledger, data, building.permanent, model.relation_name, trial=within is not None
                )
                building.releases, building.at_commit = charged, within is not None
                self._guard.grant_permanent({(columns[name], name): r.fingerprints for name, r in building.permanent.items()})
            elif rows:
                options: dict[str, Any] = {"users": users, "part": building.part}
                if within is None:
                    building.releases = [self._charged(building, drawn=True)]
                    building.check = partial(_refuse_others, self._con, dataset, unit, users)
                else:
                    self._ledger.check_charge(data, columns, model.relation_name, **options)
                    building.at_commit = True
                self._guard.name_columns(columns)
                for mechanism in columns.values():
                    self._guard.grant(Counter({mechanism: rows}))
            self._open[model.unique_id] = building

    def _charged(self, building: _Building, *, drawn: bool = False) -> Release:
        """Charge what a model draws."""
        release = self._ledger.charge(
            building.dataset, building.columns, building.destination, users=building.users, part=building.part, drawn=drawn
        )
        if release.stored:
            raise NotReleased(
                f"the reports at {building.destination} for these people are already published", "do not draw them again"
            )
        return release

    def commit(self, unique_id: str, cursor: DuckDBPyConnection) -> None:
        """Charge what a model has drawn, and sign its table, within the transaction that dbt is about to commit.

        Raises:
            BudgetExceeded, LedgerError: if it cannot be charged; then the transaction must not be committed.

        """
        with self._lock:
            building = self._open.get(unique_id)
        if building is None or not building.at_commit or building.releases:
            return
        if building.permanent:
            data, destination = building.dataset, building.destination
            building.releases = charge_columns_once(self._ledger, data, building.permanent, destination)
        else:
            building.releases = [self._charged(building)]
            (release,) = building.releases
            write_token(cursor, building.destination, release.token)
            self._ledger.drawn(release.token, once=True)
            building.unseen = True

    def _columns(self, release: Mapping[str, Any]) -> tuple[dict[str, Mechanism], str | None]:
        """Return the mechanism of each column that a model draws, and the policy of a table that has them, if any."""
        if "table" not in release:
            named = {column: self._mechanisms.get(m, m) for column, m in release["columns"].items()}
            return {column: registry().mechanism(mechanism) for column, mechanism in named.items()}, None
        policy, unit = table_policy(release["table"], self._con), self._ledger.policy.privacy_unit
        if policy.unit != unit:
            raise InvalidParameter(
                f"the privacy unit of [tables.{policy.name}] is {policy.unit}, and that of the ledger is {unit}",
                "write the same unit into both",
            )
        return dict(policy.mechanisms), policy.name

    def finish(self, unique_id: str, *, succeeded: bool) -> None:
        """End the release of a model: publish it if its reports are stored, or give back its charge if nobody has seen them."""
        with self._lock:
            building = self._open.pop(unique_id, None)
            if not self._open:
                self._guard.withdraw()
        if building is None:
            return
        try:
            if succeeded:
                building.check()
            for release in building.releases:
                if succeeded:
                    self._ledger.publish(release)
                else:
                    return_charge(partial(written_tokens, self._con), self._ledger, release.token, unseen=building.unseen)
        except LdpError as error:  # dbt has finished the model: the error can only be logged
            _LOG.error("%s: %s", unique_id, error)


def _refuse_others(con: DuckDBPyConnection, dataset: str, unit: str, users: Any) -> None:
    with con.cursor() as cursor:
        refuse_others(cursor, dataset, unit, users)


def relation_of(model: Any, manifest: Any) -> str:
    """Return the relation of the dataset that a model names: one of those it refers to."""
    name = ldp_meta(model)["dataset"]
    for upstream in model.depends_on.nodes:
        node = manifest.nodes.get(upstream) or manifest.sources.get(upstream)
        if node is not None and node.name == name and node.relation_name:
            return str(node.relation_name)
    raise InvalidParameter(f"{model.name} refers to no stored model or source named by its dataset", "the rows it perturbs")


# The record of mechanisms in the comments of the tables that models draw into.


class Records:
    """What will be recorded of the models of one run, by their ids."""

    def __init__(self) -> None:
        self._markings: dict[str, Marking | None] = {}
        self._lock = Lock()

    def begin(self, node: Any, con: DuckDBPyConnection, drawing: DrawingFunctions) -> None:
        """Read which columns a model draws, and the comments of its table, before its first statement that draws."""
        with self._lock:
            if node.unique_id not in self._markings and node.relation_name:
                sql = node.compiled_code or ""
                self._markings[node.unique_id] = marking_of_query(con, node.relation_name, sql, drawing)

    def finish(self, node: Any, con: DuckDBPyConnection) -> None:
        """Write the comments of the table of a model that succeeded."""
        with self._lock:
            marking = self._markings.pop(node.unique_id, None)
        if marking is not None:
            with con.cursor() as cursor:
                marking.write_if_there(cursor, appended=str(node.config.materialized) == "incremental")
