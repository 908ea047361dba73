"""``ldpsql demo``, ``doctor`` and ``audit``: real data from end to end, this machine, and the privacy of a mechanism."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from typing import Annotated

import typer
from packaging.requirements import Requirement
from packaging.version import Version

from ldpsql.cli.options import Format, FormatOption, MechanismOption, existing, in_a_folder, mechanism_from, working, write_rows


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

    with working():
        result = flights.run(epsilon)
    typer.echo(flights.console_text(result))
    flights.write_page(result, page)
    typer.echo(f"\nWrote {page}: open it in a browser.")


_PACKAGES = ("duckdb", "polars", "pyarrow", "numpy", "scipy", "pluggy", "pydantic", "sqlglot", "typer")
_FOR_DEVELOPERS = ("dev", "peers")


def doctor(
    database: Annotated[
        str, typer.Argument(help="A DuckDB file: which of its views and macros need ldpsql.", show_default=False)
    ] = "",
    form: FormatOption = Format.TABLE,
) -> None:
    """Check that everything works on this machine.

    Packages, settings, ledger, random source, kernels in C, plugins, and one round through SQL; exits with 1 if one of them
    fails. For a database, it also says which views and macros other clients of DuckDB can neither use nor import.

    Example: ldpsql doctor --format json
    """
    checks: dict[str, Callable[[], str]] = {
        "packages": _packages,
        "settings": _settings,
        "ledger": check_ledger,
        "random source": _random,
        "kernels": _kernels,
        "plugins": _plugins,
        "SQL": _round,
        **({"database": partial(_database, database)} if database else {}),
        **{f"extra {name}": _extra(packages) for name, packages in _extras().items()},
    }
    rows = [{"check": name, **_outcome(check)} for name, check in checks.items()]
    write_rows(rows, form)
    if any(row["status"] == "failed" for row in rows):
        raise typer.Exit(1)


def _outcome(check: Callable[[], str]) -> dict[str, str]:
    """Run a check and return its status and finding; a failure does not stop the other checks."""
    try:
        return {"status": "ok", "finding": check()}
    except _NotInstalled as missing:
        return {"status": "absent", "finding": str(missing)}
    except Exception as error:  # noqa: BLE001  # any error is a finding
        return {"status": "failed", "finding": str(error).strip().replace("\n", " ")}


class _NotInstalled(Exception):
    pass


def _packages() -> str:
    """Return the versions of the packages."""
    least = {r.name: s.version for r in _requirements() if not r.marker for s in r.specifier if s.operator == ">="}
    old = [
        f"{name} {version(name)} is older than {least[name]}"
        for name in _PACKAGES
        if name in least and Version(version(name)) < Version(least[name])
    ]
    if old:
        raise RuntimeError(f"{', '.join(old)}: pip install --upgrade ldpsql")
    return ", ".join(f"{name} {version(name)}" for name in ("ldpsql", *_PACKAGES))


def _requirements() -> list[Requirement]:
    """Return the requirements of ldpsql in its installed metadata."""
    return [Requirement(text) for text in requires("ldpsql") or []]


def _extras() -> dict[str, list[str]]:
    """Return the packages of each extra in the installed metadata."""
    extras = [name for name in metadata("ldpsql").get_all("Provides-Extra", []) if name not in _FOR_DEVELOPERS]
    optional = [requirement for requirement in _requirements() if requirement.marker]
    return {name: [r.name for r in optional if r.marker and r.marker.evaluate({"extra": name})] for name in extras}


def _extra(packages: list[str]) -> Callable[[], str]:
    def check() -> str:
        try:
            return ", ".join(f"{name} {version(name)}" for name in packages)
        except PackageNotFoundError as error:
            raise _NotInstalled(f"{error.name} is not installed") from None

    return check


def _settings() -> str:
    from ldpsql import settings

    loaded = settings.load()
    files = [str(path) for path in (loaded.project, loaded.user) if path is not None and path.is_file()]
    return ", ".join(files) or "no settings file: every setting has its default"


def check_ledger() -> str:
    """Return the state of the ledger and the key that the settings name, without beginning a ledger.

    Raises:
        LedgerError: if one of them cannot be used.

    """
    from ldpsql.errors import LedgerUnwritable
    from ldpsql.ledger import Ledger
    from ldpsql.ledger.guard import configured_key, path_and_policy

    key = configured_key()
    findings = [f"key {key.fingerprint}"] if key else []
    path, policy = path_and_policy()
    if path is None:
        return ", ".join(findings) or "none is named"
    if path.exists() or policy is None:
        Ledger.open(path, policy).check()
        return ", ".join([f"{path} is whole", *findings])
    if not os.access(path.parent, os.W_OK):
        raise LedgerUnwritable("the ledger cannot be begun", "its folder must exist and be writable")
    return ", ".join([f"the first release begins {path}", *findings])


def _database(database: str) -> str:
    """Return which objects of a database need ldpsql."""
    from ldpsql.sql.portable import portability

    needing = portability(existing(database)).needing
    if not needing:
        return "other clients of DuckDB can use all its views and macros"
    names = ", ".join(f"{one.kind} {one.name}" for one in needing)
    return f"other clients of DuckDB cannot use or import {names}: ldpsql export-database leaves them out"


def _random() -> str:
    from ldpsql.channels.native import cipher
    from ldpsql.channels.randomness import random_words

    if len(set(random_words(4096).tolist())) != 4096:  # by chance less than once in 10^12 runs
        raise RuntimeError("the random source repeats itself: nothing may be perturbed here")
    return f"{cipher() or 'OpenSSL'} gives 64-bit words, none repeated"


def _kernels() -> str:
    import duckdb  # noqa: F401  # the door is to be one of DuckDB

    from ldpsql.channels.native import description
    from ldpsql.engine.door import open_door

    door = open_door()
    return f"{description()}; SQL calls {f'Python: {door}' if isinstance(door, str) else 'them without Python'}"


def _plugins() -> str:
    from ldpsql.registry.registry import registry

    registry().functions()
    broken = [
        f"{plugin.name} ({plugin.reason})" for plugin in registry().plugins if plugin.status in ("broken", "not installed")
    ]
    if broken:
        raise RuntimeError(", ".join(broken))
    return f"{len(registry().mechanisms)} mechanisms and {len(registry().estimators)} estimators"


def _round() -> str:
    import ldpsql
    from ldpsql.errors import InternalError, UnchargedReports

    query = """WITH reports AS MATERIALIZED (SELECT ldp.perturb('a', ldp.krr(8, ['a', 'b'])) AS r FROM range(2000))
               SELECT ldp.ibu(r, ldp.krr(8, ['a', 'b']))[1].estimate FROM reports"""
    with ldpsql.connect() as con, warnings.catch_warnings():
        warnings.simplefilter("ignore", UnchargedReports)  # the value is made up
        (share,) = con.execute(query).fetchone() or (0.0,)
        engine = con.execute("SELECT version()").fetchone()
    if not share > 0.9:
        raise InternalError("2,000 reports of one value did not give it back", "reinstall ldpsql")
    return f"DuckDB {engine[0] if engine else ''}: perturbed and estimated"


def audit(
    mechanism: MechanismOption,
    draws: Annotated[
        int, typer.Option(min=0, max=1_000_000_000, help="Also draw this many reports, and bound epsilon from below.")
    ] = 0,
    reports: Annotated[
        int | None, typer.Option(help="Also state the privacy of this many shuffled reports without ids.")
    ] = None,
    delta: Annotated[float, typer.Option(help="The delta of the shuffled reports.")] = 1e-9,
    form: FormatOption = Format.TABLE,
) -> None:
    """Compute the privacy of a mechanism exactly.

    With --draws also measure it, and fail if it exceeds the claim. With --reports also bound the central epsilon of that many
    reports without ids and in random order.

    Example: ldpsql audit --mechanism "krr(epsilon=1, domain=['a', 'b', 'c'])" --draws 1000000
    """
    from ldpsql.errors import NotPrivate
    from ldpsql.mechanisms import audit as audits
    from ldpsql.mechanisms.audit import shuffled

    audited = mechanism_from(mechanism)
    with working():
        facts = [asdict(audits.analytic(audited))]
        if draws:
            facts.append(asdict(audits.empirical(audited, draws)))
        if reports is not None:
            central = shuffled(audited, reports=reports, delta=delta)
            names = ("reports", "delta", "epsilon", "epsilon_at_least")
            facts.append({f"shuffled_{name}": getattr(central, name) for name in names})
    write_rows([{"fact": name, "value": value} for part in facts for name, value in part.items()], form)
    if draws and not facts[1]["passed"]:
        raise NotPrivate(
            "the draws show more than the claimed epsilon, or do not follow the channel", "do not use this mechanism"
        )
