"""``ldpsql describe``: a mechanism as a document."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ldpsql.cli.options import MechanismOption, in_a_folder
from ldpsql.cli.output import write_text


def describe(
    mechanism: MechanismOption,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A .json file; by default stdout.", callback=in_a_folder),
    ] = None,
) -> None:
    """Write a mechanism as a document: JSON with its parameters, its exact weights, its reports and its fingerprint.

    Every option -m takes the path of a document, and ldpsql.toml a {document = "city.json"}. A document is refused if its
    parameters no longer make the weights that it holds.

    Example: ldpsql describe -m "krr(epsilon=1, domain=['a', 'b'])" -o city.json
    """
    from ldpsql.cli.source import mechanism_from
    from ldpsql.errors import InvalidParameter
    from ldpsql.registry.documents import document_text

    if output is not None and output.suffix != ".json":
        raise InvalidParameter("the name of a document must end in .json", "ldpsql describe -m city -o city.json")
    write_text(document_text(mechanism_from(mechanism)), output, f"Wrote {output}")
