r"""Tests your own driver or executor with pytest, and writes a report.

    pytest -p nnburst.testing.plugin --pyargs nnburst.testing.suites_for_drivers \
        --nnburst-driver=my_package.executor:MyExecutor

It also provides fixtures for your own tests:

    nnburst_driver   the driver under test; started once a session if it is an executor
    nnburst_address  its address: a socket in a directory of its own
    nnburst_device   a connection to it for one test
    nnburst_adds     skips tests that need ADD if the driver does not support it
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pytest

from nnburst.client.connect import connect
from nnburst.testing.assessment import describe
from nnburst.testing.driver_under_test import DriverUnderTest
from nnburst.testing.pack.campaign import left_out
from nnburst.testing.report import CheckResult, Report, TripleResult, missing, write

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
        "--nnburst-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="what the executor is opened with (docs/vendor_plugins.md); may be repeated",
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
    """Register the markers, and note the options of the report."""
    config.addinivalue_line(
        "markers", "nnburst_values: looks at results, which an executor without any cannot have"
    )
    config.addinivalue_line("markers", "nnburst_pack: `nnburst conformance` runs it by itself")
    if config.getoption("nnburst_report") is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(config), "nnburst_recorder")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the suites that the profile does not have; tests of your own stay."""
    wanted = _MODULES[config.getoption("nnburst_profile")]
    left = [i for i in items if _SUITES in i.nodeid and i.path.stem not in wanted]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


@pytest.fixture(scope="session")
def nnburst_driver(pytestconfig: pytest.Config) -> Iterator[DriverUnderTest]:
    """The driver that `--nnburst-driver` names."""
    with _started(pytestconfig) as driver:
        yield driver


def _started(config: pytest.Config) -> DriverUnderTest:
    name, options = str(config.getoption("nnburst_driver")), config.getoption("nnburst_option")
    return DriverUnderTest.start(name, [config.rootpath], options)


@pytest.fixture(scope="session")
def nnburst_address(nnburst_driver: DriverUnderTest) -> str:
    """The driver's address, for `nnburst.connect`."""
    return nnburst_driver.address


@pytest.fixture
def nnburst_device(nnburst_address: str) -> Iterator[Device]:
    """A connection for this test alone, with a worker of its own."""
    from nnburst.client.connect import connect

    with connect(nnburst_address) as device:
        yield device


@pytest.fixture(scope="session")
def nnburst_adds(nnburst_address: str) -> None:
    """Skip a test that prepares sums of float32 if the driver does not support ADD.

    The sums are those of `testing.faults` and of the packet fuzzer.
    """
    from nnburst.client.connect import connect
    from nnburst.testing.faults.activities import sum_model
    from nnburst.testing.fuzzing.packet_fuzzer import small_model

    with connect(nnburst_address) as device:
        for model in (sum_model(), small_model()):
            if not all(device.supported_operations(model)):
                pytest.skip("the driver does not support ADD of float32 tensors")


_decode: Final = msgspec.json.Decoder(list[TripleResult]).decode


class Recorder:
    """Records the results of a test session and writes a report at the end."""

    def __init__(self, config: pytest.Config) -> None:
        """Begin a session whose `config` has the plugin's options."""
        self._began: Final = time.monotonic()
        self._config: Final = config
        self._triples: list[TripleResult] = []
        self._checks: list[CheckResult] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a test's records and its outcome."""
        if report.when != "call" and report.outcome == "passed":
            return
        for name, value in report.user_properties:
            if name == "nnburst_triples":
                self._triples += _decode(str(value))
                return  # the cases have more details than the test
        where, _, name = report.nodeid.partition("::")
        reason = ""
        if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
            reason = str(report.longrepr[2]).removeprefix("Skipped: ")
        elif report.outcome == "failed":
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = (report.longreprtext if crash is None else crash.message).partition("\n")[0]
        self._checks.append(CheckResult(Path(where).stem, name, report.outcome, reason))

    def pytest_sessionfinish(self) -> None:
        """Write the report."""
        option = self._config.getoption
        name, profile = str(option("nnburst_driver")), str(option("nnburst_profile"))
        with _started(self._config) as driver, connect(driver.address) as device:
            about = describe(device, name, profile)
        required = [word for word in str(option("nnburst_require")).split(",") if word]
        report = Report(
            msgspec.structs.replace(about, seconds=time.monotonic() - self._began),
            tuple(self._triples),
            tuple(self._checks),
            left_out=left_out(),
            required=missing(required, self._triples) if profile != "faults" else (),
        )
        write(report, option("nnburst_report"))
