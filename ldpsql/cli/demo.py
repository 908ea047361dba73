"""``ldpsql demo``: real data, end to end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ldpsql.cli.options import in_a_folder


def demo(
    epsilon: Annotated[str, typer.Option(help="Privacy parameter of every flight's report.")] = "1",
    page: Annotated[Path, typer.Option(help="Where to write the page.", callback=in_a_folder)] = Path("ldpsql-demo.html"),
) -> None:
    """Perturb and estimate real data, end to end.

    It perturbs the carrier of every flight that left New York in 2013, estimates the shares per airport and compares them
    with the true ones.

    Example: ldpsql demo --epsilon 0.5
    """
    from ldpsql.pages import demo as flights

    result = flights.run(epsilon)
    typer.echo(flights.console_text(result))
    flights.write_page(result, page)
    typer.echo(f"\nWrote {page}: open it in a browser.")
