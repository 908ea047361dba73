"""The statements that dbt runs, read just before: compiled SQL, with all that Jinja put into it."""

from __future__ import annotations

from typing import Any

from dbt.adapters.events.types import AdapterEventWarning
from dbt.adapters.factory import get_adapter_by_type
from dbt_common.events.functions import warn_or_error

from ldpsql.dbt.models import redraws_on_purpose, refuse_redrawn
from ldpsql.errors import Redrawn
from ldpsql.sql.calls import Calls
from ldpsql.sql.drawing import DrawingFunctions, Draws
from ldpsql.sql.leaks import leaks
from ldpsql.sql.scripts import IN_ORDER, SHUFFLE
from ldpsql.sql.structure import keeps_order, parsed
from ldpsql.sql.tokens import Statement, statements

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

        Raises:
            Redrawn: naming the node.

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
            _refuse_hook(node, sql)
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


def _refuse_hook(node: Any, sql: str) -> None:
    """Refuse a statement that perturbs and is not the one that builds a node: a hook, which dbt runs again with every build."""
    if not redraws_on_purpose(node) and (node.compiled_code or "").strip() not in sql:
        raise Redrawn(f"a hook of {node.name} perturbs whenever dbt runs it", "perturb in the model itself")
