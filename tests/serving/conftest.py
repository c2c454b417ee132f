"""A front that the tests of a file share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from serving.served import Served


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    words = "--shared-memory --max-message 100000 --model-control explicit"
    with Served(*words.split()) as served:
        yield served


@pytest.fixture
def client(served: Served) -> Iterator[Any]:
    client = served.client()
    yield client
    client.close()
