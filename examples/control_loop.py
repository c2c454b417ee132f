"""A control loop at 200 Hz with a state: a deadline for each tick, and a driver that dies now and then.

    python examples/control_loop.py [EXECUTOR] [KILLS]

The network is a filter: its state goes from tick to tick in shared memory. A tick that has no answer within
4 ms, or while the driver is made again, holds the last command; no tick comes late for it. When the driver is
there again the filter goes on from the state of the last tick that was answered.
"""

from __future__ import annotations

import gc
import itertools
import os
import signal
import sys
import time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import nnburst
from nnburst import OperandType, OperationType

PERIOD = 0.005  # seconds from tick to tick
DEADLINE = 0.004  # seconds that a tick may wait for its command
APART = 1.5  # seconds of answers between two deaths


class State(NamedTuple):
    """The filter's memory: its output is its input in the next tick."""

    name: str
    input_index: int
    output_index: int
    initial: npt.NDArray[np.float32]


def sum_filter() -> nnburst.Model:
    """The sum of all that it was given, as a state and as the command."""
    builder = nnburst.ModelBuilder()
    given, before = (builder.input(OperandType.TENSOR_FLOAT32, (1,)) for _ in range(2))
    command, after = (builder.output(OperandType.TENSOR_FLOAT32, (1,)) for _ in range(2))
    none = builder.scalar(0)
    builder.operation(OperationType.ADD, [given, before, none], [after])
    builder.operation(OperationType.ADD, [given, before, none], [command])
    return builder.build()


class Report(NamedTuple):
    """Counts of the ticks by their outcome; `late` is the longest delay of a tick's end in seconds."""

    answered: int
    held: int
    wrong: int
    late: float


def control(bound: nnburst.BoundRequest | None, device: nnburst.Device, kills: int) -> Report:
    """The loop; without a request it only keeps time."""
    answered, held, wrong, late, killed = 0, 0, 0, 0.0, 0
    began, apart = time.monotonic(), int(APART / PERIOD)
    for tick in itertools.count():
        start = began + tick * PERIOD
        time.sleep(max(0.0, start - time.monotonic()))
        if answered >= (killed + 1) * apart or (bound is None and tick == apart):
            if killed == kills:
                break
            os.kill(device.pid, signal.SIGKILL)  # what a driver's fault would do
            killed += 1
        try:
            if bound is None:
                time.sleep(DEADLINE)
            else:
                bound.inputs[0][...] = 1
                command = bound.run(timeout=DEADLINE).outputs[0][0]
                answered += 1
                wrong += int(command != answered)
        except (nnburst.DeadObject, nnburst.MissedDeadline):
            held += 1  # the command of the last tick holds
        late = max(late, time.monotonic() - start - DEADLINE)
    return Report(answered, held, wrong, late)


def main(executor: str, kills: int) -> int:
    """Run the loop with a driver that is killed, and without one; how many commands were wrong."""
    memory = [State("sum", 1, 1, np.zeros(1, np.float32))]
    with (
        nnburst.launch(executor, recover="raise") as device,
        device.prepare(sum_filter()) as prepared,
        prepared.open_burst(states=memory) as burst,
    ):
        bound = burst.bind()
        gc.collect()
        gc.freeze()  # no later collection looks at what exists now
        bare = control(None, device, 0)
        found = control(bound, device, kills)
        print(f"{found.answered} ticks answered, {found.held} held, {found.wrong} wrong")
        print(f"{device.recoveries} of {kills} dead drivers made again")
        print(
            f"latest tick {found.late * 1000:.1f} ms behind its deadline,"
            f" without a network {bare.late * 1000:.1f} ms"
        )
    return found.wrong


if __name__ == "__main__":
    executor_name = sys.argv[1] if len(sys.argv) > 1 else "reference"
    sys.exit(main(executor_name, int(sys.argv[2]) if len(sys.argv) > 2 else 2))
