"""``ldpsql plugins``: list, show, check, allow, make and install plugins."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ldpsql.cli.options import Format, FormatOption, working, write_rows

if TYPE_CHECKING:
    from ldpsql.mechanisms.spec import Spec

app = typer.Typer(help="List, show, check, make and install plugins.", no_args_is_help=True)


@app.command(name="list", epilog="Example: ldpsql plugins list --format json")
def list_plugins(form: FormatOption = Format.TABLE) -> None:
    """List every plugin, with the reason if it is not used."""
    from ldpsql.registry.registry import registry

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
    """Show a mechanism or an estimator in full."""
    from ldpsql.mechanisms.spec import sql_literal
    from ldpsql.registry.registry import registry

    spec = _registered(name)
    arguments = "report, m, " if spec.kind == "estimator" else ""
    typer.echo(f"{spec.kind}  {name}\nplugin     {registry().owner(name)}")
    typer.echo(f"file       {inspect.getsourcefile(spec)}")
    typer.echo(f"sql        ldp.{spec.signature().replace('(', '(' + arguments, 1)}")
    if spec.kind == "mechanism":
        typer.echo(f"claim      {_claim(name)}")
    rows = [
        {
            "parameter": p.name,
            "type": p.type,
            "default": "(required)" if p.required else sql_literal(p.default),
            "meaning": p.description,
        }
        for p in spec.parameters()
    ]
    typer.echo()
    write_rows(rows, Format.TABLE)
    typer.echo(f"\n{inspect.cleandoc(spec.__doc__ or '')}")
    source = inspect.getdoc(sys.modules[spec.__module__])
    typer.echo(f"\n{source or ''}".rstrip())


def _registered(name: str) -> type[Spec]:
    """Return the mechanism or the estimator of this name."""
    from ldpsql.errors import PluginError, UnknownName
    from ldpsql.registry.registry import registry

    registered: dict[str, type[Spec]] = {**registry().mechanisms, **registry().estimators}
    if name in registered:
        return registered[name]
    unused = next((p for p in registry().plugins if p.name == name and p.status != "ok"), None)
    if unused:
        raise PluginError(f"the plugin '{name}' is {unused.status}", unused.reason)
    raise UnknownName("mechanism or estimator", name, registered)


def _claim(name: str) -> str:
    """Return what a mechanism claims with the parameters of an example."""
    from ldpsql.registry.registry import registry
    from ldpsql.testing import examples

    tried = examples(registry().mechanisms[name])
    return f"{tried[0].claim()}, for {tried[0]}" if tried else "depends on the parameters: see ldp.describe"


@app.command(epilog="Example: ldpsql plugins check coin --mechanism \"coin(epsilon=1, domain=['no', 'yes'])\"")
def check(
    plugin: Annotated[str, typer.Argument(help="An installed plugin, a mechanism, an estimator, a .py file or a folder.")],
    mechanism: Annotated[
        list[str] | None, typer.Option("--mechanism", "-m", help="Check it with these parameters; repeat it.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Run the conformance suite; exit with 4 if a claim fails."""
    from ldpsql.cli import managing
    from ldpsql.errors import PluginError

    with working():
        rows = managing.verdicts(plugin, mechanism or [])
    write_rows(rows, form)
    failed = sum(row["verdict"] == "fails" for row in rows)
    if failed:
        raise PluginError(f"{failed} of {len(rows)} checks failed", "the reasons are in the rows")
    typer.echo(f"{plugin} conforms: {len(rows)} checked, none failed", err=True)


@app.command(epilog="Example: ldpsql plugins enable coin")
def enable(name: Annotated[str, typer.Argument(help="An installed plugin.")]) -> None:
    """Allow an installed plugin to be loaded, in your own settings; a project's settings can only leave out plugins."""
    from ldpsql.cli import managing

    typer.echo(f"'{name}' is allowed in {managing.allow(name)}", err=True)
    managing.warn_of_others(name)


@app.command(epilog="Example: ldpsql plugins disable coin")
def disable(name: Annotated[str, typer.Argument(help="A plugin that is allowed.")]) -> None:
    """Remove a plugin from those that are allowed, in every folder."""
    from ldpsql.cli import managing

    typer.echo(f"'{name}' is no longer allowed in {managing.disallow(name)}", err=True)
    managing.warn_of_others()


@app.command(epilog="Example: ldpsql plugins new spinner")
def new(
    name: Annotated[str, typer.Argument(help="The name of the mechanism, as SQL will call it.")],
    directory: Annotated[Path, typer.Option("--directory", help="Where to put the folder ldpsql-NAME.")] = Path(),
) -> None:
    """Write a complete plugin: a mechanism, its test, its package."""
    from ldpsql.cli import managing

    folder = managing.write(name, directory)
    typer.echo(folder)
    typer.echo(
        f"Next: put your channel into {folder / f'ldpsql_{name}.py'}, then\n"
        f"  ldpsql plugins check {folder}\n  ldpsql plugins install {folder}\n  ldpsql plugins enable {name}",
        err=True,
    )


@app.command(epilog="Example: ldpsql plugins install ./ldpsql-spinner")
def install(package: Annotated[str, typer.Argument(help="A package, or the folder of a project.")]) -> None:
    """Install a plugin, then check it; `enable` allows it."""
    from ldpsql.cli import managing

    for name in managing.install(package):
        managing.check_in_a_new_process(name)
        typer.echo(f"'{name}' is installed; allow it: ldpsql plugins enable {name}", err=True)


@app.command(epilog="Example: ldpsql plugins uninstall spinner")
def uninstall(name: Annotated[str, typer.Argument(help="An installed plugin.")]) -> None:
    """Remove the package of a plugin, and remove the plugin from those that are allowed."""
    from ldpsql.cli import managing

    package = managing.uninstall(name)
    typer.echo(f"'{name}' is removed", err=True)
    if managing.is_allowed(package):
        managing.disallow(package)
