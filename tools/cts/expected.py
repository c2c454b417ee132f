"""Cases that cannot hold here, each with its reason, and cases that pass without looking at anything."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final

from cts.program import Result

#: Pattern of cases to the reason why they cannot hold. Each must be needed: a run in which one passes fails.
CANNOT_HOLD: Final = {
    "GoogleTestVerification.UninstantiatedParameterizedTestSuite<*>": (
        "without the generated examples there is nothing that their suites could be instantiated with,"
        " and the test library counts that as a failure; no case of the program with all examples"
    ),
}

#: Pattern of cases to what they do not look at on Linux, or with which devices.
VACUOUS: Final = {
    "ValidationTestCompilationForDevices_2.*": "passes without a call if there are fewer than two devices",
}

#: Suites and functions that CTS has no cases for on Linux; tests/capi holds them.
NEVER_CALLED: Final = (
    "ANeuralNetworksDevice_getExtensionSupport",
    "ANeuralNetworksModel_getExtensionOperandType",
    "ANeuralNetworksModel_getExtensionOperationType",
    "ANeuralNetworksModel_setOperandExtensionData",
    "ANeuralNetworksCompilation_addExtensionAttribute",
    "ANeuralNetworksExecution_addExtensionAttribute",
    "ANeuralNetworksMemory_createFromAHardwareBuffer",
)


def reason(name: str, listed: Mapping[str, str]) -> str | None:
    """Why a case is listed; None if it is not."""
    return next((why for pattern, why in listed.items() if fnmatchcase(name, pattern)), None)


def unexpected(results: Mapping[str, Result]) -> list[Result]:
    """Results that a run must not have: failures that are not listed, and listed cases that pass."""
    return [
        result
        for name, result in results.items()
        if result.outcome != "skipped"
        and (result.outcome == "passed") == (reason(name, CANNOT_HOLD) is not None)
    ]
