"""``ldpsql rappor-shares``: shares of candidate strings from a collection of google/rappor."""

from __future__ import annotations

from typing import Annotated

import typer

from ldpsql.cli.output import Format, FormatOption, write_rows


def rappor_shares(
    params: Annotated[str, typer.Argument(metavar="PARAMS", help="A file with one row: k, h, m, p, q and f.")],
    counts: Annotated[
        str,
        typer.Argument(metavar="COUNTS", help="A file with a row for each cohort: its reports, then a count for each bit."),
    ],
    candidates: Annotated[
        str,
        typer.Argument(metavar="MAP", help="A file with a row for each candidate: its name, then its bits."),
    ],
    rate: Annotated[
        float, typer.Option(help="The expected share of the detected candidates that nobody has, between 0 and 1.")
    ] = 0.05,
    form: FormatOption = Format.TABLE,
) -> None:
    """Estimate the shares of candidate strings from a collection of google/rappor, and detect those that people have.

    The last row is the share of all other strings. The three files are CSV, Parquet or JSON.

    Example: ldpsql rappor-shares params.csv counts.csv map.csv --rate 0.05
    """
    from ldpsql.bulk.frames import rappor_shares as shares

    write_rows(shares(params, counts, candidates, rate).iter_rows(named=True), form)
