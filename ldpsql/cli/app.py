"""All commands, and how errors become one line on stderr and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from copy import copy
from importlib import import_module
from typing import Any

import typer

# The module of each command, in the order of --help. A module holds a function of the name of the command, or an `app` if the
# command has commands of its own. Modules import what they need inside their functions, so that --help is quick.
COMMANDS = {
    "demo": "doctor", "doctor": "doctor", "sql": "sql", "perturb": "perturb", "estimate": "estimate", "ask": "estimate",
    "rappor_shares": "estimate",
    "synthesize": "estimate", "report": "estimate", "plan": "plan", "privic": "perturb", "audit": "doctor", "lint": "sql",
    "budget": "budget", "policy": "budget", "statement": "budget", "describe": "export", "vectors": "export",
    "export_client": "export", "export_sql": "export", "export_database": "export", "plugins": "plugins",
}  # fmt: skip


def add_command(to: typer.Typer, name: str, command: Callable[..., Any]) -> None:
    """Add a function, or an app with commands of its own."""
    if isinstance(command, typer.Typer):
        to.add_typer(command, name=name)
    else:
        to.command(name=name, cls=getattr(command, "of_class", None))(command)


_INTERRUPTED = ("", "interrupted", "", 130)
app = typer.Typer(
    name="ldpsql",
    help="Local differential privacy where the data already is: perturb and estimate in SQL.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help, in half the time
    pretty_exceptions_enable=False,  # a traceback may show raw values
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Try: ldpsql demo. Plugins may add commands: ldpsql plugins list",
)
for _name, _home in COMMANDS.items():
    _module = import_module(f"ldpsql.cli.{_home}")
    add_command(app, _name.replace("_", "-"), getattr(_module, _name, None) or _module.app)


@app.callback()
def _options(
    context: typer.Context, version: bool = typer.Option(False, "--version", help="Print the version and stop.")
) -> None:
    if version:
        from ldpsql import __version__

        typer.echo(f"ldpsql {__version__}")
        raise typer.Exit
    from ldpsql import settings

    parameters = {"format": "form"}  # options whose parameter has another name
    defaults = {parameters.get(name, name): value for name, value in settings.load().defaults.items()}
    context.default_map = _for_each(context.command, defaults)


def _for_each(command: Any, defaults: dict[str, str]) -> dict[str, Any]:
    """Return the defaults of the settings for a command and all commands below it, in the form that the parser takes."""
    below = getattr(command, "commands", {})
    return defaults | {name: _for_each(subcommand, defaults) for name, subcommand in below.items()}


def run() -> None:
    """Run the command line and exit with its exit code."""
    outcome: tuple[str, str, str, int]
    try:
        _app_for(next(iter(sys.argv[1:]), ""))()
    except KeyboardInterrupt:
        outcome = _INTERRUPTED
    except SystemExit as ended:
        if not isinstance(getattr(ended.__context__, "__cause__", None), KeyboardInterrupt):
            raise SystemExit(ended.code) from None
        outcome = _INTERRUPTED  # Typer ends without a message
    except BrokenPipeError:  # the reader of our output, such as `head`, is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except Exception as error:  # noqa: BLE001  # DuckDB, files, plugins
        from ldpsql.cli.failures import failure

        outcome = failure(error, " ".join(sys.argv))
    _leave(*outcome)  # outside of the handlers, so that no exception is attached


def _app_for(word: str) -> typer.Typer:
    """Return the app for a first word: with this command only, as Typer reads the signatures of all commands of an app."""
    ours = {name.replace("_", "-") for name in COMMANDS}
    if word in ours:
        one = copy(app)
        one.registered_commands = [command for command in app.registered_commands if command.name == word]
        one.registered_groups = [group for group in app.registered_groups if group.name == word]
        return one
    if word and not word.startswith("-"):
        _add_commands_of_plugins(ours)
    return app


def _add_commands_of_plugins(ours: set[str]) -> None:
    """Add the commands of plugins; only if the first word is not a command of ours are plugins loaded."""
    from ldpsql.registry.registry import registry

    for name, command in registry().commands.items():
        if name not in ours:
            add_command(app, name, command)


def _leave(code: str, message: str, hint: str, exit_code: int) -> None:
    sys.stderr.write(f"error{f'[{code}]' if code else ''}: {message}\n")
    if hint:
        sys.stderr.write(f"hint: {hint}\n")
    raise SystemExit(exit_code)
