"""The hooks of ldpsql: what a plugin may offer. Every hook returns a list, so one plugin can offer several things.

A third party's plugin is a module with any of these functions, marked with `hookimpl`, and an entry point in the group
``ldpsql`` that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ldpsql.hooks import hookspec

if TYPE_CHECKING:
    from ldpsql.engine.functions import Macros, Scalar
    from ldpsql.estimates.question import Question
    from ldpsql.estimators.base import Estimator
    from ldpsql.mechanisms.base import Mechanism
    from ldpsql.registry.registry import Registry


@hookspec
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer mechanisms: classes, not instances."""
    return []


@hookspec
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer estimators: classes, not instances."""
    return []


@hookspec
def ldpsql_questions() -> list[type[Question]]:
    """Offer questions about the values behind reports: classes, not instances."""
    return []


@hookspec
def ldpsql_functions(known: Registry) -> list[Scalar | Macros]:  # noqa: ARG001  # named for pluggy
    """Offer SQL functions; ``known`` holds all mechanisms, estimators and questions."""
    return []


@hookspec
def ldpsql_commands() -> list[Callable[..., Any]]:
    """Offer commands of ``ldpsql``: functions as typer takes them, or typer apps with a name."""
    return []


@hookspec
def ldpsql_dialects() -> list[tuple[str, Any]]:
    """Offer dialects of ``ldpsql export-sql``: names, each with a compiler of Ibis (``SQLGlotCompiler``)."""
    return []


@hookspec
def ldpsql_databases() -> list[tuple[str, type]]:
    """Offer databases that runs read and write: the schemes of addresses, each with a class derived from ``Database``."""
    return []
