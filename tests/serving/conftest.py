"""A front that the tests of a file share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from serving.served import Served


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served("--grpc-shared-memory", "--grpc-max-message", "100000") as served:
        yield served


@pytest.fixture
def client(served: Served) -> Iterator[Any]:
    client = served.client()
    yield client
    client.close()
