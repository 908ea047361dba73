"""Fingerprints next to reports: how columns record them, which mechanism they stand for, and whether another one agrees.

Arrow and Parquet keep the fingerprint of a column in the metadata of the schema, under ``ldpsql.mechanism.COLUMN``, and DuckDB
in the comment of the column. What ``ldp.perturb_rows`` draws is a STRUCT whose only field has the fingerprint as its name, so
that the type of the reports is their record. A record without the digits of the channel fits any channel.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain, product
from typing import Any, Literal, NoReturn, TypeAlias

import pyarrow as pa

from ldpsql.domains.columns import RECORD, is_record
from ldpsql.engine.sql_struct import columns_of, domain_type, of_columns_named, type_of_values
from ldpsql.errors import InvalidParameter, LdpError, MechanismUnrecorded, OtherMechanism, UnmarkedReports
from ldpsql.inference.mixed import Mixed
from ldpsql.mechanisms.base import Mechanism, certify
from ldpsql.names import ROW
from ldpsql.registry.documents import digits_of, fingerprint, short_text
from ldpsql.registry.handles import DECLARATIONS, MECHANISMS, mechanism_number, read_levels
from ldpsql.registry.registry import registry

KEY = "ldpsql.mechanism."
_LINE = re.compile(r"\bldpsql:([0-9a-f]{32})(?:\.([0-9a-f]{16}))?(?: (.*))?")
_RECORDED = re.compile(rf'"({RECORD}(?:[^"]|"")*)"')
_FURTHER = re.compile(rf', ?"{RECORD}')  # a record that is not the first field of its STRUCT: in a name, the quote is doubled
_FIELD = re.compile(rf'[(,] ?(?:(\w+)|"((?:[^"]|"")*)") STRUCT\({_RECORDED.pattern} ')
_SAID = 200  # characters of a mechanism in a message
_UNRECORDED = "nothing says which mechanism drew these reports"
_NAME_IT = "pass the mechanism that drew them: ldp.estimate(reports, city, m), in Python mechanism=m, on the command line -m m"

Fingerprints: TypeAlias = frozenset[str]  # lines of text, one for each mechanism that drew reports of a column
NONE: Fingerprints = frozenset()


def metadata(mechanisms: Mapping[str, Mechanism]) -> dict[str, str]:
    """Return the metadata of a schema whose columns these mechanisms drew."""
    return {f"{KEY}{column}": fingerprint(mechanism) for column, mechanism in mechanisms.items()}


def of_schema(schema: pa.Schema, column: str) -> Fingerprints:
    """Return the fingerprints of a column in the metadata of a schema, as Arrow, Parquet or Spark wrote them."""
    keys = {key.decode(errors="replace").casefold(): value for key, value in (schema.metadata or {}).items()}
    written = keys.get(f"{KEY}{column}".casefold(), b"").decode(errors="replace")
    typed = (of_type(field.type) for field in schema if field.name.casefold() == column.casefold())
    return of_text(written).union(*typed) | _of_spark(keys.get("org.apache.spark.sql.parquet.row.metadata", b"{}"), column)


def _of_spark(row: bytes, column: str) -> Fingerprints:
    try:
        fields = json.loads(row).get("fields", [])
        texts = [field["metadata"].get(KEY[:-1], "") for field in fields if field["name"].casefold() == column.casefold()]
    except (ValueError, KeyError, AttributeError, TypeError):  # written by something else
        return NONE
    return of_text("\n".join(map(str, texts)))


def of_type(kind: pa.DataType) -> Fingerprints:
    """Return the fingerprints in the type of a column of reports."""
    return of_text(kind.field(0).name) if is_record(kind) else NONE


def of_sql_type(text: str | None) -> dict[str, Fingerprints]:
    """Return the fingerprints in a type as SQL writes it: of reports under '', of a struct of reports under its fields.

    The type may also be that of counts: a MAP from reports to numbers.
    """
    text = text or ""
    if records_in(text) == "report":
        return {"": NONE.union(*(of_text(name[1]) for name in _RECORDED.finditer(text)))}
    return {(field[1] or field[2]).replace('""', '"'): of_text(field[3]) for field in _FIELD.finditer(text)}


def records_in(text: str | None) -> Literal["report", "fields"] | None:
    """Return whether a type in SQL records what drew reports: it is that of such a report, or has it in its fields."""
    text = text or ""
    if text.removeprefix("MAP(").startswith(f'STRUCT("{RECORD}'):
        return "report"
    return "fields" if _RECORDED.search(text) else None


def check_one_record(text: str | None) -> None:
    """Refuse a type in SQL with several records in a STRUCT, as UNION ALL makes it: each row has its report in one of them."""
    if _FURTHER.search(text or ""):
        raise OtherMechanism(
            "reports whose types record different mechanisms, or one with its domain in another order, are in one column",
            "estimate the reports of each by themselves; of one mechanism, join SELECT struct_extract_at(city, 1) AS city",
        )


def of_text(text: str | None) -> Fingerprints:
    """Return the fingerprints in a text, such as a comment."""
    return frozenset(match[0] for match in _LINE.finditer(text or ""))


def digits(fingerprints: Iterable[str]) -> set[str]:
    """Return the digits of fingerprints, which distinguish mechanisms."""
    return {match[1] for line in fingerprints if (match := _LINE.match(line))}


def digit_pairs(fingerprints: Iterable[str]) -> set[tuple[str, str]]:
    """Return the digits of mechanisms and of their channels; '' if a record has none of the channel."""
    return {(match[1], match[2] or "") for line in fingerprints if (match := _LINE.match(line))}


def agree(fingerprints: Iterable[str], others: Iterable[str]) -> bool:
    """Return whether all fingerprints of one set stand for the same channel as all of another set."""
    pairs = product(digit_pairs(fingerprints), digit_pairs(others))
    return all(one[0] == other[0] and (one[1] == other[1] or "" in (one[1], other[1])) for one, other in pairs)


def several(fingerprints: Iterable[str]) -> bool:
    """Return whether fingerprints stand for different mechanisms."""
    lines = list(fingerprints)
    return not agree(lines, lines)


def check_agreement(fingerprints: Fingerprints, mechanism: Mechanism) -> None:
    """Refuse reports that another mechanism drew, or several; those without a fingerprint pass."""
    if not digit_pairs(fingerprints) or agree(fingerprints, [own := fingerprint(mechanism)]):
        return
    if several(fingerprints):
        raise OtherMechanism("several mechanisms drew these reports", "estimate the reports of each by themselves")
    if digits(fingerprints) == digits([own]):
        raise OtherMechanism(
            f"{_short(mechanism)} drew these reports with other probabilities than it has now",
            "its plugin, or ldpsql, was changed: estimate with the version that drew them",
        )
    drawn, own = _described(next(iter(fingerprints))), _short(mechanism)
    raise OtherMechanism(
        f"{drawn} drew these reports" + (f", and {own} is to estimate them" if drawn != own else ""),
        "estimate with the mechanism that drew them; with another version of its domain it is another mechanism",
    )


def check_typed(text: str, mechanism: Mechanism) -> None:
    """Refuse reports whose type in SQL, which this is, records another mechanism, or several; see `of_sql_type`."""
    check_one_record(text)
    parts = {part.column: part.mechanism for part in columns_of(mechanism)}
    for column, fingerprints in of_sql_type(text).items():
        if not column or column in parts:
            check_agreement(fingerprints, parts[column] if column else mechanism)


def together(parts: Iterable[Fingerprints]) -> Fingerprints:
    """Return the fingerprints of counts that are added up."""
    union = frozenset[str]().union(*parts)
    if several(union):
        raise OtherMechanism("reports of different mechanisms do not add up", "estimate them separately")
    return union


def written_mechanism(line: str) -> Mechanism | None:
    """Return the mechanism that a fingerprint writes out; None if the text is not that of a mechanism with these digits."""
    match = _LINE.match(line)
    try:
        mechanism = registry().mechanism(match[3]) if match and match[3] else None
        same = mechanism is not None and digits([fingerprint(mechanism)]) == digits([line])
    except LdpError:
        return None
    return mechanism if same else None


def recorded(fingerprints: Fingerprints | None) -> Mechanism:
    """Return the mechanism that drew reports with these fingerprints.

    A mechanism with a long domain is not written out. It is then looked for among those that the settings name and those that
    SQL has used in this process.

    Raises:
        MechanismUnrecorded: if there is no fingerprint, or it stands for a mechanism that is not known here.
        OtherMechanism: if several mechanisms drew the reports.

    """
    if not fingerprints:
        kept = "ldp.perturb_rows and Parquet files record it, ldp.perturb by itself and CSV files do not"
        raise MechanismUnrecorded(_UNRECORDED, f"{_NAME_IT}; {kept}")
    if several(fingerprints):
        raise OtherMechanism("several mechanisms drew these reports", "estimate the reports of each by themselves")
    candidates = chain(map(written_mechanism, sorted(fingerprints)), _named_here())
    drew = digits(fingerprints)
    drawn_by = next((one for one in candidates if one is not None and _digits_of(one) in drew), None)
    if drawn_by is None:
        raise MechanismUnrecorded(
            "the mechanism that drew these reports is not written out, and none that is declared here has its fingerprint",
            f"{_NAME_IT}, or declare it in ldpsql.toml",
        )
    check_agreement(fingerprints, drawn_by)  # a plugin may have changed what the mechanism draws
    return drawn_by


def recorded_in_type(text: str) -> Mechanism:
    """Return the mechanism that a type in SQL records, of reports or of their counts; that of a row for a struct of reports.

    Raises:
        MechanismUnrecorded, OtherMechanism: see `recorded`.

    """
    check_one_record(text)
    fields = of_sql_type(text)
    if not fields or "" in fields:
        return recorded(fields.get(""))
    return registry().mechanism({Mechanism.kind: ROW, "columns": {name: recorded(line) for name, line in fields.items()}})


def read_source(spec: pa.Scalar, kind: str | None) -> Mechanism | Mixed:
    """Return what drew reports: a mechanism, or those of levels, a MAP from level to mechanism or a STRUCT of them by level.

    Args:
        spec: the mechanism or mechanisms; false stands for the one that the type of the reports records.
        kind: the type of the reports or of their counts in SQL; None if it does not matter.

    Raises:
        OtherMechanism: if the type records another mechanism.
        InvalidSpec, UnknownName, and what the mechanisms themselves refuse: if it cannot be read; see `read_mechanism`.

    """
    if isinstance(spec, pa.BooleanScalar):
        return recorded_in_type(kind or "")
    levels = isinstance(spec, pa.MapScalar) or (isinstance(spec, pa.StructScalar) and "mechanism" not in spec.type.names)
    if levels and spec.is_valid:
        check_one_record(kind)
        mixed = read_levels(spec)
        # The field `report` has one type, so what it records drew all levels.
        for one in (one for one in mixed.mechanisms if isinstance(one, Mechanism)):
            if columns_of(one):
                check_typed(kind or "", one)
            else:
                check_agreement(of_sql_type(kind).get("report", NONE), one)
        return mixed
    mechanism = MECHANISMS.thing(mechanism_number(spec))
    if kind is not None:
        check_typed(kind, mechanism)
    return mechanism


def values_type_of(kind: str, written: str | None, of: object, record: str | None) -> Any:
    """Return the type of the values behind reports, as from_json reads it.

    Args:
        kind: the type of what drew them in SQL, see `type_of_values`; BOOLEAN if ``record`` says what did.
        written: what drew them, if it is text.
        of: the name of a column of a table, or a list of names; anything else stands for the values themselves.
        record: the type of the reports or of their counts in SQL.

    """
    if kind != "BOOLEAN" and written is None:
        return type_of_values(kind, of)
    mechanism = recorded_in_type(record or "") if written is None else registry().mechanism(written)
    own = json.loads(domain_type(certify(mechanism).values.listed))
    return (of_columns_named(own, of) if isinstance(own, dict) else None) or own


def _digits_of(mechanism: Mechanism) -> str | None:
    """Return the digits of the fingerprint of a mechanism; None if the mechanism was refused."""
    try:
        return digits_of(mechanism)
    except LdpError:
        return None


def _named_here() -> Iterator[Mechanism]:
    """Yield the mechanisms that SQL has used, then those that the settings name and that can be read without a database."""
    yield from MECHANISMS.things()
    yield from DECLARATIONS.everywhere()
    for name in registry().named:
        try:
            yield registry().mechanism(name)
        except LdpError:  # its domain is in a table
            continue


def _described(line: str) -> str:
    """Return the mechanism that a fingerprint names; only what is a mechanism of these digits is repeated in a message."""
    mechanism = written_mechanism(line)
    return _short(mechanism) if mechanism is not None else "another mechanism"


def _short(mechanism: Mechanism) -> str:
    return short_text(mechanism, _SAID) or f"{mechanism.name} with other parameters or another domain"


def refuse_groups() -> NoReturn:
    """Refuse to group by a column of reports, each of which is that of a person with any value."""
    raise InvalidParameter(
        "a column of by holds reports, so its groups mix people of all values",
        "ask for a margin with given, as the page on several columns shows, or group by a column that is not perturbed",
    )


@lru_cache(maxsize=1)
def warn_unmarked() -> None:
    """Warn, once in a process, that no fingerprint names the mechanism that drew the reports."""
    warnings.warn(f"{UNMARKED}: {REMEDY}", UnmarkedReports, stacklevel=3)


UNMARKED = f"{_UNRECORDED}, so nothing was compared"
REMEDY = "a raw column or the reports of another mechanism may give plausible estimates"
