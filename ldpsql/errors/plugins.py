"""LDP2xx: a plugin cannot be used."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from ldpsql.errors.base import LdpError


class PluginError(LdpError):
    """A plugin could not be loaded, or what it gave is not valid.

    Cause: The plugin raised an error, offers something that its hook does not allow, or is not allowed by the settings.
    Remedy: Correct the plugin where the message says so, or update or remove it. ``ldpsql plugins list`` shows the state of
    each.
    """

    code = "LDP202"
    exit_code = 4


def raised_by(kind: str, name: str, thing: object, error: Exception) -> PluginError:
    """Return the error for a mechanism or an estimator that raised an exception, with the last line of its own file.

    The message of the exception is left out, since it may contain a raw value.
    """
    own, frames = getattr(sys.modules.get(type(thing).__module__), "__file__", None), traceback.extract_tb(error.__traceback__)
    at = next((frame for frame in reversed(frames) if frame.filename == own), frames[-1] if frames else None)
    where = f" at {Path(at.filename).name}, line {at.lineno}," if at else ""
    return PluginError(f"the {kind} {name} raised {type(error).__name__}{where} instead of giving its result", "mend it there")


class NameClash(PluginError):
    """Two plugins offer the same name.

    Cause: Two installed packages offer a mechanism, an estimator, a function or a command of the same name.
    Remedy: Remove one of them, or allow only one of them in the settings.
    """

    code = "LDP203"
