"""``ldpsql plugins``: what is installed, what works, and what it offers."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated

import typer

from ldpsql.cli.output import Format, FormatOption, write_rows

if TYPE_CHECKING:
    from ldpsql.spec import Spec

app = typer.Typer(help="List and show mechanisms, estimators and the plugins they come from.", no_args_is_help=True)


@app.command(name="list", epilog="Example: ldpsql plugins list --format json")
def list_plugins(form: FormatOption = Format.TABLE) -> None:
    """List every plugin with its package, version and status, and why it is not used where it is not."""
    from ldpsql.registry import registry

    registry().functions()  # SQL families are checked when they are asked for their functions
    rows = [
        {
            "plugin": plugin.name.removeprefix("ldpsql."),
            "package": plugin.package,
            "version": plugin.version,
            "status": plugin.status,
            "offers": ", ".join(plugin.offers) or "-",
            "reason": plugin.reason or "-",
        }
        for plugin in registry().plugins
    ]
    write_rows(rows, form)


@app.command(epilog="Example: ldpsql plugins show krr")
def show(name: Annotated[str, typer.Argument(help="A mechanism or an estimator.")]) -> None:
    """Show a mechanism or an estimator: SQL signature, parameters, plugin and documentation."""
    from ldpsql.errors import PluginError, UnknownName
    from ldpsql.registry import registry
    from ldpsql.spec import sql_literal

    known: dict[str, type[Spec]] = {**registry().mechanisms, **registry().estimators}
    waiting = next((p for p in registry().plugins if p.name == name and p.status != "ok"), None)
    if name not in known and waiting:
        raise PluginError(f"the plugin '{name}' is {waiting.status}", waiting.reason)
    if name not in known:
        raise UnknownName("mechanism or estimator", name, known)
    spec = known[name]
    arguments = "report, m, " if spec.kind == "estimator" else ""
    typer.echo(f"{spec.kind}  {name}\nplugin     {registry().owner(name)}")
    typer.echo(f"sql        ldp.{spec.signature().replace('(', '(' + arguments, 1)}\n")
    rows = [
        {
            "parameter": p.name,
            "type": p.type,
            "default": "(required)" if p.required else sql_literal(p.default),
            "meaning": p.description,
        }
        for p in spec.parameters()
    ]
    write_rows(rows, Format.TABLE)
    typer.echo(f"\n{inspect.cleandoc(spec.__doc__ or '')}")
