r"""pytest plugin: test a driver or an executor of your own with the suites of this package.

    pytest -p nnburst.testing.plugin --pyargs nnburst.testing.suites_for_drivers \
        --nnburst-driver=my_package.executor:MyExecutor

Also for tests of your own:

nnburst_driver   the driver under test; started once a session if it is an executor
nnburst_address  where it listens: a socket in a directory of its own
nnburst_device   a connection to it of one test
nnburst_adds     skips what asks for it if the driver does not add
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from nnburst.testing.driver_under_test import DriverUnderTest

if TYPE_CHECKING:
    from nnburst.client.device import Device


_SUITES: Final = "suites_for_drivers"
_GENERATED: Final = ("test_pack", "test_contract")
_WRONG: Final = ("test_hostile_input", "test_faults")
#: Suites of each profile.
_MODULES: Final = {
    "basic": _GENERATED,
    "generated": (*_GENERATED, "test_results"),
    "faults": _WRONG,
    "full": (*_GENERATED, "test_results", *_WRONG),
}


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
    group.addoption(
        "--nnburst-profile",
        default="full",
        choices=tuple(_MODULES),
        help="which suites: basic (a few cases, the contract), generated (all cases, random graphs),"
        " faults (what is wrong is sent, processes are killed and stopped) or full (default)",
    )
    group.addoption(
        "--nnburst-require",
        default="",
        metavar="WORDS",
        help="operations, or operations with types, whose skips are failures: ADD,MUL:TENSOR_FLOAT32",
    )
    group.addoption(
        "--nnburst-report", type=Path, metavar="DIR", help="write report.json and report.html there"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known, and record what a report is asked to hold."""
    config.addinivalue_line(
        "markers", "nnburst_values: looks at results, which an executor without any cannot have"
    )
    config.addinivalue_line("markers", "nnburst_pack: `nnburst conformance` runs it by itself")
    if config.getoption("nnburst_report") is not None and not hasattr(config, "workerinput"):
        from nnburst.testing.recorder import Recorder

        config.pluginmanager.register(Recorder(config), "nnburst_recorder")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the suites that the profile does not have; tests of others' own stay."""
    wanted = _MODULES[config.getoption("nnburst_profile")]
    left = [i for i in items if _SUITES in i.nodeid and i.path.stem not in wanted]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


@pytest.fixture(scope="session")
def nnburst_driver(pytestconfig: pytest.Config) -> Iterator[DriverUnderTest]:
    """The driver that `--nnburst-driver` names."""
    name = str(pytestconfig.getoption("nnburst_driver"))
    with DriverUnderTest.start(name, [pytestconfig.rootpath]) as driver:
        yield driver


@pytest.fixture(scope="session")
def nnburst_address(nnburst_driver: DriverUnderTest) -> str:
    """Where it listens, for `nnburst.connect`."""
    return nnburst_driver.address


@pytest.fixture
def nnburst_device(nnburst_address: str) -> Iterator[Device]:
    """A connection of this test's own: a worker of its own."""
    from nnburst.client.connect import connect

    with connect(nnburst_address) as device:
        yield device


@pytest.fixture(scope="session")
def nnburst_adds(nnburst_address: str) -> None:
    """For tests that prepare the sums of `testing.faults` and of the packet fuzzer.

    An executor that does not add float32 tensors reports that, and owes those tests nothing.
    """
    from nnburst.client.connect import connect
    from nnburst.testing.faults.activities import sum_model
    from nnburst.testing.fuzzing.packet_fuzzer import small_model

    with connect(nnburst_address) as device:
        for model in (sum_model(), small_model()):
            if not all(device.supported_operations(model)):
                pytest.skip("the driver does not support ADD of float32 tensors")
