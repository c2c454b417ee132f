"""Random request packets and back, and damaged ones, which must be refused or be read the same twice.

python bench/round_trip_fuzz.py [PACKETS] [SEED]     # 20000, 0
"""

import random
import sys
import time

import numpy as np

import nnburst
from nnburst import serialize
from nnburst.hal.enums import MeasureTiming
from nnburst.hal.model import DataLocation
from nnburst.hal.types import Request, RequestArgument


def random_request(dice: random.Random) -> tuple[Request, tuple[int, ...]]:
    """A request with up to four inputs and outputs in up to four pools, and the pools' slots."""
    slots = tuple(dice.randrange(-(2**31), 2**31) for _ in range(dice.randint(1, 4)))

    def argument() -> RequestArgument:
        if dice.random() < 0.1:
            return RequestArgument(has_no_value=True)
        place, size = (dice.randrange(2**32) for _ in range(2))
        extents = tuple(dice.randrange(2**32) for _ in range(dice.randrange(5)))
        return RequestArgument(
            False, DataLocation(dice.randrange(len(slots)), place, size), extents
        )

    inputs, outputs = (tuple(argument() for _ in range(dice.randint(1, 4))) for _ in range(2))
    return Request(inputs, outputs), slots


def main(packets: str = "20000", seed: str = "0") -> int:
    """Print how many were read and refused; return how many did not come back as they went."""
    dice, began = random.Random(int(seed)), time.perf_counter()
    changed = refused = 0
    for _ in range(int(packets)):
        sent = (*random_request(dice), dice.choice(list(MeasureTiming)))
        packet = serialize.serialize_request(*sent)
        changed += serialize.deserialize_request(packet) != sent
        damaged = packet.view(np.uint8).copy()
        for _ in range(dice.randint(1, 4)):
            damaged[dice.randrange(damaged.size)] ^= 1 << dice.randrange(8)
        try:
            found = serialize.deserialize_request(damaged.view(serialize.REQUEST_DATUM))
        except nnburst.MalformedPacket:
            refused += 1
        else:
            again = serialize.serialize_request(*found)
            changed += serialize.deserialize_request(again) != found
    print(f"{packets} packets in {time.perf_counter() - began:.1f} s: {changed} came back changed")
    print(f"of {packets} damaged ones {refused} were refused, the others read")
    return changed


if __name__ == "__main__":
    sys.exit(min(main(*sys.argv[1:]), 1))
