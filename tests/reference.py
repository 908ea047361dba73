"""The generated parts of the documentation: ``python -m tests.reference`` writes them from the registry."""

from __future__ import annotations

import inspect
import os
import re
import sys
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast, get_origin

os.environ["LDPSQL_PLUGINS"] = "0"

import duckdb
import typer.main
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql import Key, Ledger, Mechanism, Policy, certify, document, errors
from ldpsql.functions import Macros, registry
from ldpsql.mechanisms import ApproximateLdp, MetricLdp, PureLdp
from ldpsql.mechanisms.spec import Spec
from ldpsql.registry.hookspecs import imported
from ldpsql.settings import sections
from ldpsql.testing import check_mechanism
from tests.commands import app
from tests.laws.subjects import SMALL

MECHANISMS = "`ldp.NAME(...)` makes a mechanism; in Python and on the command line it is the text `NAME(...)`."
ESTIMATORS = (
    "`ldp.NAME(report, m, ...)` estimates from a column of reports or of their counts, and "
    "`FROM ldp.estimate(reports, report, m, estimator := 'NAME')` from a column of a table, a view, a file or a frame."
)
FUNCTIONS = (
    "The functions by task, each with an example. [Mechanisms](mechanisms.md) and [estimators](estimators.md) have pages of "
    "their own. A question, such as `ldp.estimate` or `ldp.mean`, is an aggregate: it works under any `GROUP BY`."
)
SETUP = (
    "All examples run on these tables. The number of each report is fixed, so that their results stay the same; they show "
    "four digits and at most six rows, and *random* where each run differs. A connection in memory runs them, with a key for "
    "permanent reports; for the budget, one with a ledger."
)
COLUMNS = {
    "`value`, `key`": "a value of the mechanism, or a key, in its own type",
    "`estimate`, `share`": "a share from 0 to 1; of a mean or a quantile, the number in the unit of the values, of a variance "
    "in that unit squared: days for dates, seconds for times. `n * estimate` is a number of people",
    "`std_error`": "the standard error, in the same unit",
    "`low`, `high`": "the ends of the interval, in the same unit",
    "`n`, `reports`": "the number of reports",
    "`p_value`": "the probability of a statistic that is at least as large if nothing differs",
    "`effective_reports`": "the number of rows with equal weights, or of raw values, that would tell as much",
    "`realised_epsilon`, `claim`": "the epsilon of the exact channel, and the claim that it was compared with",
    "`mechanism`, `fingerprint`": "its name, and the digits that only the same channel has",
}
ERRORS = "Every error has a code, one sentence and a hint that says what to do. The command line ends with the exit code."
COMMAND_LINE_ERRORS = {
    "LDP901": (
        "Something failed whose message may show raw values, so only its kind is shown.",
        "A statement failed on the data, for example a cast, or a library raised an error.",
        "Run the statement in DuckDB itself to read the message.",
    ),
    "LDP902": (
        "The operating system refused to read or write a file.",
        "The path is wrong, or its permissions do not allow it.",
        "Correct the path that the message names, or its permissions.",
    ),
    "LDP903": (
        "DuckDB refused the statement.",
        "The statement has a wrong name or wrong syntax, or the database is locked by another process.",
        "Correct the statement: the message is that of DuckDB. Named arguments are written with `:=`, not `=`.",
    ),
}
SETTINGS = (
    "`ldpsql` reads `ldpsql.toml` in the working directory or the nearest folder above it, and a file of that name in the "
    "user's folder of settings, `~/.config/ldpsql` on Linux. The project's file comes first, and environment variables come "
    "before both. Paths are relative to the file that they are in. Every section may be left "
    "out, and epsilons and budgets are numbers or text. An example:"
)
SETTINGS_EXAMPLE = """[plugins]
allow = ["ldpsql-coin"]

[mechanisms]
city = "krr(epsilon=1, domain=['Lima', 'Oslo', 'Rome', 'Kyiv'])"

[defaults]
format = "json"
estimator = "best"

[tables.people]
epsilon = 2
unit = "id"
permanent = true
frequency = "30 days"
columns = { city = "city", age = "square_wave(low=0, high=100)" }
keep = ["id", "region"]

[ledger]
path = "budget.ledger"
key = "people.key"
privacy_unit = "id"
epsilon_budget = "8"
budget_window = "365 days"
column_groups = { places = ["city"], persons = ["age"] }

[lineage]
file = "lineage.jsonl"
"""
VARIABLES = {
    "LDPSQL_CONFIG": "the path of the user's settings file",
    "LDPSQL_PLUGINS": (
        "packages whose plugins are loaded, or files such as `./coin.py` and folders of them, separated by commas, instead of "
        "`allow` in the files; `0` for none"
    ),
    "LDPSQL_NATIVE": "`0` draws in Python even if kernels were compiled at installation; `ldpsql doctor` says which",
    "LDPSQL_LEDGER": "the ledger, instead of `path` in `[ledger]`",
    "LDPSQL_KEY": "the file with the secret key, instead of `key` in `[ledger]`",
    "LDPSQL_FORMAT": "how commands write results, instead of `format` in `[defaults]`",
    "LDPSQL_ESTIMATOR": "the estimator of commands, instead of `estimator` in `[defaults]`",
    "OPENLINEAGE_URL": "the address whose host gets the key of OpenLineage",
    "OPENLINEAGE_API_KEY": "the key, sent to that host only",
}
ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
COIN = ROOT / "examples" / "ldpsql-coin"
EXAMPLES = (Path(__file__).parent / "data" / "functions.sql").read_text(encoding="utf-8")
_MACRO = r'MACRO ldp\."?([a-z]\w*)"?\s*\(((?:[^()]|\([^()]*\))*)\)\s*AS( TABLE)?'


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table; ``|`` inside a cell is escaped."""
    titles, *lines = [" | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) for row in [list(heads), *rows]]
    rule = " | ".join("---" for _ in heads)
    return "\n".join(f"| {line} |" for line in [titles, rule, *lines])


def specs(classes: Iterable[type[Spec]]) -> Iterator[str]:
    """Yield a section for each mechanism or estimator: what it is, its parameters, its docstring."""
    for spec in sorted(classes, key=lambda spec: spec.name):
        yield f"## {spec.name}\n{_plain(spec.summary())}.\n\n```text\nldp.{spec.signature()}\n```\n"
        if details := explanation(spec):
            yield details + "\n"
        rows = [
            [f"`{p.name}`", p.type, "required" if p.required else f"`{p.default}`", p.description] for p in spec.parameters()
        ]
        yield table(["parameter", "type", "default", "meaning"], rows) + "\n"


def explanation(spec: type[Spec]) -> str:
    """Return what the docstring of a mechanism or an estimator says after its first sentence, without the examples."""
    _, _, rest = inspect.cleandoc(spec.__doc__ or "").partition("\n\n")
    return _plain(rest.partition(">>>")[0].strip())


def _plain(text: str) -> str:
    return text.replace("``", "`")


def functions() -> dict[str, tuple[str, list[str], list[str]]]:
    """Return what each SQL function does that is neither a mechanism nor an estimator, its calls and its arguments."""
    offered = "\n".join(one.text for _, own in registry().functions() for one in own if isinstance(one, Macros))
    calls: dict[str, dict[str, None]] = {}
    for name, given, over_table in re.findall(_MACRO, offered):
        call = f"{'FROM ' * bool(over_table)}ldp.{name}({' '.join(given.split())})"
        calls.setdefault(name, {})[call.replace('"', "")] = None
    with ldpsql.connect() as con:
        rows = con.execute(
            """SELECT function_name, min(comment ORDER BY function_type), list_distinct(flatten(list(parameters)))
               FROM duckdb_functions() WHERE database_name = 'ldp' AND NOT starts_with(function_name, '_')
               AND NOT starts_with(macro_definition, '"system".main.error(') GROUP BY ALL"""  # a call that is refused
        ).fetchall()
    specs = {*registry().mechanisms, *registry().estimators}
    return {name: (comment, list(calls[name]), own) for name, comment, own in rows if name not in specs}


def function_page() -> str:
    """Return the page of SQL functions: arguments and columns that many share, then each function with its example."""
    _, setup, *tasks, wrong = re.split(r"^-- # .*\n", EXAMPLES, flags=re.MULTILINE)
    titles = re.findall(r"^-- # (.*)\n", EXAMPLES, re.MULTILINE)[1:-1]
    arguments = {name: [kind, text] for name, kind, text in re.findall(r"^-- @(\w+) ([^:]+): (.*)$", EXAMPLES, re.MULTILINE)}
    known = functions()
    used = Counter(argument for *_, own in known.values() for argument in own)
    assert used.keys() == arguments.keys(), used.keys() ^ arguments.keys()
    shared = [name for name in arguments if used[name] > 2]  # the others are explained at their functions
    listed = [re.findall(r"^-- (\w+)", task, re.MULTILINE) for task in tasks]
    links = [", ".join(f"[{name}](#ldp{name})" for name in names) for names in listed]
    page = [
        f"# SQL functions\n{FUNCTIONS}\n",
        table(["task", "functions"], zip(titles, links, strict=True)) + "\n",
        "## Arguments",
    ]
    page += [table(["argument", "type", "meaning"], ([f"`{name}`", *arguments[name]] for name in shared)) + "\n"]
    page += ["## Columns of results", table(["column", "meaning"], COLUMNS.items()) + "\n"]
    page += [f"## Data of the examples\n{SETUP}\n\n```sql\n{setup.strip()}\n```\n"]
    with connected(setup) as (con, charged):
        for title, task in zip(titles, tasks, strict=True):
            page.append(f"## {title}")
            for name, random, statement in re.findall(r"^-- (\w+)(.*)\n((?:(?!--).+\n)+)", task, re.MULTILINE):
                comment, calls, own = known.pop(name)
                lines = [f"* `{one}` `{'`: '.join(arguments[one])}" for one in arguments if one in own and one not in shared]
                page += [
                    f"### ldp.{name}",
                    f"{_sentence(comment)}.",
                    "",
                    "```sql",
                    *calls,
                    "```",
                    "",
                    *lines,
                    *[""] * bool(lines),
                ]
                page.append(example(charged if name == "budget" else con, statement, random))
        page.append("## Errors\nWhat is wrong is an error with a [code](errors.md):\n")
        page.append(table(["statement", "error"], ([f"`{one}`", refusal(con, one)] for one in wrong.splitlines())) + "\n")
    assert not known, f"no example in tests/data/functions.sql: {sorted(known)}"
    return "\n".join(page)


@contextmanager
def connected(setup: str) -> Iterator[tuple[DuckDBPyConnection, DuckDBPyConnection]]:
    """Yield a connection with the tables of the examples, and one with a ledger that was charged once."""
    perturbed = "ldp.krr(1, ['Lima', 'Oslo'])"
    with TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        con = ldpsql.connect(key=Key.create(Path(folder) / "people.key"))
        charged = ldpsql.connect(ledger=Ledger.open(Path(folder) / "budget.ledger", Policy(epsilon_budget=2)))
        con.execute(setup)
        charged.execute("CREATE TABLE people AS SELECT 'Lima' AS city FROM range(20)")
        with ldpsql.release(charged, "people", {"city": perturbed}, "reports"):
            charged.execute(f"CREATE TABLE reports AS SELECT ldp.perturb(city, {perturbed}) AS city FROM people")
        yield con, charged


def example(con: DuckDBPyConnection, statement: str, random: str) -> str:
    """Return a statement as a block of SQL, and its result as a table; columns named in ``random``, with ``~``, are hidden."""
    result = con.sql(statement)
    heads = [f"{name} {_short(str(kind))}" for name, kind in zip(result.columns, result.types, strict=True)]
    rows = [
        ["*random*" if f"~{name}" in random.split() else _cell(cell) for name, cell in zip(result.columns, row, strict=True)]
        for row in result.limit(6).fetchall()
    ]
    assert rows, statement
    return f"```sql\n{statement}```\n\n{table(heads, rows)}\n"


def _cell(cell: object) -> str:
    """Return a cell of a result with four digits."""
    if isinstance(cell, dict):
        return _short("{" + ", ".join(f"{name}: {_cell(one)}" for name, one in cell.items()) + "}")
    if isinstance(cell, list):
        return _short(f"[{', '.join(map(_cell, cell))}]")
    if isinstance(cell, bool):
        return str(cell).lower()
    return "NULL" if cell is None else f"{cell:.4g}" if isinstance(cell, float) else _short(str(cell))


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}..."


def refusal(con: DuckDBPyConnection, statement: str) -> str:
    """Return the error of a statement, with a link to its code."""
    try:
        con.execute(statement)
    except duckdb.Error as error:
        code, text = re.findall(r"\[(LDP\d+)\] (.*)", str(error))[0]
        return f"[{code}](errors.md#{code.lower()}) {text}"
    raise AssertionError(f"{statement} is not an error")


def commands(command: Any, path: str) -> Iterator[str]:
    """Yield a section for a command and for each command below it."""
    if below := getattr(command, "commands", {}):
        for name, inner in below.items():
            yield from commands(inner, f"{path} {name}")
        return
    yield f"## {path}\n{inspect.cleandoc(command.help or '')}\n"
    options = [p for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]
    rows = [
        [f"`{', '.join(p.opts) if p.param_type_name == 'option' else p.name}`", getattr(p, "help", "") or ""] for p in options
    ]
    if rows:
        yield table(["option", "meaning"], rows) + "\n"


def error_classes() -> list[type[errors.LdpError]]:
    """Return the classes of errors, ordered by their codes."""
    classes = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, errors.LdpError)]
    return sorted(classes, key=lambda cls: cls.code)


def explained(error: type[errors.LdpError]) -> tuple[str, str, str]:
    """Return the meaning of an error, its cause and its remedy: the parts of its docstring."""
    parts = re.fullmatch(r"(.+?)\n\nCause: (.+?)\nRemedy: (.+)", inspect.cleandoc(error.__doc__ or ""), re.DOTALL)
    assert parts, f"{error.__name__} needs a meaning, an empty line, 'Cause: ...' and 'Remedy: ...'"
    meaning, cause, remedy = (" ".join(part.split()).replace("``", "`") for part in parts.groups())
    return meaning, cause, remedy


def error_section(code: str, parts: tuple[str, str, str], note: str) -> str:
    """Return the section of a code, from its meaning, cause and remedy."""
    meaning, cause, remedy = parts
    return f"## {code}\n{meaning} ({note})\n\n* **Cause:** {cause}\n* **Remedy:** {remedy}\n"


def error_sections() -> Iterator[str]:
    """Yield a section for each error, and for each code that only the command line has."""
    for error in error_classes():
        name = f"`{error.__name__}`, exit code {error.exit_code}"
        yield error_section(error.code, explained(error), name)
    for code, parts in COMMAND_LINE_ERRORS.items():
        yield error_section(code, parts, "command line only, exit code 1")


def settings_sections() -> Iterator[str]:
    """Yield a section for each section of the settings file, and one for the variables of the environment."""
    more = {"ledger": Policy.model_fields}
    for name, field in sections._File.model_fields.items():
        model = sections._model(name)
        keys = getattr(model, "model_fields", {}) | more.get(name, {})
        place = f"{name}.NAME" if get_origin(field.annotation) is dict and keys else name
        yield f"## [{place}]\n{field.description}.\n"
        if keys:
            yield table(["key", "meaning"], ([f"`{key}`", of.description or ""] for key, of in keys.items())) + "\n"
    yield "## Environment variables\n" + table(
        ["variable", "meaning"], ([f"`{name}`", text] for name, text in VARIABLES.items())
    )


@cache
def pages() -> dict[str, str]:
    """Return the generated pages by file name."""
    return {
        "mechanisms.md": f"# Mechanisms\n{MECHANISMS}\n\n" + "\n".join(specs(registry().mechanisms.values())),
        "estimators.md": f"# Estimators\n{ESTIMATORS}\n\n" + "\n".join(specs(registry().estimators.values())),
        "functions.md": function_page(),
        "commands.md": "# Commands\n\n" + "\n".join(commands(typer.main.get_command(app), "ldpsql")),
        "errors.md": f"# Errors\n{ERRORS}\n\n" + "\n".join(error_sections()),
        "settings.md": f"# Settings\n{SETTINGS}\n\n```toml\n{SETTINGS_EXAMPLE}```\n\n" + "\n".join(settings_sections()) + "\n",
        "plugins.md": directory(),
        "python.md": "# Python\n\n" + "\n".join(f"::: ldpsql.{name}\n" for name in ldpsql.__all__),
    }


PLUGINS = (
    "Mechanisms by the package that offers them. Every commit checks each of them with the conformance suite and with "
    "`ldpsql-verify`, whose figure for an example is in the last column. A release comes with this page as `plugins.md`, which "
    "also says the SHA-256 of each wheel, and what both programs answered on which day. [Write a plugin](../guides/plugins.md) "
    "says how to make one. To add a package here, send its name, author, version and SHA-256, and both answers with the date."
)
PRIVACY = {PureLdp: "of a report", ApproximateLdp: "of a report, with delta", MetricLdp: "per unit of distance"}


def packages() -> dict[str, dict[str, Mechanism]]:
    """Return an example of every mechanism by name, for each package of the project with its version."""
    project = tomllib.loads((COIN / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    coins = cast("Any", imported(COIN / "ldpsql_coin.py")).ldpsql_mechanisms()
    return {
        f"ldpsql {ldpsql.__version__}": {name: registry().mechanism(SMALL[name]) for name in sorted(SMALL)},
        f"{project['name']} {project['version']}": {kind.name: kind(epsilon="1", domain=["no", "yes"]) for kind in coins},
    }


def directory(released: Mapping[str, str] | None = None) -> str:
    """Return the page of plugins, from what the packages and their mechanisms say of themselves.

    A release has a sentence for each package, and runs the conformance suite on every mechanism.
    """
    heads = ["mechanism", "authors", "epsilon", "structure of its channel, for example", "`ldpsql-verify`"]
    text = f"# Directory of plugins\n{PLUGINS}\n"
    for package, mechanisms in packages().items():
        rows = [list(descriptors(name, example)) for name, example in mechanisms.items()]
        if released is not None:
            rows = [[*row, conforms(example)] for row, example in zip(rows, mechanisms.values(), strict=True)]
        columns = heads if released is None else [*heads, "`ldpsql plugins check`"]
        sentence = "" if released is None else f"{released[package]}\n\n"
        text += f"\n## {package}\n{sentence}{table(columns, rows)}\n"
    return text


def descriptors(name: str, example: Mechanism) -> tuple[str, str, str, str, str]:
    """Return a mechanism's name, the authors of its paper, its kind of epsilon, its structure, and the verified figure."""
    about = f"{inspect.getdoc(type(example))}\n\n{sys.modules[type(example).__module__].__doc__}"
    paper = re.search(r'^(?:Source: )?([A-Z][^".]*?),\s"[^"]*"[^.]*?((?:19|20)\d\d)', about, re.MULTILINE)
    authors = f"{' '.join(paper[1].split())}, {paper[2]}" if paper else "-"
    written = document(example)
    kept = verify().verified(written).partition("; ")[2].rpartition("= ")[2]  # without the two long numbers of a ratio
    claim = certify(example).certificate.claim
    return f"`{name}`", authors, PRIVACY[type(claim)], written["channel"]["structure"], f"yes: {kept}"


@cache
def verify() -> Any:
    """Return the program that checks documents without ldpsql."""
    return imported(ROOT / "examples" / "ldpsql-verify" / "ldpsql_verify.py")


def conforms(mechanism: Mechanism) -> str:
    """Return what the conformance suite says of a mechanism."""
    try:
        check_mechanism(mechanism)
    except AssertionError as failure:
        return f"no: {failure}"
    return "conforms"


if __name__ == "__main__":
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")
