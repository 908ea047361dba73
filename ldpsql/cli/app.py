"""All commands, and how errors become one line on stderr and an exit code."""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from typing import Any

import typer

from ldpsql.errors import LdpError

# One module of this package each, in the order in which --help shows them: it holds a function of its own name, or, where a
# command has commands of its own, an `app`. Modules import what they need inside their functions, so that --help is quick.
COMMANDS = ("demo", "doctor", "sql", "estimate", "report", "plan", "privic", "audit", "export_sql", "plugins")

app = typer.Typer(
    name="ldpsql",
    help="Local differential privacy where the data already is: perturb and estimate in SQL.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help, in half the time
    pretty_exceptions_enable=False,  # a traceback may show raw values
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Try: ldpsql demo",
)
for _name in COMMANDS:
    _module = import_module(f"ldpsql.cli.{_name}")
    if hasattr(_module, "app"):
        app.add_typer(_module.app, name=_name)
    else:
        app.command(name=_name.replace("_", "-"))(getattr(_module, _name))


@app.callback()
def _options(
    context: typer.Context, version: bool = typer.Option(False, "--version", help="Print the version and stop.")
) -> None:
    if version:
        from ldpsql import __version__

        typer.echo(f"ldpsql {__version__}")
        raise typer.Exit
    from ldpsql import settings

    context.default_map = _for_each(context.command, dict(settings.load().defaults))


def _for_each(command: Any, defaults: dict[str, str]) -> dict[str, Any]:
    """Return the defaults of the settings for a command and all commands below it, as the parser wants them."""
    below = getattr(command, "commands", {})
    return defaults | {name: _for_each(subcommand, defaults) for name, subcommand in below.items()}


def run() -> None:
    """Run the command line and leave with its exit code."""
    try:
        app()
    except LdpError as error:
        _leave(error.code, error.message, error.hint, error.exit_code)
    except KeyboardInterrupt:
        _leave("", "interrupted", "", 130)
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except Exception as error:  # noqa: BLE001  # DuckDB, files, plugins
        _leave(*_quoted(str(error).strip()))


def _quoted(message: str) -> tuple[str, str, str, int]:
    """Take an error of ldpsql out of the message in which DuckDB quotes it; anything else is passed on as it is."""
    found = re.search(r"\[(LDP\d{3})\] (.*?)\.(?: Hint: (.*?)\.?)?$", message, re.DOTALL)
    if not found:
        return "", message, "", 1
    exit_codes = {cls.code: cls.exit_code for cls in _tree(LdpError)}
    return found[1], found[2], found[3] or "", exit_codes.get(found[1], 1)


def _tree(cls: type[LdpError]) -> list[type[LdpError]]:
    return [cls, *(leaf for child in cls.__subclasses__() for leaf in _tree(child))]


def _leave(code: str, message: str, hint: str, exit_code: int) -> None:
    sys.stderr.write(f"error{f'[{code}]' if code else ''}: {message}\n")
    if hint:
        sys.stderr.write(f"hint: {hint}\n")
    raise SystemExit(exit_code)
