from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from duckdb import DuckDBPyConnection

os.environ["LDPSQL_PLUGINS"] = "0"  # plugins installed on this machine must not change a result
os.environ["LDPSQL_CONFIG"] = os.devnull  # nor may its user's settings

import ldpsql


@pytest.fixture
def con() -> Iterator[DuckDBPyConnection]:
    with ldpsql.connect() as connection:
        connection.execute("CREATE MACRO city() AS ldp.krr(1.0, ['Lima', 'Oslo', 'Rome', 'Kyiv'])")
        yield connection
