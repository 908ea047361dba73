"""``ldpsql export-client``: a mechanism as a module for JavaScript."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ldpsql.cli.options import MechanismOption, in_a_folder
from ldpsql.cli.output import write_text


def export_client(
    mechanism: MechanismOption,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A .mjs file; by default stdout.", callback=in_a_folder)
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option(help="Refuse to write a larger module; by default any size is written.", min=1)
    ] = None,
) -> None:
    """Write an ES module that draws reports in a browser or in Node, so that values never leave the device.

    It has no dependencies, takes its random bits from the platform's cryptographic generator, and draws the same reports as
    ldpsql from the same words: see ldpsql vectors.

    Example: ldpsql export-client -m "krr(epsilon=1, domain=['a', 'b'])" -o city.mjs
    """
    from ldpsql.cli.source import mechanism_from
    from ldpsql.clients.module import module
    from ldpsql.engine.identity import Identity
    from ldpsql.errors import NotApplicable
    from ldpsql.registry.tables import check_policies

    made = mechanism_from(mechanism)
    check_policies(Identity("", ()), {"": made})
    text = module(made)
    size = len(text.encode())
    if max_bytes is not None and size > max_bytes:
        raise NotApplicable(
            f"the module has {size:,} bytes, and at most {max_bytes:,} are allowed",
            f"raise --max-bytes to {size}, or declare fewer values: their text and their table of weights take most of it",
        )
    write_text(text, output, f"Wrote {output}, {size:,} bytes")
