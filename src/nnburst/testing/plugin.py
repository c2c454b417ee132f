r"""pytest plugin: test a driver or an executor of your own with the suites of this package.

    pytest -p nnburst.testing.plugin --pyargs nnburst.testing.suites_for_drivers \
        --nnburst-driver=my_package.executor:MyExecutor

Also for tests of your own:

nnburst_driver   the driver under test; started once a session where it is an executor
nnburst_address  where it listens: a socket in a directory that nobody else sees
nnburst_device   a connection to it of one test
nnburst_adds     skips what asks for it where the driver does not add
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from nnburst.client.device import Device
    from nnburst.testing.driver_under_test import DriverUnderTest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("nnburst", "drivers of nnburst")
    group.addoption(
        "--nnburst-driver",
        default="reference",
        metavar="NAME_OR_EXECUTOR",
        help="what to test: an executor (its name or module:attribute), or the name or the path of a driver"
        " that runs (default: %(default)s)",
    )
    group.addoption(
        "--nnburst-vectors",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="conformance vectors (*.json.gz) to run on it; may be repeated",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers", "nnburst_values: looks at results, which an executor without any cannot have"
    )


@pytest.fixture(scope="session")
def nnburst_driver(pytestconfig: pytest.Config) -> Iterator[DriverUnderTest]:
    """The driver that `--nnburst-driver` names."""
    from nnburst.testing.driver_under_test import DriverUnderTest

    name = str(pytestconfig.getoption("nnburst_driver"))
    with DriverUnderTest.start(name, [pytestconfig.rootpath]) as driver:
        yield driver


@pytest.fixture(scope="session")
def nnburst_address(nnburst_driver: DriverUnderTest) -> str:
    """Where it listens, for `nnburst.connect`."""
    return nnburst_driver.address


@pytest.fixture
def nnburst_device(nnburst_address: str) -> Iterator[Device]:
    """A connection of this test's own: a worker that nobody else uses."""
    from nnburst.client.connect import connect

    with connect(nnburst_address) as device:
        yield device


@pytest.fixture(scope="session")
def nnburst_adds(nnburst_address: str) -> None:
    """For tests that prepare the sums of `testing.faults` and of the packet fuzzer.

    An executor that does not add float32 tensors says so, and owes those tests nothing.
    """
    from nnburst.client.connect import connect
    from nnburst.testing.faults.activities import sum_model
    from nnburst.testing.fuzzing.packet_fuzzer import small_model

    with connect(nnburst_address) as device:
        for model in (sum_model(), small_model()):
            if not all(device.supported_operations(model)):
                pytest.skip("the driver does not support ADD of float32 tensors")
