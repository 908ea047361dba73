from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.postgres.servers import PATH, running


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    if shutil.which("initdb", path=PATH) is None:
        pytest.skip("there is no PostgreSQL")
    with running() as folder:
        yield folder
