"""What one settings file may contain, as models of pydantic.

This module is imported only when there is a file to read: pydantic takes longer to import than ``ldpsql --help`` takes to run.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo

from ldpsql.errors import BadSettings

# JSON text that every reader reads alike: no name of an object occurs twice.


def read_json(text: str) -> Any:
    """Return what JSON text holds.

    Of a name that occurs twice, Python takes the last value, and other programs and people may take the first one.

    Raises:
        ValueError, RecursionError: if it cannot be read, or a name occurs twice in an object.

    """
    return json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name occurs twice")
    return members


def _beside_the_file(path: str, info: ValidationInfo) -> str:
    return path if "://" in path else str(Path(info.context or "", path))


def _files_beside_the_file(mechanism: str | dict[str, Any], info: ValidationInfo) -> str | dict[str, Any]:
    """Return a mechanism with the content of its document, or with the paths of files that hold its domains.

    These are ``{document = "city.json"}`` and ``domain = {file = "items.parquet", ...}``.
    """
    if isinstance(mechanism, str):
        return mechanism
    if mechanism.keys() == {"document"}:
        return _document(Path(_beside_the_file(str(mechanism["document"]), info)))
    for value in mechanism.values():
        if isinstance(value, dict) and isinstance(value.get("file"), str):
            value["file"] = _beside_the_file(value["file"], info)
    return mechanism


def _document(path: Path) -> dict[str, Any]:
    """Return the document of a mechanism; the registry reads it."""
    try:
        document = read_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or "format" not in document:
        raise BadSettings(f"{path} is not a document of a mechanism", "write one with: ldpsql describe -m city -o city.json")
    return document


_Mechanism = Annotated[str | dict[str, Any], AfterValidator(_files_beside_the_file)]
_FilePath = Annotated[str, AfterValidator(_beside_the_file)]  # relative to the folder of the settings file


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Plugins(_Section):
    allow: list[str] | None = Field(
        None,
        description="the packages whose plugins are loaded if the user's own file allows them; `*` stands for all",
    )


class _Defaults(_Section):
    format: str | None = Field(None, description="how commands write results: `table`, `json`, `jsonl` or `csv`")
    estimator: str | None = Field(None, description="the estimator of commands")


class _Ledger(_Section, extra="allow"):  # the policy checks its own keys
    path: _FilePath | None = Field(None, description="the ledger that releases are charged to")
    key: _FilePath | None = Field(None, description="the file with the secret key of permanent reports")


class _Lineage(_Section):
    url: str | None = Field(None, pattern="^https?://[^/]", description="the address that gets an event for each release")
    file: _FilePath | None = Field(None, description="a file that gets a line for each release")
    namespace: str = Field("ldpsql", description="the namespace of tables in events")


class _Table(_Section):
    epsilon: str | int | float = Field(description="the total of a row")  # a float stands for its shortest decimal text
    columns: dict[str, _Mechanism] = Field(description="the mechanism of each column that is perturbed")
    keep: list[str] = Field([], description="columns that are published as they are")
    unit: str = Field("row", description="`row`: each row is one person; else the column of user ids")
    reports: str = Field("", description="the table or the file of the reports, so that `ldpsql lint` knows it")
    permanent: bool = Field(False, description="whether a person gives the same report for the same value, in every collection")
    delta: str | int | float = Field(0, description="the total delta of a row")
    epsilon_per_distance: str | int | float = Field(0, description="the total per unit of distance of a row")
    collector: str = Field("", description="who collects the reports, for those who review a policy")
    purpose: str = Field("", description="what the reports are for")
    people: str = Field("", description="whose values they are")
    recipient: str = Field("", description="who receives them")
    retention: str = Field("", description="how long they are kept")
    frequency: str | None = Field(
        None, description="how often a person is asked: `once`, or the time between, such as `30 days`"
    )  # `frequency_of` checks it


class _File(_Section):
    plugins: _Plugins = Field(
        _Plugins(), description="Which plugins are loaded", examples=['[plugins] and below it allow = ["name"]']
    )
    mechanisms: dict[str, _Mechanism] = Field(
        {},
        description="A name for each mechanism: `ldp.m.NAME()` in SQL, the name itself in Python and on the command line",
        examples=["city = \"krr(epsilon=1, domain=['a', 'b'])\""],
    )
    defaults: _Defaults = Field(_Defaults(), description="What commands do by default", examples=['format = "json"'])
    tables: dict[str, _Table] = Field(
        {},
        description="The policy of a table",
        examples=['[tables.people] and below it epsilon = 2 and columns = {city = "city"}'],
    )
    ledger: _Ledger = Field(
        _Ledger(), description="The ledger of releases, and its policy", examples=['path = "budget.ledger"']
    )
    lineage: _Lineage = Field(
        _Lineage(), description="Events of OpenLineage", examples=['url = "http://localhost:5000/api/v1/lineage"']
    )


_KINDS = {  # of errors of pydantic: the first that occurs says what an entry must be
    "float_type": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list of names",
    "string_type": "a string",
    "model_type": "a section",
    "dict_type": "a section",
}


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the sections of a settings file, each with the keys that the file sets.

    Raises:
        BadSettings: if the file cannot be read, or contains an unknown section or key, or a value of another type.

    """
    try:
        return _File.model_validate(_parsed(path), context=path.parent).model_dump(exclude_unset=True)
    except ValidationError as error:
        refusal = _reworded(error, path)
    raise refusal  # outside of the handler: pydantic's error holds the content of the file


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or type(error).__name__
    except tomllib.TOMLDecodeError as error:
        reason = str(error)  # names a place and perhaps a key
    except (ValueError, RecursionError):
        reason = "it is not TOML in UTF-8"
    raise BadSettings(f"{path} cannot be read: {reason}", f"for example {_example('plugins')}")


