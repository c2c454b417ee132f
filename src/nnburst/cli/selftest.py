"""`nnburst selftest`: checks that this machine and this installation can do all that nnburst needs."""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Callable
from typing import Final

import numpy as np

import nnburst
from nnburst.cli.options import Subparsers
from nnburst.cli.output import add_json_option, microseconds, table, write_json
from nnburst.executor.reference import numpy_functions
from nnburst.fmq.shared_memory import SharedMemory

#: Seconds within which the client must notice that a driver was killed.
_NOTICE: Final = 5.0


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "selftest", help="check this machine and installation", description=__doc__
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Run every check; 0 only if all pass."""
    results = [_outcome(name, check) for name, check in _CHECKS.items()]
    if str(args.json) != "-":
        rows = [(r["name"], r["outcome"], r["detail"]) for r in results]
        table("selftest", ("check", "outcome", "detail"), rows)
    write_json(args.json, {"checks": results})
    return 0 if all(result["outcome"] == "passed" for result in results) else 1


def _outcome(name: str, check: Callable[[], str]) -> dict[str, str]:
    try:
        return {"name": name, "outcome": "passed", "detail": check()}
    except Exception as error:
        return {"name": name, "outcome": "failed", "detail": f"{type(error).__name__}: {error}"}


def _model() -> nnburst.Model:
    """A model that adds 1 to each of four floats."""
    builder = nnburst.ModelBuilder()
    kind = nnburst.OperandType.TENSOR_FLOAT32
    x = builder.input(kind, (4,))
    one = builder.constant(kind, np.ones(4))
    result = builder.output(kind, (4,))
    activation = builder.scalar(int(nnburst.FusedActivationFunc.NONE))
    builder.operation(nnburst.OperationType.ADD, [x, one, activation], [result])
    return builder.build()


def _check_cores() -> str:
    cores = len(os.sched_getaffinity(0))
    return f"{cores} usable" + ("" if cores > 1 else ": bursts sleep instead of spinning")


def _check_shared_memory() -> str:
    memory = SharedMemory.create(4096)
    view = memory.map(writable=True)
    view[...] = 1
    again = SharedMemory.adopt(os.dup(memory.fd)).map(writable=False)
    memory.close()
    if int(again.sum()) != again.size:
        raise AssertionError("two mappings of one pool differ")
    return "sealed memfd, mapped twice"


def _check_numpy() -> str:
    wrong = numpy_functions.wrong_functions()
    if wrong:
        raise AssertionError(f"numpy {np.__version__} computes wrongly: {'; '.join(wrong)}")
    return f"{np.__version__}: functions of strided arrays are right"


def _check_execute() -> str:
    x = np.arange(4, dtype=np.float32)
    with nnburst.launch("reference") as device, device.prepare(_model()) as prepared:
        result = prepared.execute([x], measure=True)
    np.testing.assert_array_equal(result.outputs[0], x + 1)
    return f"{result.timing.time_in_driver} µs in the driver"


def _check_burst() -> str:
    x = np.arange(4, dtype=np.float32)
    with (
        nnburst.launch("reference") as device,
        device.prepare(_model()) as prepared,
        prepared.open_burst() as burst,
    ):
        bound = burst.bind()
        bound.inputs[0][...] = x
        for _ in range(100):
            bound.run()
        began = time.perf_counter_ns()
        for _ in range(100):
            bound.run()
        each = (time.perf_counter_ns() - began) / 100
        np.testing.assert_array_equal(bound.outputs[0], x + 1)
    return f"{microseconds(each)} µs each"


def _check_death() -> str:
    with nnburst.launch("null") as device, device.prepare(_model()) as prepared:
        os.kill(device.pid, signal.SIGKILL)
        began = time.perf_counter_ns()
        try:
            prepared.execute([np.zeros(4, np.float32)], timeout=_NOTICE)
        except nnburst.DeadObject as error:
            noticed = time.perf_counter_ns() - began
            return f"{error.status.name} after {microseconds(noticed)} µs"
    raise AssertionError("a killed driver answered")


_CHECKS: Final = {
    "cores": _check_cores,
    "shared memory": _check_shared_memory,
    "numpy": _check_numpy,
    "execute": _check_execute,
    "burst": _check_burst,
    "driver death": _check_death,
}
