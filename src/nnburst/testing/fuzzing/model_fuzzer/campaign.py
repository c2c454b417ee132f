"""Everything that there is to send, over many models."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from nnburst.client.device import Device
from nnburst.hal.errors import NnburstError
from nnburst.testing.fuzzing.model_fuzzer.models import fuzz_model
from nnburst.testing.fuzzing.model_fuzzer.packets import fuzz_overlong_result, fuzz_packets_of
from nnburst.testing.fuzzing.model_fuzzer.report import EVERYTHING, FuzzReport, FuzzSelection
from nnburst.testing.fuzzing.model_fuzzer.requests import fuzz_failing, fuzz_requests
from nnburst.testing.fuzzing.model_fuzzer.target import Target
from nnburst.testing.models.small_models import SmallModel
from nnburst.testing.models.small_models.made import missing_row, open_outputs

#: Failures after which a campaign stops: more of them add nothing.
_ENOUGH = 50


def fuzz(
    device: Device,
    models: Iterable[SmallModel],
    selection: FuzzSelection = EVERYTHING,
    progress: Callable[[int], None] = lambda _: None,
) -> FuzzReport:
    """Send all mutations of all `models` to `device`; stops early when it is dead.

    Models and requests are mutated for every model, packets for the first model of each operation.
    """
    report = FuzzReport()
    seen: set[int] = set()
    for small in models:
        if not device.is_alive or len(report.failures) >= _ENOUGH:
            break
        steps = [fuzz_model, fuzz_requests]
        if not small.operations <= seen:
            steps.append(fuzz_packets_of)
            seen |= small.operations
        with Target(device, small) as target:
            for step in steps:
                _attempt(report, target, partial(step, target, report, selection))
        progress(1)
    if seen and device.is_alive and selection is EVERYTHING:
        _fuzz_special(device, report)
    return report


def _fuzz_special(device: Device, report: FuzzReport) -> None:
    """What needs a model of its own."""
    for small, step in ((missing_row(), fuzz_failing), (open_outputs(), fuzz_overlong_result)):
        with Target(device, small) as target:
            _attempt(report, target, partial(step, target, report))


def _attempt(report: FuzzReport, target: Target, step: Callable[[], None]) -> None:
    try:
        step()
    except NnburstError as error:
        report.fail(target.name, "(the campaign)", str(error))
