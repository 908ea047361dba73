"""LDP9xx: somebody stopped this, or ldpsql failed."""

from __future__ import annotations

from ldpsql.errors.base import LdpError


class Interrupted(LdpError):
    """Somebody stopped this.

    Cause: Ctrl-C, a signal, or ``ldpsql.interrupt``.
    Remedy: Run it again. A run of ``perturb_copy`` or ``perturb_table`` continues with ``resume=True``.
    """

    code = "LDP904"
    exit_code = 130  # the shells' code for a process that SIGINT ended

    def __init__(self) -> None:
        super().__init__("interrupted")


class InternalError(LdpError):
    """A defect of ldpsql or of a plugin; the details are withheld because they may hold raw values.

    Cause: An assumption of ldpsql or of a plugin does not hold.
    Remedy: Report it with the version (``ldpsql doctor``) and the code, without your data.
    """

    code = "LDP900"
