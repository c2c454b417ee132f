"""The service that many clients share, on some of the cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nnburst.bench.clients.scenario import on_cores
from nnburst.testing.driver_under_test import DriverUnderTest


@contextmanager
def service(executor: str, cores: tuple[int, ...]) -> Iterator[str]:
    """A driver of its own; the value is its address."""
    with on_cores(cores):
        driver = DriverUnderTest.start(executor)
    with driver:
        yield driver.address