def _reworded(error: ValidationError, path: Path) -> BadSettings:
    """Return one error of pydantic with the key and the file, but without any value, that of an unknown key first."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    section, *keys = map(str, first["loc"])
    if first["type"] == "extra_forbidden":
        return _unknown(section, keys, path)
    alike = [one for one in errors if one["loc"][:3] == first["loc"][:3]]
    kinds = {"list_type" if isinstance(one["loc"][-1], int) else one["type"] for one in alike}
    kind = next((text for name, text in _KINDS.items() if name in kinds), "written as the hint shows")
    problem = "is missing" if "missing" in kinds else f"must be {kind}"
    return BadSettings(f"{_place(section, keys)} of {path} {problem}", f"for example {_example(section)}")


def _place(section: str, keys: list[str]) -> str:
    """Return the place of a wrong entry: a section, a key of it, or a part of a key, such as columns.city."""
    if not keys:
        return f"[{section}]"
    if len(keys) == 1 or _File.model_fields[section].annotation != dict[str, _Table]:
        return f"{keys[0]} in the section [{section}]"
    name, key, *parts = keys
    named = f"{key}.{parts[0]}" if key == "columns" and parts else key
    return f"{named} in the section [{section}.{name}]"


def _unknown(section: str, keys: list[str], path: Path) -> BadSettings:
    *sections, name = [section, *keys]
    names = list(_model(section).model_fields if keys else _File.model_fields)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(names)}"
    place = f"key '{name}' in the section [{'.'.join(sections)}]" if keys else f"section [{section}]"
    return BadSettings(f"{path} contains the unknown {place}", hint)


def _model(section: str) -> type[BaseModel]:
    """Return the model of a section that forbids unknown keys: of each one below it if it is a section of sections."""
    annotation: Any = _File.model_fields[section].annotation
    return get_args(annotation)[-1] if get_origin(annotation) is dict else annotation


def _example(section: str) -> str:
    return str((_File.model_fields[section].examples or [""])[0])
