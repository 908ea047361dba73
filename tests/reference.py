"""The generated parts of the documentation: ``python -m tests.reference`` writes them from the registry."""

from __future__ import annotations

import inspect
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, cast, get_origin

os.environ["LDPSQL_PLUGINS"] = "0"

import typer.main

import ldpsql
from ldpsql import Mechanism, Policy, certify, document, errors
from ldpsql.functions import Spec, registry
from ldpsql.mechanisms import ApproximateLdp, MetricLdp, PureLdp
from ldpsql.registry.discovery import imported
from ldpsql.settings import sections
from tests.commands import app
from tests.laws.subjects import SMALL

MECHANISMS = "`ldp.NAME(...)` makes a mechanism; in Python and on the command line it is the text `NAME(...)`."
ESTIMATORS = (
    "`ldp.NAME(report, m, ...)` estimates from a column of reports or of their counts, and "
    "`FROM ldp.estimate(reports, report, m, estimator := 'NAME')` from a column of a table, a view, a file or a frame."
)
FUNCTIONS = (
    "[Mechanisms](mechanisms.md) and [estimators](estimators.md) have pages of their own. Many functions share arguments:"
)
ARGUMENTS = {
    "`report`, `reports`": (
        "the column of reports, of counts of them, of lists of several reports of a person, or of levels and reports, "
        "`{level: level, report: report}`; after `FROM`, the table, file or frame with the column of reports comes first"
    ),
    "`m`": (
        "the mechanism that drew the reports, or a MAP or a STRUCT with the mechanism of each level; if it is `false`, or the "
        "only argument that is left out, the one that the type of the reports records"
    ),
    "`counts`": "counts of reports, as `ldp.counts` returns them",
    "`keep`": "a condition: only rows of reports or counts in which it holds are counted; for `ldp.perturb_rows`, columns that "
    "pass through",
    "`estimator`": "the estimator of the shares, with its options: `'ibu'` or `'ibu(stop := 100)'`",
    "`confidence`": "the probability of the interval, 0.95 by default",
    "`of`": "the values of a share, or the name of the column of a mean, of reports of several columns",
    "`given`, `versus`": "a condition on columns of the mechanism, such as `{city: 'Lima', age: {low: 18, high: 65}}`; "
    "`ldp.margin` takes names of columns",
    "`p`, `q`": "two estimates, or two lists of shares",
    "`prior`": "a distribution over the values, as a list of shares",
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
REFERENCE = Path(__file__).parents[1] / "docs" / "reference"


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


def functions() -> list[tuple[str, str]]:
    """Return the public SQL functions that are neither a mechanism nor an estimator, and what each does."""
    generated = {*registry().mechanisms, *registry().estimators}
    with ldpsql.connect() as con:
        rows = con.execute(
            """SELECT function_name, parameters, comment FROM duckdb_functions()
               WHERE database_name = 'ldp' AND NOT starts_with(function_name, '_') ORDER BY function_name, len(parameters)"""
        ).fetchall()
    return [(f"ldp.{name}({', '.join(names)})", comment or "") for name, names, comment in rows if name not in generated]


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
    letters = groupby(functions(), key=lambda one: one[0].removeprefix("ldp.")[0].upper())
    listed = {
        letter: table(["function", "what it does"], [[f"`{call}`", comment] for call, comment in own])
        for letter, own in letters
    }
    arguments = table(["argument", "meaning"], ARGUMENTS.items())
    return {
        "mechanisms.md": f"# Mechanisms\n{MECHANISMS}\n\n" + "\n".join(specs(registry().mechanisms.values())),
        "estimators.md": f"# Estimators\n{ESTIMATORS}\n\n" + "\n".join(specs(registry().estimators.values())),
        "functions.md": f"# SQL functions\n{FUNCTIONS}\n\n{arguments}\n\n"
        + "\n\n".join(f"## {letter}\n{own}" for letter, own in listed.items())
        + "\n",
        "commands.md": "# Commands\n\n" + "\n".join(commands(typer.main.get_command(app), "ldpsql")),
        "errors.md": f"# Errors\n{ERRORS}\n\n" + "\n".join(error_sections()),
        "settings.md": f"# Settings\n{SETTINGS}\n\n```toml\n{SETTINGS_EXAMPLE}```\n\n" + "\n".join(settings_sections()) + "\n",
        "plugins.md": directory(),
        "python.md": "# Python\n\n" + "\n".join(f"::: ldpsql.{name}\n" for name in ldpsql.__all__),
    }


PLUGINS = (
    "Mechanisms by the package that offers them. Every commit checks each of them with the conformance suite and with "
    "`ldpsql-verify`; `SHA256SUMS` of a release names its files. [Write a plugin](../guides/plugins.md) says how to make one. "
    "To add a package here, send its name, author, version and SHA-256, and what both programs answered, with the date."
)
PRIVACY = {PureLdp: "of a report", ApproximateLdp: "of a report, with delta", MetricLdp: "per unit of distance"}


def directory() -> str:
    """Return the page of plugins, from what the packages and their mechanisms say of themselves."""
    coin = Path(__file__).parents[1] / "examples" / "ldpsql-coin"
    project = tomllib.loads((coin / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    offered = cast("Any", imported(coin / "ldpsql_coin.py")).ldpsql_mechanisms()
    packages = {
        f"ldpsql {ldpsql.__version__}": [(name, kind, SMALL[name]) for name, kind in sorted(registry().mechanisms.items())],
        f"{project['name']} {project['version']}": [
            (kind.name, kind, kind(epsilon="1", domain=["no", "yes"])) for kind in offered
        ],
    }
    heads = ("mechanism", "authors", "epsilon", "structure of its channel, for example")
    return f"# Directory of plugins\n{PLUGINS}\n" + "".join(
        f"\n## {package}\n" + table(heads, [descriptors(*one) for one in mechanisms]) + "\n"
        for package, mechanisms in packages.items()
    )


def descriptors(name: str, kind: type[Mechanism], example: Mechanism | str) -> tuple[str, str, str, str]:
    """Return a mechanism's name, the authors of its paper, its kind of epsilon, and the structure of its channel."""
    about = f"{sys.modules[kind.__module__].__doc__}\n\n{kind.__doc__}"
    paper = re.search(r'^(?:Source: )?([A-Z][^".]*?),\s"[^"]*"[^.]*?((?:19|20)\d\d)', about, re.MULTILINE)
    certified = certify(example)
    authors = f"{' '.join(paper[1].split())}, {paper[2]}" if paper else "-"
    return f"`{name}`", authors, PRIVACY[type(certified.certificate.claim)], document(example)["channel"]["structure"]


if __name__ == "__main__":
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")
