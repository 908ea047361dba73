"""Settings of property tests: none has a time limit, so none depends on how fast the machine is."""

from __future__ import annotations

from functools import partial

from hypothesis import HealthCheck, settings

patient = partial(settings, deadline=None, suppress_health_check=[HealthCheck.too_slow])
