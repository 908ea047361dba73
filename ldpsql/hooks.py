"""The markers of hooks, and the version of the plugin API."""

from __future__ import annotations

import pluggy

API_VERSION = 1  # of the four modules that plugins import from; CONTRIBUTING.md says when it rises

hookspec = pluggy.HookspecMarker("ldpsql")
hookimpl = pluggy.HookimplMarker("ldpsql")
