"""What all errors share: one sentence, a code, a hint and an exit code; and the warnings."""

from __future__ import annotations

from typing import ClassVar


class PrivacyLeakWarning(UserWarning):
    """The request is carried out, but the result protects nobody."""


class UnmarkedReports(UserWarning):
    """Reports were estimated without any record of the mechanism that drew them."""


class UnchargedReports(UserWarning):
    """Reports are drawn although the ledger that the settings name is not charged for them."""


class ChangedReports(UserWarning):
    """Permanent reports of a column are charged for another channel than before, so everybody gets new ones."""


class AlikeUsers(UserWarning):
    """Some user ids of a release differ only in space around them or in the form of Unicode: they are other people."""


class LdpError(Exception):
    """Base of all errors of ldpsql: ``code``, ``message``, ``hint`` and the exit code of the command line.

    Cause: ldpsql refused, or failed. Only a demonstration whose data are missing has this code itself.
    Remedy: Follow the hint of the message.
    """

    code: ClassVar[str] = "LDP000"
    exit_code: ClassVar[int] = 1
    before = ""  # a line break if DuckDB quotes the text after words of its own

    def __init__(self, message: str, hint: str = "", **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        for name, fact in facts.items():
            setattr(self, name, fact)

    def __str__(self) -> str:
        stop = "" if self.hint.endswith("?") else "."
        hint = f" Hint: {self.hint}{stop}" if self.hint else ""
        return f"{self.before}[{self.code}] {self.message}.{hint}"
