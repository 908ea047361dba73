"""LDP1xx and LDP201: a parameter, a mechanism, a name or an option is not valid."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ldpsql.errors.base import LdpError


class UsageError(LdpError):
    """A parameter, a mechanism or an option is not valid.

    Cause: The call or the command needs another value, another mechanism or an extra that is not installed.
    Remedy: Correct what the message names. ``ldpsql COMMAND --help`` lists the options of a command.
    """

    code = "LDP100"
    exit_code = 2


class InvalidEpsilon(UsageError):
    """Epsilon is not a plain decimal number above 0 and at most 32.

    Cause: Epsilon is negative, zero, larger than 32, or not written as digits with a point.
    Remedy: Write it as a plain number or a string, such as 1 or '0.5'.
    """

    code = "LDP101"


class InvalidDomain(UsageError):
    """A domain is not a list of at least two distinct, non-NULL values.

    Cause: The list of values is too short, or it contains NULL, one value twice, or values of a type that a domain cannot
    have.
    Remedy: Declare each possible value once. Take the list from public knowledge, never from the data.
    """

    code = "LDP102"


class InvalidParameter(UsageError):
    """A parameter has the wrong type or lies outside its range.

    Cause: A number is out of range, a type is wrong, or an option does not fit the mechanism or the estimator.
    Remedy: Use a value that the message allows. ``ldpsql plugins show NAME`` lists the parameters of a mechanism or an
    estimator.
    """

    code = "LDP103"


class InvalidSpec(UsageError):
    """A mechanism or an estimator could not be read from its text, JSON or SQL value.

    Cause: The text is not a call such as krr(1, ['a', 'b']), or the JSON or STRUCT lacks a field.
    Remedy: Write it as the examples of the reference show, or make it with its constructor, such as ldp.krr(1, ['a', 'b']).
    """

    code = "LDP104"


class BadSettings(UsageError):
    """A settings file cannot be read, or contains an unknown setting.

    Cause: ``ldpsql.toml`` is not valid TOML, has a setting that ldpsql does not know, or a mechanism that cannot be made.
    Remedy: Correct the entry that the message names.
    """

    code = "LDP105"


class UnknownName(UsageError):
    """No plugin, parameter, option or column has this name.

    Cause: The name is misspelt, its plugin is not installed or not allowed, or it is declared in another project's settings.
    Remedy: Use the name that the hint proposes. ``ldpsql plugins list`` shows mechanisms and estimators with the plugins that
    offer them.
    """

    code = "LDP201"
    kind: str
    name: str

    def __init__(self, kind: str, name: str, known: Iterable[str], otherwise: str = "there is none") -> None:
        """``otherwise`` is the hint if there is no list of names."""
        known = sorted(known)
        close = [other for other in known if other.casefold() == name.casefold()] or difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}" if known else otherwise
        super().__init__(f"there is no {kind} named '{name}'", hint, kind=kind, name=name, known=known)

    def unnamed(self) -> UnknownName:
        """Return the error without the name, which may be a raw value."""
        self.message, self.name = f"there is no such {self.kind}", ""
        self.args = (self.message,)  # repr shows it
        return self
