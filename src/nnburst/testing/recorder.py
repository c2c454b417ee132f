"""A pytest session as a report."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import msgspec
import pytest

from nnburst.client.connect import connect
from nnburst.testing.assessment import describe
from nnburst.testing.driver_under_test import DriverUnderTest
from nnburst.testing.pack.left_out import left_out
from nnburst.testing.report.files import write
from nnburst.testing.report.results import CheckResult, Report, TripleResult, missing

_decode: Final = msgspec.json.Decoder(list[TripleResult]).decode


class Recorder:
    """Listens to a session and writes its report at the end."""

    def __init__(self, config: pytest.Config) -> None:
        """`config` has the plugin's options."""
        self._began: Final = time.monotonic()
        self._config: Final = config
        self._triples: list[TripleResult] = []
        self._checks: list[CheckResult] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what a test recorded, and how it ended."""
        if report.when != "call" and report.outcome == "passed":
            return
        for name, value in report.user_properties:
            if name == "nnburst_triples":
                self._triples += _decode(str(value))
                return  # the cases show more than their test
        where, _, name = report.nodeid.partition("::")
        reason = ""
        if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
            reason = str(report.longrepr[2]).removeprefix("Skipped: ")
        elif report.outcome == "failed":
            reason = report.longreprtext.strip().rpartition("\nE ")[2].partition("\n")[0]
        self._checks.append(CheckResult(Path(where).stem, name, report.outcome, reason))

    def pytest_sessionfinish(self) -> None:
        """Write the report."""
        option = self._config.getoption
        name, profile = str(option("nnburst_driver")), str(option("nnburst_profile"))
        with (
            DriverUnderTest.start(name, [self._config.rootpath]) as driver,
            connect(driver.address) as device,
        ):
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
