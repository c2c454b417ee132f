"""A callback with a frame in shared memory, in the manner of ROS 2's loaned messages, without ROS.

    python examples/frame_callback.py [EXECUTOR]     # reference, litert

A publisher in a process of its own owns a ring of frames. It sends the ring's descriptor once over a socket,
and then for each frame its place and its number; the subscriber's callback gets the frame where it lies and
gives the place back when it returns. A network is one such callback: the frame's place has a bound request,
so between camera and result nothing is copied.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np

import nnburst
from nnburst import OperandType, OperationType

SHAPE = (1, 48, 64, 1)
SIZE = int(np.prod(SHAPE)) * 4
PITCH = -(-SIZE // 64) * 64  # bytes from frame to frame
PLACES = 3
FRAMES = 30
PATIENCE = 30.0  # seconds that the other side may take
LOAN = struct.Struct("<II")  # place in the ring, number of the frame


def publish(fd: int) -> None:
    """The publisher: fills places that the subscriber has given back."""
    with socket.socket(fileno=fd) as line:
        line.settimeout(PATIENCE)
        memory = os.memfd_create("frames", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(memory, PLACES * PITCH)
        ring = mmap.mmap(memory, PLACES * PITCH)
        socket.send_fds(line, [b"ring"], [memory])
        free = list(range(PLACES))
        for number in range(FRAMES):
            if not free:
                free.append(LOAN.unpack(line.recv(LOAN.size))[0])
            place = free.pop(0)
            frame = np.frombuffer(ring, np.float32, SIZE // 4, place * PITCH)
            frame[...] = number
            line.send(LOAN.pack(place, number))
        while len(free) < PLACES:  # the last places come back before the ring goes
            free.append(LOAN.unpack(line.recv(LOAN.size))[0])


class Subscription:
    """Frames of one publisher; each is lent to a callback and given back when that returns."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        line.settimeout(PATIENCE)
        _, (self._fd, *_), _, _ = socket.recv_fds(line, 4, 1)
        self.ring = nnburst.Memory.from_fd(self._fd, seal=True)

    def spin(self, callback: Callable[[int, int], None]) -> None:
        """Call back with place and number of each frame until the publisher is done."""
        for _ in range(FRAMES):
            place, number = LOAN.unpack(self._line.recv(LOAN.size))
            if place >= PLACES:
                raise ValueError(f"the publisher lends place {place} of {PLACES}")
            callback(place, number)
            self._line.send(LOAN.pack(place, number))

    def close(self) -> None:
        """Let the ring go."""
        self.ring.close()
        os.close(self._fd)


def mean() -> nnburst.Model:
    """Frame of float32 → its mean, float32 (1, 1)."""
    builder = nnburst.ModelBuilder()
    frame = builder.input(OperandType.TENSOR_FLOAT32, SHAPE)
    found = builder.output(OperandType.TENSOR_FLOAT32, (1, 1))
    axes = builder.constant(OperandType.TENSOR_INT32, [1, 2])
    builder.operation(OperationType.MEAN, [frame, axes, builder.scalar(0)], [found])
    return builder.build()


def main(executor: str) -> int:
    """Subscribe, and compute each frame's mean; how many were wrong."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, __file__, "--publish", str(theirs.fileno())]
    wrong = 0
    with ExitStack() as stack:
        publisher = stack.enter_context(
            subprocess.Popen(command, pass_fds=[theirs.fileno()])  # noqa: S603 - this very file
        )
        stack.enter_context(ours)
        theirs.close()
        subscription = Subscription(ours)
        stack.callback(subscription.close)
        device = stack.enter_context(nnburst.launch(executor))
        results = stack.enter_context(device.allocate(PLACES * 64))
        prepared = stack.enter_context(device.prepare(mean()))
        burst = stack.enter_context(prepared.open_burst())
        requests = [
            burst.bind(
                [subscription.ring.array(np.float32, SHAPE, place * PITCH)],
                [results.array(np.float32, (1, 1), place * 64)],
            )
            for place in range(PLACES)
        ]

        def on_frame(place: int, number: int) -> None:
            nonlocal wrong
            requests[place].run(timeout=PATIENCE)
            found = float(requests[place].outputs[0][0, 0])
            wrong += found != number
            print(f"frame {number:2} in place {place}: mean {found:g}")

        subscription.spin(on_frame)
        wrong += publisher.wait(PATIENCE) != 0
    print(f"{FRAMES} frames, {wrong} wrong")
    return wrong


if __name__ == "__main__":
    if sys.argv[1:2] == ["--publish"]:
        publish(int(sys.argv[2]))
    else:
        sys.exit(min(main(sys.argv[1] if len(sys.argv) > 1 else "reference"), 1))
