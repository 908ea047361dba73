"""The lint for uses of report columns over many SQL files, which know the tables of each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from sqlglot import exp

from ldpsql.sql.drawing import DrawingFunctions
from ldpsql.sql.leaks import leaks
from ldpsql.sql.lineage import Calls, Files, Reader, Relation, Report, Tables, path_of
from ldpsql.sql.lint import Finding
from ldpsql.sql.structure import parsed
from ldpsql.sql.tokens import Statement, statements
from ldpsql.sql.uses import Use, uses

_ROUNDS = 20  # a file may use a view of a file that is read later
_ALLOWED = "ldpsql: allow"  # a comment within a statement that uses reports on purpose
Parsed = tuple[Statement, exp.Expr]


class Project:
    """Parsed statements by file, and the columns of their tables that are reports."""

    def __init__(self, texts: Mapping[Path, str], drawing: DrawingFunctions, files: Files = lambda _: None) -> None:
        """Parse the texts; those with Jinja are models of dbt.

        Args:
            texts: the SQL of each file.
            drawing: the functions that draw, with the macros of the texts.
            files: returns the columns of a data file by its name in SQL, None if it records none.

        """
        self._parsed = {path: _parsed(path, text) for path, text in texts.items()}
        self._models = {path for path, text in texts.items() if is_template(text)}
        self._calls = Calls(drawing, _calling(text for text in texts.values()))
        self.tables = Tables(files)

    def uses(self) -> Iterable[tuple[Path, Statement, Use]]:
        """Yield every use of reports as if they were the values, with its file and statement."""
        for _ in range(_ROUNDS):
            changes = [self._define(path, tree) for path, trees in self._parsed.items() for _, tree in trees]
            if not any(changes):
                break
        for path, trees in self._parsed.items():
            for statement, tree in trees:
                if _ALLOWED not in statement.sql:
                    yield from ((path, statement, use) for use in uses(self._read(tree)[0]))

    def leaks(self) -> Iterable[tuple[Path, Statement, Finding]]:
        """Yield what statements that store reports give away about the values, with their files."""
        for path, trees in self._parsed.items():
            for statement, tree in trees:
                if _ALLOWED not in statement.sql and (not isinstance(tree, exp.Query) or path in self._models):
                    yield from ((path, statement, finding) for finding in leaks(tree, self._calls))

    def _define(self, path: Path, tree: exp.Expr) -> bool:
        """Add what a statement makes to the tables; return whether anything changed."""
        reader, relation = self._read(tree)
        made = _made(tree, path)
        if isinstance(tree, exp.Update):
            relation = _updated(tree, reader)
        return made is not None and self.tables.define(made, relation)

    def _read(self, tree: exp.Expr) -> tuple[Reader, Relation]:
        """Return a reader that has read a statement, and the columns of the rows that the statement makes."""
        reader = Reader(self.tables, self._calls)
        if isinstance(tree, exp.Comment):
            return reader, _commented(tree)
        if isinstance(tree, exp.Create | exp.Insert):
            query = tree.expression
            names = [part.name for part in tree.this.expressions] if isinstance(tree.this, exp.Schema) else []
            if isinstance(query, exp.Query):
                return reader, reader.read(query).renamed(names)
            if query is not None:
                reader.scope(exp.Select(expressions=[query.copy()]), [], {}, None)
            return reader, Relation()
        if isinstance(tree, exp.Copy):
            return reader, reader.read(tree.this)
        if isinstance(tree, exp.Update | exp.Delete | exp.Merge):
            reader.scope(tree, [tree.this, *_further(tree)], {}, None)
            return reader, Relation()
        return reader, reader.read(tree) if isinstance(tree, exp.Query | exp.Pivot) else Relation()


def _parsed(path: Path, text: str) -> list[Parsed]:
    """Return the statements of a text that can be parsed, with their trees."""
    if not is_template(text):
        return [(statement, tree) for statement in statements(text) if (tree := parsed(statement.sql)) is not None]
    both, first = (_parsed(path, plain_sql(text, model_of(path), branches=branches) + " ") for branches in (True, False))
    return both if len(both) >= len(first) else first


def _calling(texts: Iterable[str]) -> frozenset[str]:
    """Return the names of the macros in these texts that call a function of ldpsql."""
    made = [statement for text in texts for statement in statements(text) if statement.macro]
    return frozenset(
        statement.macro for statement in made if statement.macro and any(token.name == "ldp" for token in statement.body.tokens)
    )


def _further(tree: exp.Expr) -> list[exp.Expr]:
    """Return the tables that UPDATE, DELETE or MERGE reads apart from the one that it changes."""
    parts = [tree.args.get("from_"), *(using if isinstance(using := tree.args.get("using"), list) else [using])]
    return [part.this if isinstance(part, exp.From) else part for part in parts if isinstance(part, exp.Expr)]


def _made(tree: exp.Expr, path: Path) -> tuple[str, ...] | None:
    """Return the name of the table, the view, the macro or the file that a statement makes or fills; a query is a model."""
    if isinstance(tree, exp.Copy):
        return (tree.args["files"][0].name,) if tree.args.get("files") else None
    if isinstance(tree, exp.Comment):
        column = tree.this
        return tuple(part.name.lower() for part in column.parts[:-1]) if isinstance(column, exp.Column) else None
    if isinstance(tree, exp.Create | exp.Insert | exp.Update | exp.Merge):
        target = tree.this.this if isinstance(tree.this, exp.Schema | exp.UserDefinedFunction) else tree.this
        name = path_of(target) if isinstance(target, exp.Table) else None
        return (f"{name[-1]}()",) if name and isinstance(tree.this, exp.UserDefinedFunction) else name
    return (model_of(path),) if isinstance(tree, exp.Query) else None


def _commented(tree: exp.Comment) -> Relation:
    """Return the column that a comment records the mechanism of."""
    column, text = tree.this, tree.expression
    if not isinstance(column, exp.Column) or not isinstance(text, exp.Literal) or "ldpsql:" not in text.name:
        return Relation()
    return Relation(((column.name.lower(), Report(column.name)),), open=True)


def _updated(tree: exp.Update, reader: Reader) -> Relation:
    """Return the columns that UPDATE sets to reports."""
    pairs = [pair for pair in tree.expressions if isinstance(pair, exp.EQ)]
    reports = ((pair.this.name.lower(), reader.report_of(pair.expression, reader.scopes[-1])) for pair in pairs)
    return Relation(tuple((name, report) for name, report in reports if report), open=True)


# The SQL of dbt models without Jinja: references become names, and every line stays where it is.


_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_TAG = re.compile(r"\{%-?(.*?)-?%\}", re.DOTALL)
_VALUE = re.compile(r"\{\{-?(.*?)-?\}\}", re.DOTALL)
_REF = re.compile(r"""\s*ref\(\s*(?:['"][^'"]+['"]\s*,\s*)?['"]([^'"]+)['"].*\)\s*""", re.DOTALL)
_SOURCE = re.compile(r"""\s*source\(\s*['"]([^'"]+)['"]\s*,\s*['"]([^'"]+)['"]\s*\)\s*""", re.DOTALL)
_SET = re.compile(r"\s*set\s+(\w+)\s*=\s*(.*)", re.DOTALL)
_NOT_SQL = re.compile(r"\{%-?\s*(macro|test|docs)\b.*?\{%-?\s*end\1\s*-?%\}", re.DOTALL)
_ELSE = re.compile(r"(\{%-?\s*)(?:else|elif\b.*?)(\s*-?%\})(.*?)(?=\{%-?\s*endif)", re.DOTALL)


def is_template(text: str) -> bool:
    """Return whether a text has Jinja in it."""
    return "{{" in text or "{%" in text


def plain_sql(text: str, model: str, *, branches: bool = True) -> str:
    """Return the SQL of a model with a name for each reference; other values become the name ``x``.

    Args:
        text: SQL with Jinja.
        model: the name of the model, which ``this`` stands for.
        branches: whether to keep what follows ``else``, next to what precedes it.

    """
    for pattern in (_COMMENT, _NOT_SQL):
        text = pattern.sub(_lines, text)
    if not branches:
        text = _ELSE.sub(_lines, text)
    names = {"this": model}
    for match in _TAG.finditer(text):
        if (assigned := _SET.fullmatch(match[1])) and (relation := _relation(assigned[2])):
            names[assigned[1]] = relation
    return _VALUE.sub(lambda match: _name(match[1], names) + _lines(match), _TAG.sub(_lines, text))


def model_of(path: Path) -> str:
    """Return the name of the model, or of the query, that a file holds."""
    return path.stem.lower()


def _relation(expression: str) -> str:
    if match := _REF.fullmatch(expression):
        return match[1]
    match = _SOURCE.fullmatch(expression)
    return f"{match[1]}.{match[2]}" if match else ""


def _name(expression: str, names: dict[str, str]) -> str:
    stripped = expression.strip()
    if relation := _relation(expression) or names.get(stripped):
        return relation
    if stripped.startswith("config("):
        return ""
    return stripped if stripped.isidentifier() else "x"


def _lines(match: re.Match[str]) -> str:
    """Return the line breaks of what is left out."""
    return "\n" * match[0].count("\n")
