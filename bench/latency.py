"""Times one execution on each road, beside one byte to another process and back.

    python bench/latency.py [EXECUTOR] [SECONDS]     # null, 3

One ADD of 16 floats, which the executor `null` does not compute. The roads run in turn, in short blocks.
"""

import os
import socket
import sys
import time
from collections.abc import Callable

import numpy as np

import nnburst
from nnburst import OperandType, OperationType


def adder() -> nnburst.Model:
    """Two tensors of 16 floats and their sum."""
    builder = nnburst.ModelBuilder()
    a, b = (builder.input(OperandType.TENSOR_FLOAT32, (16,)) for _ in range(2))
    total = builder.output(OperandType.TENSOR_FLOAT32, (16,))
    builder.operation(OperationType.ADD, [a, b, builder.scalar(0)], [total])
    return builder.build()


def main(executor: str = "null", seconds: str = "3") -> None:
    """Print the median and the 99th percentile of each road in microseconds."""
    here, there = socket.socketpair()
    if not os.fork():  # the child answers each byte until the other side is closed
        here.close()
        while byte := there.recv(1):
            there.send(byte)
        os._exit(0)
    there.close()
    ones = [np.ones(16, np.float32)] * 2
    with nnburst.launch(executor) as device:
        burst = (prepared := device.prepare(adder())).open_burst()
        roads: dict[str, Callable[[], object]] = {
            "bound.run()": burst.bind().run,
            "burst.execute(arrays)": lambda: burst.execute(ones),
            "prepared.execute(arrays)": lambda: prepared.execute(ones),
            "one byte over a socket": lambda: here.recv(here.send(b"x")),
        }
        found: dict[str, list[int]] = {road: [] for road in roads}
        began = time.monotonic()
        while time.monotonic() < began + float(seconds):
            for road, run in roads.items():
                stamps = [time.perf_counter_ns() for _ in range(200) if run()]
                found[road] += np.diff(stamps).tolist()
    here.close()  # which ends the child
    for road, times in found.items():
        middle, late = np.percentile(times, [50, 99]) / 1000
        print(f"{road:25} {middle:7.2f} µs, p99 {late:7.2f} µs, {len(times)} executions")


if __name__ == "__main__":
    main(*sys.argv[1:])
