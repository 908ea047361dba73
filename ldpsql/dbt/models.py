"""The nodes of a dbt project that perturb, whether their reports are drawn once and kept, and the statements that dbt runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dbt.adapters.events.types import AdapterEventWarning
from dbt.adapters.factory import get_adapter_by_type
from dbt_common.events.functions import warn_or_error

from ldpsql.errors import NotReleased, Redrawn
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
