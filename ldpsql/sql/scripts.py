"""The lint for SQL files, which know the tables of each other: draws at every use, reports in order, and uses of reports."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from sqlglot import exp

from ldpsql.errors import SourceRefused
from ldpsql.sql.drawing import DrawingFunctions, Draws, Statement, statements
from ldpsql.sql.lineage import Calls, Files, Reader, Relation, Report, Tables, path_of
from ldpsql.sql.lint import Finding, redrawn
from ldpsql.sql.recorded import of_file, of_settings
from ldpsql.sql.structure import computed_columns, keeps_order, parsed, reads_stored
from ldpsql.sql.uses import Use, leaks, misused, uses

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
        raise SourceRefused(
            f"{path} is not UTF-8 text", "name SQL files or folders of them, and a database after --database"
        ) from None


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
