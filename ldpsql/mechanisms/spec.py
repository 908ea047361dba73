"""What mechanisms and estimators have in common: a name, frozen parameters, and the ways to write them down.

A spec can be written as Python keywords, as text such as ``krr(epsilon=1, domain=['a', 'b'])``, as JSON and as a SQL
STRUCT; the same checks apply to all four.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property
from math import isfinite
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, Union, cast, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ldpsql.domains.domain import Domain
from ldpsql.domains.product import Product
from ldpsql.errors import InvalidParameter, InvalidSpec, UnknownName
from ldpsql.mechanisms.parts import Parts
from ldpsql.privacy.claims import Epsilon
from ldpsql.quoting import text_literal

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
