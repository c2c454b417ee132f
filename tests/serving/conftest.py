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


@pytest.fixture
def lone_server() -> Iterator[Any]:
    """A server in this process, with a model `differing`."""
    from nnburst.serving.http_server import HttpServer
    from nnburst.serving.options import Options
    from nnburst.serving.server import Readers, make_threads
    from serving.test_known_requests import Differing, serving

    options = Options("", {}, "", http="127.0.0.1:0", max_connections=3)
    threads = make_threads(options, Readers())
    server = HttpServer(options, serving(Differing()), threads)
    server.start()
    yield server
    server.close(1)
    for each in threads:
        each.shutdown()
