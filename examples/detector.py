"""A detector for several cameras, in the manner of camera recorders, that survives its driver.

    python examples/detector.py [EXECUTOR] [CAMERAS]     # reference, litert

One detector serves all cameras. Each camera hands over its newest frame and never waits for the detector: a
frame that comes while the last one is not looked at yet replaces it, and the one replaced is counted. Every
execution has a deadline. If the driver dies or hangs, the frame is counted as lost, the driver is started
again, and the cameras go on; that there is no driver at all is printed for each frame, never passed over.
After its first result this program kills its own driver to show it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt

import nnburst
from nnburst import OperandType, OperationType

HEIGHT, WIDTH, CELL = 48, 64, 8
FRAMES = 60  # of each camera
PERIOD = 0.005  # seconds from frame to frame
DEADLINE = 5.0  # seconds that one execution may take
PATIENCE = 60.0  # seconds after which something is wrong with this program


class Mailbox:
    """The newest frame of each camera. Thread-safe."""

    def __init__(self, cameras: int) -> None:
        self._frames: dict[int, tuple[int, npt.NDArray[np.float32]]] = {}
        self._filming = cameras
        self._news = threading.Condition()
        self.counts: Counter[str] = Counter()

    def put(self, camera: int, number: int, frame: npt.NDArray[np.float32]) -> None:
        """Hand over a frame; one that was not taken yet is replaced."""
        with self._news:
            self.counts["replaced"] += camera in self._frames
            self._frames[camera] = number, frame
            self._news.notify()

    def end(self) -> None:
        """A camera has no more frames."""
        with self._news:
            self._filming -= 1
            self._news.notify()

    def take(self) -> tuple[int, int, npt.NDArray[np.float32]] | None:
        """The newest frame of the camera that has waited longest; None after the last one."""
        with self._news:
            if not self._news.wait_for(lambda: self._frames or not self._filming, PATIENCE):
                raise TimeoutError(f"no camera has given a frame for {PATIENCE} s")
            if not self._frames:
                return None
            camera = next(iter(self._frames))
            return camera, *self._frames.pop(camera)


def spot(camera: int, number: int) -> int:
    """Number of the cell that a camera sees lit in a frame."""
    return (camera * 7 + number * 5) % ((HEIGHT // CELL) * (WIDTH // CELL))


def film(camera: int, mailbox: Mailbox) -> None:
    """A camera: a thread here, a decoder's process in a recorder."""
    rest = threading.Event()
    for number in range(FRAMES):
        frame = np.zeros((1, HEIGHT, WIDTH, 1), np.float32)
        row, column = divmod(spot(camera, number), WIDTH // CELL)
        frame[0, row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL] = 1
        mailbox.put(camera, number, frame)
        rest.wait(PERIOD)
    mailbox.end()


def brightest_cell() -> nnburst.Model:
    """Frame of float32 → number of its brightest cell, int32 (1,)."""
    cells = (HEIGHT // CELL) * (WIDTH // CELL)
    builder = nnburst.ModelBuilder()
    frame = builder.input(OperandType.TENSOR_FLOAT32, (1, HEIGHT, WIDTH, 1))
    means = builder.temporary(OperandType.TENSOR_FLOAT32, (1, HEIGHT // CELL, WIDTH // CELL, 1))
    line = builder.temporary(OperandType.TENSOR_FLOAT32, (1, cells))
    brightest = builder.output(OperandType.TENSOR_INT32, (1,))
    pooling = nnburst.PaddingScheme.VALID, CELL, CELL, CELL, CELL, nnburst.FusedActivationFunc.NONE
    scalars = [builder.scalar(int(value)) for value in pooling]
    builder.operation(OperationType.AVERAGE_POOL_2D, [frame, *scalars], [means])
    shape = builder.constant(OperandType.TENSOR_INT32, [1, cells])
    builder.operation(OperationType.RESHAPE, [means, shape], [line])
    builder.operation(OperationType.ARGMAX, [line, builder.scalar(1)], [brightest])
    return builder.build()


def detect(
    bound: nnburst.BoundRequest, mailbox: Mailbox, kill_after: int, device: nnburst.Device
) -> float:
    """Look at frames until the cameras end; the longest gap between two results, in seconds."""
    counts, last, longest = mailbox.counts, time.monotonic(), 0.0
    while taken := mailbox.take():
        camera, number, frame = taken
        bound.inputs[0][...] = frame
        if counts["seen"] == kill_after and not counts["lost"]:
            os.kill(device.pid, signal.SIGKILL)  # what a driver's fault would do
        try:
            bound.run(timeout=DEADLINE)
        except (nnburst.DeadObject, nnburst.MissedDeadline) as error:
            counts["lost"] += 1
            print(f"camera {camera}, frame {number} is lost: {error.status.name}; going on")
            continue
        except nnburst.DeviceUnavailable as error:
            counts["lost"] += 1
            print(f"NO DRIVER, camera {camera}, frame {number} is lost: {error}; trying again")
            continue
        counts["seen"] += 1
        counts["wrong"] += int(bound.outputs[0][0]) != spot(camera, number)
        now = time.monotonic()
        last, longest = now, max(longest, now - last)
    return longest


def main(executor: str, cameras: int) -> int:
    """Run the detector until the cameras end; how many detections were wrong."""
    mailbox = Mailbox(cameras)
    with ExitStack() as stack:
        device = stack.enter_context(nnburst.launch(executor, recover=True))
        prepared = stack.enter_context(device.prepare(brightest_cell()))
        bound = stack.enter_context(prepared.open_burst()).bind()
        for camera in range(cameras):
            threading.Thread(target=film, args=(camera, mailbox), daemon=True).start()
        longest = detect(bound, mailbox, 1, device)
        recoveries = device.recoveries
    found = mailbox.counts
    print(
        f"{cameras * FRAMES} frames: {found['seen']} seen, {found['replaced']} replaced by newer ones,"
        f" {found['lost']} lost, {found['wrong']} wrong"
    )
    print(f"{recoveries} driver died; longest gap between two results {longest * 1000:.0f} ms")
    return found["wrong"]


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(min(main(words[0] if words else "reference", int(words[1]) if words[1:] else 3), 1))
