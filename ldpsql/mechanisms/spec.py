"""What mechanisms and estimators have in common: a name, frozen parameters, parts, and the ways to write and read them.

A spec can be written as Python keywords, as text such as ``krr(epsilon=1, domain=['a', 'b'])``, as JSON and as a SQL STRUCT;
the same checks apply to all four.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property
from importlib import import_module
from io import StringIO
from math import isfinite
from threading import Lock
from tokenize import TokenError, generate_tokens, untokenize
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self, Union, cast, get_args, get_origin

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ldpsql.domains.composite import Product, check_names
from ldpsql.domains.domain import MOST_LISTED, Domain
from ldpsql.errors import InvalidParameter, InvalidSpec, UnknownName
from ldpsql.privacy.claims import Epsilon
from ldpsql.quoting import text_literal

if TYPE_CHECKING:
    from ldpsql.mechanisms.base import Mechanism


_EXAMPLE = "write ldp.row({city: ldp.krr(1, ['a', 'b']), age: ldp.square_wave(1, 0, 100)})"
_READERS: list[Callable[[Any], Mechanism]] = []


class ColumnMechanism(NamedTuple):
    """A column of a row, and its mechanism."""

    column: str
    mechanism: Mechanism


class Parts(tuple[ColumnMechanism, ...]):
    """The mechanisms of the columns of a row, in the order of the columns."""

    __slots__ = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(part.column for part in self)

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """The mechanisms of the columns."""
        return tuple(part.mechanism for part in self)

    def to_json(self) -> dict[str, Any]:
        """Return each mechanism as plain JSON by its column."""
        return {part.column: part.mechanism.to_json() for part in self}

    def __str__(self) -> str:
        if all(column.isidentifier() for column in self.columns):
            return ", ".join(f"{part.column}={part.mechanism}" for part in self)
        return "columns={" + ", ".join(f"{part.column!r}: {part.mechanism}" for part in self) + "}"


class Nested(str):
    """A part of a text that is a spec of its own: a call, or a name in the settings."""

    __slots__ = ()


def read_by(reader: Callable[[Any], Mechanism]) -> None:
    """Set the function that reads a mechanism from its text or JSON: the registry, which is above this room."""
    _READERS[:] = [reader]


def mechanism_of(given: Any) -> Mechanism:
    """Return a mechanism from its text, its name in the settings or its JSON.

    Raises:
        InvalidSpec, UnknownName, InvalidParameter: if it cannot be read.

    """
    if not _READERS:
        import_module("ldpsql.registry.registry")  # sets the reader
    return _READERS[0](given)


def parts_of(given: Any) -> Parts:
    """Return the mechanisms of the columns of a row from a mapping of mechanisms, their texts or their JSON.

    Raises:
        InvalidSpec, UnknownName, InvalidParameter: if they cannot be read, or cannot be the columns of a row.

    """
    if isinstance(given, Parts):
        return given
    if not isinstance(given, Mapping):
        raise InvalidSpec("the columns of a row must be mechanisms by the names of the columns", _EXAMPLE)
    check_names(tuple(given))
    parts = Parts(ColumnMechanism(column, mechanism_of(spec)) for column, spec in given.items())
    if any(isinstance(vars(mechanism).get("columns"), Parts | Product) for mechanism in parts.mechanisms):
        raise InvalidParameter("a column of a row cannot be a row itself", "write the columns of both rows next to each other")
    return parts


PartsField = Annotated[Parts, BeforeValidator(parts_of), PlainSerializer(Parts.to_json)]


_DIGITS = Context(prec=60)
_NUMBER = re.compile(r"[+-]?([0-9]{1,17}(\.[0-9]{1,20})?|\.[0-9]{1,20})(e[+-]?[0-9]{1,3})?", re.ASCII)  # DuckDB writes .5


def number(value: Any) -> Fraction:
    """Return a plain number, or the number that a string holds: SQL passes strings so that decimals stay exact."""
    if isinstance(value, Fraction):
        return value
    readable = isinstance(value, str | int | float | Decimal) and not isinstance(value, bool)
    text = str(value).lower()
    if not readable or not _NUMBER.fullmatch(text):
        raise ValueError("must be a plain number of at most 17 digits")
    return Fraction(text)


def _double(value: Any) -> float:
    try:
        return float(number(value))
    except OverflowError:
        raise ValueError("must be a number below 1e308") from None


def _whole(value: Any) -> int:
    whole = number(value)
    if whole.denominator != 1 or abs(whole) >= 2**62:
        raise ValueError("must be a whole number")
    return int(whole)


def _share(value: Any) -> Fraction:
    share = number(value)
    if not 0 < share < 1:
        raise ValueError("must lie between 0 and 1")
    return share


def _length(value: Any) -> Fraction:
    length = number(value)
    if not Fraction(1, 10**9) <= length <= 10**9:
        raise ValueError("must lie between 1e-9 and 1e9")
    return length


def decimal_text(number: Fraction) -> str:
    """Return a decimal number as text."""
    return format(_DIGITS.divide(Decimal(number.numerator), Decimal(number.denominator)), "f")


EXACT = PlainSerializer(decimal_text)
WholeField = Annotated[int, BeforeValidator(_whole)]
NumberField = Annotated[float, BeforeValidator(_double)]
ShareField = Annotated[Fraction, BeforeValidator(_share), EXACT]
LengthField = Annotated[Fraction, BeforeValidator(_length), EXACT]
EpsilonField = Annotated[Epsilon, BeforeValidator(Epsilon.parse), PlainSerializer(str)]


@dataclass(frozen=True)
class Parameter:
    """A parameter of a spec, as the documentation, the command line and the SQL constructor show it."""

    name: str
    type: str
    default: object
    required: bool
    description: str

    @property
    def is_list(self) -> bool:
        """Whether SQL passes the parameter as a list, or a struct; SQL passes all others as text."""
        return self.type in ("list", "struct")


class Spec(BaseModel):
    """Frozen, validated parameters under a registered name."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    kind: ClassVar[str] = "plugin"
    name: ClassVar[str]
    added: ClassVar[tuple[str, ...]] = ()  # parameters of later versions: they come last, so that positions keep their meaning

    def __init__(self, **written: Any) -> None:
        """Validate the parameters, and compare the epsilons that are stored with those that the caller wrote.

        Raises:
            InvalidSpec: if a plugin stores another epsilon, so that its reports would cost more than was asked for.

        """
        super().__init__(**written)
        kept: dict[str, Any] = BaseModel.__dict__["__dict__"].__get__(self)  # whatever the class makes of its attributes
        for name, field in type(self).model_fields.items():
            asked = written.get(name, field.default)
            limits = name == "epsilon" or Epsilon in (type(kept.get(name)), field.annotation)
            if limits and asked not in (None, PydanticUndefined) and kept.get(name) != Epsilon.parse(asked):
                raise InvalidSpec(
                    f"{self.name} changes the {name} that it is given", "keep it as it is: the claim is a part of it"
                )

    @cached_property
    def _hash(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in type(self).model_fields)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:  # not by __dict__, which also holds values computed from the parameters
        names = type(self).model_fields
        return type(self) is type(other) and all(getattr(self, name) == getattr(other, name) for name in names)

    @model_validator(mode="wrap")
    @classmethod
    def _one_sentence(cls, data: Any, handler: Any) -> Self:
        try:
            return cast("Self", handler(data))
        except ValidationError as error:
            raise cls._reworded(error) from None

    @classmethod
    def _reworded(cls, error: ValidationError) -> Exception:
        """Return the first error of pydantic as one of ldpsql; an unknown name comes first, for it explains a missing one."""
        complaints = error.errors(include_url=False, include_context=False, include_input=False)
        first = next((c for c in complaints if c["type"] == "extra_forbidden"), complaints[0])
        field = str(first["loc"][0]) if first["loc"] else ""
        if first["type"] == "extra_forbidden":
            return UnknownName(f"parameter of {cls.name}", field, cls.model_fields)
        if first["type"] == "missing":
            return InvalidParameter(f"{cls.name} needs the parameter {field}, which is missing or NULL", cls.signature())
        own, complaint = first["type"] == "value_error", first["msg"].removeprefix("Value error, ")
        said = f" {complaint}" if own else f": {complaint[0].lower()}{complaint[1:]}"
        return InvalidParameter(f"parameter {field} of {cls.name}{said}", cls.signature())

    @classmethod
    def parameters(cls) -> list[Parameter]:
        """Return the parameters: required ones first, then a class's own options before those of its bases."""
        fields = cls.model_fields.items()
        needed = [_parameter(name, field) for name, field in fields if field.is_required()]
        place = {
            name: (i, n)
            for i, base in reversed(list(enumerate(cls.__mro__)))
            for n, name in enumerate(vars(base).get("__annotations__", {}))
        }
        optional = (item for item in fields if not item[1].is_required())
        options = sorted(optional, key=lambda item: (item[0] in cls.added, place[item[0]]))
        return needed + [_parameter(name, field) for name, field in options]

    @classmethod
    def signature(cls) -> str:
        """Return how the spec is written, for example ``krr(epsilon, domain, nulls := NULL)``."""
        parameters = [p.name if p.required else f"{p.name} := {sql_literal(p.default)}" for p in cls.parameters()]
        return f"{cls.name}({', '.join(parameters)})"

    @classmethod
    def summary(cls) -> str:
        """Return the first sentence of the documentation."""
        return (cls.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ").rstrip(".")

    def given(self, without: Collection[str] = ()) -> dict[str, Any]:
        """Return the parameters that differ from their defaults, as plain JSON values; those in ``without`` are left out."""
        plain = self.model_dump(mode="python", exclude_defaults=True, exclude=set(without))
        return {key: value for key, value in plain.items() if value is not None}

    def changed(self, **parameters: Any) -> Self:
        """Return the spec with other parameters; what was not given but follows from the parameters follows from these."""
        given = {name: value for name, value in self.given().items() if name in self.model_fields_set}
        return type(self)(**given | parameters)

    def to_json(self) -> dict[str, Any]:
        """Return the spec as plain JSON: its name under its kind, and its parameters."""
        return {self.kind: self.name, **self.given()}

    def __str__(self) -> str:
        own = {key: getattr(self, key) for key in self.given()}
        texts = [str(own[key]) if isinstance(own[key], Parts) else f"{key}={value!r}" for key, value in self.given().items()]
        return f"{self.name}({', '.join(texts)})"

    @classmethod
    def arranged(cls, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Return named values of a call as parameters."""
        return dict(keywords)


_TYPE_NAMES: dict[Any, str] = {Fraction: "number", Parts: "struct", Product: "struct"}


def _parameter(name: str, field: FieldInfo) -> Parameter:
    default = None if field.default is PydanticUndefined else field.default
    kinds = [kind for kind in _leaves(field.annotation) if kind is not type(None)]
    lists = [kind for kind in kinds if kind is Domain or get_origin(kind) in (list, tuple)]
    names = [_TYPE_NAMES.get(kind) or getattr(kind, "__name__", str(kind)).lower() for kind in kinds]
    return Parameter(name, "list" if lists else " or ".join(names), default, field.is_required(), field.description or "")


def _leaves(annotation: Any) -> list[Any]:
    """Return the types of a union, else the type itself, without their annotations; choices are the type of their values."""
    if get_origin(annotation) in (Union, UnionType):
        return [leaf for member in get_args(annotation) for leaf in _leaves(member)]
    if get_origin(annotation) is Literal:
        return [type(get_args(annotation)[0])]
    return _leaves(get_args(annotation)[0]) if get_origin(annotation) is Annotated else [annotation]


def sql_literal(value: object) -> str:  # noqa: PLR0911  # one for each type
    """Return a default, or a value of JSON, as SQL text."""
    if value is None:
        return "NULL"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(sql_literal, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{text_literal(name)}: {sql_literal(one)}" for name, one in value.items()) + "}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | Decimal) or (isinstance(value, float) and isfinite(value)):
        return f"{value:f}" if isinstance(value, Decimal) else repr(value)
    if isinstance(value, Fraction):
        return decimal_text(value)
    if isinstance(value, date):
        zoned = isinstance(value, datetime) and value.tzinfo is not None
        return (
            f"{text_literal(str(value))}::{'TIMESTAMPTZ' if zoned else 'TIMESTAMP' if isinstance(value, datetime) else 'DATE'}"
        )
    return text_literal(str(value))


_EXAMPLES = {"mechanism": "krr(epsilon=1, domain=['a', 'b'])", "estimator": "ibu(max_iterations=1000)"}


def read_call(text: str, kind: str = "mechanism") -> tuple[str, list[Any], dict[str, Any]]:
    """Return name, positional and named values of ``name(value, parameter=value, ...)``, with ``=`` or ``:=``.

    Values are literals of Python, true, false and NULL as in SQL, or ``range`` of whole numbers; nothing else is evaluated.

    Raises:
        InvalidSpec: if the text is anything else, or has two strings without a comma between them.
        InvalidParameter: if a range is longer than a domain may be.

    """
    if _MISSPELT.fullmatch(text):
        return text, [], {}  # there is no such name, and the message proposes one that is written with _
    example = f"for example {_EXAMPLES.get(kind, 'name(parameter=value)')}, without ldp. before it"
    try:
        with _PARSER:
            node = ast.parse(_as_python(_with_quotes(text.strip())), mode="eval").body
        if isinstance(node, ast.Name):
            return node.id, [], {}
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            raise InvalidSpec("a spec must be written like a call", example)
        arguments = [_value(a) for a in node.args]
        keywords = {keyword.arg or "": _value(keyword.value) for keyword in node.keywords}
    except (SyntaxError, TokenError, ValueError, TypeError, MemoryError, RecursionError):
        if _SQL_DATE.search(text):
            example = "write a date or a timestamp as a string, without DATE or TIMESTAMP before it; "
            example += "a list of dates is {'type': 'date32[day]', 'values': [...]}"
        raise InvalidSpec("this text cannot be read as a spec", example) from None
    return node.func.id, arguments, keywords


def _value(node: ast.expr) -> Any:
    """Return a literal or a range, or the text of a call or a name, which is a spec of its own; in a struct, each by name."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range" and not node.keywords:
        return _range(*map(ast.literal_eval, node.args))
    if isinstance(node, ast.Call | ast.Name):
        return Nested(ast.unparse(node))
    if isinstance(node, ast.Dict) and any(isinstance(part, ast.Call | ast.Name) for part in (*node.keys, *node.values)):
        names = (key.id if isinstance(key, ast.Name) else ast.literal_eval(key or node) for key in node.keys)
        return {name: _value(value) for name, value in zip(names, node.values, strict=True)}
    return ast.literal_eval(node)


def _range(*ends: int) -> NDArray[np.int64]:
    """Return the numbers of a range, as Python and DuckDB count them."""
    whole = range(*ends)
    if not all(-(2**63) <= end < 2**63 for end in ends):
        raise ValueError("not numbers of 64 bits")
    length = max(0, -((whole.start - whole.stop) // whole.step))  # not len(), which refuses lengths above 2^63
    if length > MOST_LISTED:
        raise InvalidParameter(
            f"a domain may list at most {MOST_LISTED:,} values, and this would make a list of {length:,}",
            "group values, for example by a prefix, or divide numbers by a step",
        )
    return np.arange(whole.start, whole.stop, whole.step)


_PARSER = Lock()  # Python 3.11 counts the depth of all trees together: two threads at once can end in a SystemError
_MISSPELT = re.compile(r"[A-Za-z]\w*(-\w+)+", re.ASCII)
_SQL = re.compile(r":=|\b(?:true|false|null)\b", re.IGNORECASE)
_STRING = re.compile(r"""'(?:\\.|''|[^'\\])*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_QUOTE = re.compile(r"\\.|''", re.DOTALL)  # two quotes that are one, and what a backslash begins
_TWO_STRINGS = re.compile(r"''(?:\s|#[^\n]*\n)*[a-z]{0,2}''", re.IGNORECASE)  # once each string is written ''
_SQL_DATE = re.compile(r"\b(?:date|timestamp(?:tz| with time zone)?)\s*'", re.IGNORECASE)
_PYTHON = {":=": "=", "true": "True", "false": "False", "null": "None"}


def _with_quotes(text: str) -> str:
    """Return a call whose strings have the quotes of Python: in SQL, two quotes inside of a string are one.

    Raises:
        InvalidSpec: if two strings have no comma between them. Python would join them.

    """
    if _TWO_STRINGS.search(_STRING.sub("''", text)):
        raise InvalidSpec("two texts stand next to each other without a comma", "['Lima', 'Oslo']")
    return _STRING.sub(_string, text)


def _string(found: re.Match[str]) -> str:
    """Return a string of a call as Python writes it."""
    written = found[0]
    if written[0] == '"' or "''" not in written[1:-1]:
        return written
    inside = _QUOTE.sub(lambda one: one[0].replace("''", r"\'"), written[1:-1])
    return f"'{inside}'"


def _as_python(text: str) -> str:
    """Return a call with the literals and the assignments of SQL replaced by those of Python."""
    if not _SQL.search(text):  # reading tokens takes ten times as long as parsing
        return text
    tokens = generate_tokens(StringIO(text).readline)
    return untokenize((token.type, _PYTHON.get(token.string.lower(), token.string)) for token in tokens)


def bind(cls: type[Spec], arguments: list[Any], keywords: Mapping[str, Any]) -> Spec:
    """Return the spec with these positional values, in the order of its signature, and named ones; None means the default."""
    names, keywords = [p.name for p in cls.parameters()] if arguments else [], cls.arranged(keywords)
    if len(arguments) > len(names) or set(names[: len(arguments)]) & set(keywords):
        raise InvalidSpec(f"{cls.name} was given too many values", cls.signature())
    values = {**dict(zip(names, arguments, strict=False)), **keywords}
    if any(isinstance(value, Nested) for value in values.values()):
        raise InvalidSpec(
            f"a value of {cls.name} is neither a number nor text, a list or a boolean",
            f"text is in quotes, and lists are written out, or a range(0, 100): {cls.signature()}",
        )
    return cls(**{key: value for key, value in values.items() if value is not None})
