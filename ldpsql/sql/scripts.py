"""The lint for SQL files: what draws new reports whenever it is used, and reports stored in the order of the people."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from sqlglot import exp

from ldpsql.errors import SourceRefused
from ldpsql.sql.drawing import DrawingFunctions, Draws
from ldpsql.sql.lineage import Relation
from ldpsql.sql.lint import Finding, redrawn
from ldpsql.sql.project import Project
from ldpsql.sql.recorded import of_file, of_settings
from ldpsql.sql.remedies import misused
from ldpsql.sql.structure import computed_columns, keeps_order, parsed, reads_stored
from ldpsql.sql.tokens import Statement, statements

# Expressions that DuckDB evaluates several times for a row: a draw inside of one gives several reports.
#
# DuckDB turns them into others in which an operand occurs more than once, and cannot know that each of these would draw.

# Macros of DuckDB in which a parameter occurs more than once, and functions over a constant list, which become IN.
MACROS = frozenset({
    "array_pop_back", "array_to_string", "array_to_string_comma_default", "fmod", "json_group_array", "json_group_object",
    "map_contains_entry", "nullif", "split_part", "weighted_avg",
})  # fmt: skip
_OVER_LISTS = frozenset({"array_contains", "array_has", "contains", "list_contains", "list_has"})


def repeats(sql: str, drawing: DrawingFunctions) -> bool:
    """Return whether a statement draws inside of an expression that DuckDB may evaluate several times for a row."""
    tree = parsed(sql)
    return tree is not None and any(_draws(operand, drawing) for operand in _repeated(tree))


def _repeated(tree: exp.Expr) -> list[exp.Expr]:
    """Return the operands that DuckDB may evaluate several times."""
    compared = [node.this for node in tree.find_all(exp.In) if len(node.expressions) > 1]
    cases = [node.this for node in tree.find_all(exp.Case) if node.this is not None and len(node.args["ifs"]) > 1]
    return [*compared, *cases, *(call for call in tree.find_all(exp.Func) if _names(call) & (MACROS | _OVER_LISTS))]


def _names(call: exp.Func) -> set[str]:
    names = [call.name] if isinstance(call, exp.Anonymous) else type(call).sql_names()
    return {name.lower() for name in names}


def _draws(operand: exp.Expr, drawing: DrawingFunctions) -> bool:
    return drawing.named(call.name for call in operand.find_all(exp.Anonymous))


IN_ORDER = "it stores reports in the order of the rows, which reveals values if rows are sorted or grouped by them"
SHUFFLE = "use FROM ldp.perturb_rows(table, {column: mechanism}), or end the query with ORDER BY random()"
SEVERAL = (
    "it perturbs inside IN, NULLIF, CASE x WHEN or a similar expression, which DuckDB may evaluate several times for a row"
)
STORE_FIRST = "store the reports first, then compare them"


class Place(NamedTuple):
    """A finding with its place: the file, and the line in which the statement begins."""

    file: str
    line: int
    finding: Finding


def lint_files(paths: Iterable[Path], tables: Iterable[tuple[tuple[str, ...], Relation]] = ()) -> list[Place]:
    """Return the findings in SQL files, and in all SQL files below folders; one file may call the macros of another.

    Args:
        paths: files and folders. Those with Jinja are models of dbt, under the names of their files.
        tables: tables of a database whose columns are known to be reports.

    Raises:
        SourceRefused: if a file cannot be read as text, or a folder has no SQL files.

    """
    texts = {file: _text(file) for path in paths for file in _files(path)}
    drawing = DrawingFunctions.of_registry()
    drawing.define_all(";\n".join(texts.values()))
    drawn = [place for path, text in texts.items() for place in _lint(path, text, drawing)]
    project = Project(texts, drawing, of_file)
    for path, relation in [*of_settings(), *tables]:
        project.tables.define(path, relation)
    leaked = [Place(str(path), statement.line, finding) for path, statement, finding in project.leaks()]
    used = [Place(str(path), statement.line + max(use.line, 1) - 1, misused(use)) for path, statement, use in project.uses()]
    return sorted([*drawn, *leaked, *used], key=lambda place: place[:2])


def _files(path: Path) -> list[Path]:
    """Return a file itself, or the SQL files below a folder."""
    below = sorted(path.rglob("*.sql")) if path.is_dir() else [path]
    if not below:
        raise SourceRefused(f"there is no .sql file below {path}", "name the files")
    return below


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise SourceRefused(f"there is no file {path}", "name SQL files or folders of them") from None
    except UnicodeDecodeError:
        raise SourceRefused(f"{path} is not UTF-8 text", "name SQL files or folders of them") from None


def _lint(path: Path, text: str, drawing: DrawingFunctions) -> list[Place]:
    findings = ((statement, _finding(statement, drawing)) for statement in statements(text))
    return [Place(str(path), statement.line, finding) for statement, finding in findings if finding is not None]


def _finding(statement: Statement, drawing: DrawingFunctions) -> Finding | None:
    """Return what is wrong with a statement, or None."""
    draws = drawing.draws(statement)
    if draws is Draws.NOTHING:
        return None
    if statement.words[:1] == ["create"] and "view" in statement.words:
        return redrawn("view", "", draws)
    if repeats(statement.sql, drawing):
        return Finding("macro" if statement.macro else "statement", "", SEVERAL, STORE_FIRST)
    if statement.macro or statement.words[:1] == ["prepare"]:
        return _called(statement, draws)
    return redrawn("statement", "", draws) if draws is Draws.UNKNOWN else _stored(statement, drawing)


def _called(statement: Statement, draws: Draws) -> Finding | None:
    """Return what is wrong with a macro or a prepared statement, which may perturb only its arguments, or None."""
    kind, sql = ("macro", statement.sql) if statement.macro else ("prepared statement", statement.after("as"))
    return redrawn(kind, "", draws) if draws is Draws.REPORTS and reads_stored(sql) else None


def _stored(statement: Statement, drawing: DrawingFunctions) -> Finding | None:
    """Return what is wrong with a statement that stores reports or defines a column that perturbs, or None."""
    if keeps_order(statement):
        return Finding("statement", "", IN_ORDER, SHUFFLE)
    draws = drawing.of(computed_columns(statement))
    return None if draws is Draws.NOTHING else redrawn("generated column or check", "", draws)
