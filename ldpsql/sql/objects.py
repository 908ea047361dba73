"""The lint for the objects of a database: views and macros that draw again, and those that use reports as values."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ldpsql.sql.drawing import DrawingFunctions, Draws
from ldpsql.sql.lineage import Relation
from ldpsql.sql.lint import Finding, redrawn
from ldpsql.sql.project import Project
from ldpsql.sql.recorded import of_file
from ldpsql.sql.remedies import misused
from ldpsql.sql.structure import reads_stored


class Object(NamedTuple):
    """A view or a macro: its kind, its name, and the SQL that creates it."""

    kind: str
    name: str
    sql: str


def lint_objects(objects: Iterable[Object], tables: Iterable[tuple[tuple[str, ...], Relation]]) -> list[Finding]:
    """Return the findings about views and macros of a database.

    Args:
        objects: the views and macros that the user made.
        tables: the tables that record the mechanisms of their columns.

    """
    listed, drawing = list(objects), DrawingFunctions.of_registry()
    drawing.define_all(";\n".join(one.sql for one in listed))
    texts = {Path(str(place)): one.sql for place, one in enumerate(listed)}
    project = Project(texts, drawing, of_file)
    for path, relation in tables:
        project.tables.define(path, relation)
    redraws = [finding for one in listed if (finding := _redrawn(one, drawing)) is not None]
    used = ((listed[int(path.name)], misused(use)) for path, _, use in project.uses())
    return [*redraws, *(Finding(one.kind, one.name, finding.problem, finding.remedy) for one, finding in used)]


def _redrawn(one: Object, drawing: DrawingFunctions) -> Finding | None:
    """Return the finding for an object that draws whenever it is used, or None."""
    body = one.sql.partition(" AS ")[2]
    draws = drawing.of(body)
    if draws is Draws.NOTHING or (one.kind == "macro" and (draws is Draws.UNKNOWN or not reads_stored(body))):
        return None
    return redrawn(one.kind, one.name, draws)
