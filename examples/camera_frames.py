"""A camera's frames through a network, where the camera put them.

    python examples/camera_frames.py [EXECUTOR]     # reference, litert

The camera writes into a ring of frames in a memfd of its own, as a video decoder or another process
would. The memfd becomes a pool, each frame of the ring has one bound request, and from then on a frame
costs one call: nothing is copied, serialised or allocated for it. A frame goes back to the camera when its
result is there.
"""

from __future__ import annotations

import mmap
import os
import queue
import statistics
import sys
import threading
import time

import numpy as np

import nnburst
from nnburst import OperandType, OperationType

HEIGHT, WIDTH, CELL = 96, 128, 8
RING = 4  # frames
PITCH = -(-HEIGHT * WIDTH // 64) * 64  # bytes from frame to frame: engines want 64-byte alignment
FRAMES = 40  # how long the camera films
PATIENCE = 10.0  # seconds that a frame may be late


class Camera:
    """Films a bright spot that wanders over a dark wall. Knows nothing of networks."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("camera", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, RING * PITCH)
        self._bytes = mmap.mmap(self.fd, RING * PITCH)
        self.filled: queue.Queue[tuple[int, int]] = queue.Queue()  # number of the frame, its place
        self.free: queue.Queue[int] = queue.Queue()
        for place in range(RING):
            self.free.put(place)

    @staticmethod
    def spot(number: int) -> tuple[int, int]:
        """Cell of the spot in a frame: row, column."""
        return number * 5 % (HEIGHT // CELL), number * 3 % (WIDTH // CELL)

    def film(self) -> None:
        """Fill frames as they become free; a thread."""
        noise = np.random.default_rng(1)
        for number in range(FRAMES):
            place = self.free.get(timeout=PATIENCE)
            start = place * PITCH
            frame = np.frombuffer(self._bytes, np.uint8, HEIGHT * WIDTH, start)
            frame[...] = noise.integers(0, 60, frame.size)
            row, column = self.spot(number)
            frame.reshape(HEIGHT, WIDTH)[
                row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL
            ] += 150
            self.filled.put((number, place))


def brightest_cell() -> nnburst.Model:
    """Frame (1, HEIGHT, WIDTH, 1) of uint8 → number of the brightest cell, int32 (1,)."""
    rows, columns = HEIGHT // CELL, WIDTH // CELL
    builder = nnburst.ModelBuilder()
    kind = OperandType.TENSOR_QUANT8_ASYMM
    frame = builder.input(kind, (1, HEIGHT, WIDTH, 1), 1 / 255, 0)
    cells = builder.temporary(kind, (1, rows, columns, 1), 1 / 255, 0)
    row_of_cells = builder.temporary(kind, (1, rows * columns), 1 / 255, 0)
    brightest = builder.output(OperandType.TENSOR_INT32, (1,))
    pooling = nnburst.PaddingScheme.VALID, CELL, CELL, CELL, CELL, nnburst.FusedActivationFunc.NONE
    scalars = [builder.scalar(int(value)) for value in pooling]
    builder.operation(OperationType.AVERAGE_POOL_2D, [frame, *scalars], [cells])
    shape = builder.constant(OperandType.TENSOR_INT32, [1, rows * columns])
    builder.operation(OperationType.RESHAPE, [cells, shape], [row_of_cells])
    builder.operation(OperationType.ARGMAX, [row_of_cells, builder.scalar(1)], [brightest])
    return builder.build()


def main(executor: str) -> int:
    """Follow the spot; the number of frames in which it was somewhere else."""
    camera = Camera()
    durations, wrong = [], 0
    with (
        nnburst.launch(executor) as device,
        nnburst.Memory.from_fd(camera.fd, seal=True) as ring,
        device.allocate(RING * 64) as results,
        device.prepare(brightest_cell()) as prepared,
        prepared.open_burst() as burst,
    ):
        requests = [
            burst.bind(
                [ring.array(np.uint8, (1, HEIGHT, WIDTH, 1), place * PITCH)],
                [results.array(np.int32, (1,), place * 64)],
            )
            for place in range(RING)
        ]
        threading.Thread(target=camera.film, daemon=True).start()
        for _ in range(FRAMES):
            number, place = camera.filled.get(timeout=PATIENCE)
            start = time.perf_counter_ns()
            requests[place].run(timeout=PATIENCE)
            durations.append(time.perf_counter_ns() - start)
            row, column = divmod(int(requests[place].outputs[0][0]), WIDTH // CELL)
            camera.free.put(place)
            wrong += (row, column) != camera.spot(number)
            print(f"frame {number:2} in place {place}: the spot is in row {row}, column {column}")
    print(f"{FRAMES} frames, median {statistics.median(durations) / 1000:.0f} µs, {wrong} wrong")
    return wrong


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1] if len(sys.argv) > 1 else "reference"), 1))
