"""Shows the headers of frames that a program in C sends: camera_queue.c.

python examples/client/camera_reader.py NAME
"""

from __future__ import annotations

import sys

import numpy as np

from nnburst.fmq import create_named_queue
from nnburst.hal.errors import Closed

HEADER = np.dtype(
    [("frame", "<u8"), ("width", "<u2"), ("height", "<u2"), ("format", "<u4"), ("seconds", "<f8")]
)


def main(name: str) -> None:
    """Count the frames until the camera closes the queue."""
    frames = 0
    with create_named_queue(name, HEADER, 64) as queue:
        latest = np.zeros(1, HEADER)
        receive = queue.receiver(latest, timeout=30)
        try:
            while receive() is not None:
                assert latest["frame"][0] == frames
                frames += 1
        except Closed:
            size = f"{latest['width'][0]} x {latest['height'][0]}"
            print(f"{frames} frames of {size}, the last one at {latest['seconds'][0]:.2f} s")


if __name__ == "__main__":
    main(sys.argv[1])
