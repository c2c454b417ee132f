"""`nnburst demo`: runs networks in another process; here digits and faces.

The demos of sounds are in `nnburst.cli.demo_sounds`.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import nnburst
from nnburst.cli.options import Subparsers, at_least_one
from nnburst.cli.output import (
    add_json_option,
    microseconds,
    progress,
    table,
    text_for_people,
    writable_file,
    write_json,
)
from nnburst.client.burst.interface import BoundRequest
from nnburst.demo.pictures import (
    PHOTOGRAPHS,
    Box,
    Face,
    Precision,
    Split,
    View,
    build_network,
    encode,
    find_network,
    find_photograph,
    load_split,
    overlap,
)
from nnburst.executor.base import Argument
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Model
from nnburst.hal.utils import chosen_executor

#: The options of each demo; the other demos refuse them.
_OPTIONS = {
    "digits": ("rounds",),
    "wakeword": ("clip", "real_time"),
    "face": ("rounds", "image"),
    "voice": ("clip", "real_time", "executor"),
    "noise": ("clip", "real_time", "executor", "output"),
}


def prepare_parser(subparsers: Subparsers) -> None:
    """Add `nnburst demo`."""
    parser = subparsers.add_parser(
        "demo",
        help="recognise digits, spot a phrase, find a face, mark speech or suppress noise in another process",
        description="`nnburst demo`: networks at work in another process: digits, a wake word, "
        "faces, speech, noise.",
    )
    parser.add_argument(
        "what",
        nargs="?",
        choices=list(_OPTIONS),
        default="digits",
        help="recognise digits by every route and survive a killed driver (default); spot a phrase in"
        " a stream of sound; find a face in photographs; mark where a sound has speech; take the noise"
        " out of a sound",
    )
    parser.add_argument(
        "--rounds",
        type=at_least_one,
        help="digits, face: how often every image is executed (default: 5, 20)",
    )
    parser.add_argument(
        "--clip",
        type=Path,
        metavar="WAV",
        help="wakeword, voice, noise: a recording of your own, 16 kHz, 16 bits, one channel",
    )
    parser.add_argument(
        "--real-time",
        action="store_true",
        help="wakeword, voice, noise: hops come when a microphone would have them (every 10, 32, 8 ms)",
    )
    parser.add_argument(
        "--executor",
        help="voice, noise: executor of the driver (default: auto, the best that is installed)",
    )
    parser.add_argument(
        "--output",
        type=writable_file,
        metavar="WAV",
        help="noise: write the sound without the noise",
    )
    parser.add_argument(
        "--image", type=Path, metavar="FILE", help="face: a picture of your own instead"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Run the demo; 1 if it misses a result, or finds too many."""
    for option in {name for names in _OPTIONS.values() for name in names}:
        if getattr(args, option) and option not in _OPTIONS[args.what]:
            raise InvalidArgument(
                f"--{option.replace('_', '-')} is not an option of demo {args.what}"
            )
    if args.what == "wakeword":
        from nnburst.cli.demo_sounds import hear

        return hear(args.json, args.clip, real_time=args.real_time)
    if args.what == "face":
        return find(args.json, args.image, args.rounds or 20)
    executor = args.executor or chosen_executor()
    if args.what == "voice":
        from nnburst.cli.demo_sounds import mark

        return mark(args.json, args.clip, real_time=args.real_time, executor=executor)
    if args.what == "noise":
        from nnburst.cli.demo_sounds import suppress

        return suppress(
            args.json, args.clip, args.output, real_time=args.real_time, executor=executor
        )

    return recognise(args.json, args.rounds or 5)


# -- Routes: ways to execute, each with its measurements -------------------------------------------


Array = npt.NDArray[Any]

IN_PROCESS: Final = "in process"
EXECUTE: Final = "execute (socket)"
BURST: Final = "burst (shared memory)"


@dataclass
class DemoRoute:
    """A way to execute a network, and its measurements.

    Attributes:
        name: the name to print.
        execute: returns the scores of one input; they may be overwritten by the next call.
        durations_ns: nanoseconds of each execution, from input array to scores.
        driver_us: the driver's own durations, if they are measured.
        found: the digit found for each input of the latest round.
    """

    name: str
    execute: Callable[[Array], Array]
    durations_ns: list[int] = field(default_factory=list)
    driver_us: list[int] = field(default_factory=list)
    found: list[int] = field(default_factory=list)

    def run_round(self, inputs: Array) -> None:
        """Execute every input once."""
        self.found.clear()
        for one in inputs:
            start = perf_counter_ns()
            scores = self.execute(one)
            self.durations_ns.append(perf_counter_ns() - start)
            self.found.append(int(scores.argmax()))


@contextmanager
def open_routes(model: Model, device: nnburst.Device, like: Array) -> Iterator[list[DemoRoute]]:
    """The three routes of `model`; `like` is any input, for its shape and type."""
    preference = nnburst.ExecutionPreference.SUSTAINED_SPEED
    prepared = device.prepare(model, preference=preference, bursts=False)
    with _in_process(model, like) as local, prepared, prepared.open_burst() as burst:
        bound = burst.bind(measure=True)
        driver_us: list[int] = []

        def by_burst(one: Array) -> Array:
            bound.inputs[0][...] = one
            driver_us.append(bound.run().timing.time_in_driver)
            return bound.outputs[0]

        yield [
            DemoRoute(IN_PROCESS, local),
            DemoRoute(EXECUTE, lambda one: prepared.execute([one]).outputs[0]),
            DemoRoute(BURST, by_burst, driver_us=driver_us),
        ]


@contextmanager
def _in_process(model: Model, like: Array) -> Iterator[Callable[[Array], Array]]:
    """Run the reference executor in this process: no queue, no socket, no isolation."""
    image, scores = np.zeros_like(like), np.zeros((1, 10), like.dtype)
    prepared = ReferenceExecutor().prepare(model, [])
    execution = prepared.bind([_argument(image)], [_argument(scores)])

    def execute(one: Array) -> Array:
        image[...] = one
        execution.run()
        return scores

    try:
        yield execute
    finally:
        execution.close()
        prepared.close()


def _argument(array: Array) -> Argument:
    return Argument(array.reshape(-1).view(np.uint8), array.shape)


# -- nnburst demo digits ---------------------------------------------------------------------------
# It classifies images that the network was not trained on, in float32 and in 8 bits, by three routes;
# then it kills its own driver, shows what the client sees, and goes on with a new one.


_EXECUTOR: Final = "reference"


def recognise(json_path: Path | None, rounds: int) -> int:
    """Classify, compare, kill, recover; 1 if a route disagrees or too few digits are right.

    Args:
        json_path: where the figures go; None for nowhere.
        rounds: how often every image is classified.
    """
    split = load_split()
    with text_for_people(json_path):
        with nnburst.launch(_EXECUTOR) as device:
            networks = [_classify(device, p, split, rounds) for p in Precision]
        _show_digits(networks, len(split.labels))
        death = _die_and_recover(split)
    write_json(json_path, {"images": len(split.labels), "networks": networks, "death": death})
    right = all(n["accuracy"] >= 0.96 and n["routes_agree"] for n in networks)
    return 0 if right and death["recovered"] else 1


def _classify(
    device: nnburst.Device, precision: Precision, split: Split, rounds: int
) -> dict[str, Any]:
    """The figures of one network by each route; the routes take turns, round by round."""
    inputs = encode(split.images, precision)
    with open_routes(build_network(precision), device, inputs[0]) as routes:
        total = rounds * len(routes) * len(inputs)
        with progress(f"{precision.value}: executing {total} times", total) as advance:
            for _ in range(rounds):
                for route in routes:
                    route.run_round(inputs)
                    advance(len(inputs))
        found = {route.name: route.found for route in routes}
        return {
            "precision": precision.value,
            "accuracy": float((np.array(found[BURST]) == split.labels).mean()),
            "routes_agree": all(digits == found[IN_PROCESS] for digits in found.values()),
            "executions_per_route": rounds * len(inputs),
            "routes": [_route_figures(route) for route in routes],
        }


def _route_figures(route: DemoRoute) -> dict[str, Any]:
    median, p99 = np.percentile(route.durations_ns, [50, 99])
    figures = {"name": route.name, "median_ns": float(median), "p99_ns": float(p99)}
    if route.driver_us:
        figures["driver_median_us"] = float(np.median(route.driver_us))
    return figures


def _show_digits(networks: list[dict[str, Any]], images: int) -> None:
    for network in networks:
        table(
            f"{network['precision']}: {network['accuracy']:.1%} of {images} unseen digits right,"
            f" {network['executions_per_route']} executions by each route",
            ["route", "median µs", "p99 µs", "driver's own µs"],
            [
                [
                    route["name"],
                    microseconds(route["median_ns"]),
                    microseconds(route["p99_ns"]),
                    f"{route['driver_median_us']:.0f}" if "driver_median_us" in route else "",
                ]
                for route in network["routes"]
            ],
        )


def _die_and_recover(split: Split) -> dict[str, Any]:
    """Kill a driver in the middle of its work, and start again."""
    model, inputs = build_network(Precision.QUANT8), encode(split.images, Precision.QUANT8)
    with nnburst.launch(_EXECUTOR) as device, device.prepare(model) as prepared:
        burst = prepared.open_burst()
        burst.execute([inputs[0]])
        start = perf_counter()
        os.kill(device.pid, signal.SIGKILL)
        try:
            while True:
                burst.execute([inputs[0]])
        except nnburst.DeadObject as error:
            noticed = perf_counter() - start
            print(f"killed the driver; after {noticed * 1e3:.1f} ms the client sees\n  {error}")
            message = str(error)
    with (
        nnburst.launch(_EXECUTOR) as device,
        device.prepare(model) as prepared,
        prepared.open_burst() as burst,
    ):
        digit = int(burst.execute([inputs[0]]).outputs[0].argmax())
    recovered = perf_counter() - start
    right = digit == int(split.labels[0])
    print(f"a new driver answers {recovered * 1e3:.0f} ms after the kill: a {digit}")
    return {
        "message": message,
        "noticed_ms": noticed * 1e3,
        "recovered_ms": recovered * 1e3,
        "recovered": right,
    }


# -- nnburst demo face -----------------------------------------------------------------------------


#: Least overlap (intersection over union) of a found box with the box that a person marked.
_ENOUGH: Final = 0.5


def find(json_path: Path | None, picture: Path | None, rounds: int) -> int:
    """Find faces; 1 if the known photographs give anything but the faces that are in them.

    Args:
        json_path: where the figures go; None for nowhere.
        picture: a picture of the user's; None for the known photographs.
        rounds: number of executions for each picture.
    """
    network = nnburst.load(find_network())
    known = {find_photograph(name): box for name, box in PHOTOGRAPHS.items()} if not picture else {}
    with (
        text_for_people(json_path),
        nnburst.launch("litert") as device,
        device.prepare(network) as prepared,
        prepared.open_burst() as burst,
    ):
        request = burst.bind()
        found = [_look(request, path, rounds) for path in known or [picture] if path]
        for figures, marked in zip(found, known.values(), strict=False):
            figures["right"] = _is_right(figures["faces"], marked)
        _show_faces(found)
    write_json(json_path, {"photographs": found})
    return 0 if all(figures.get("right", True) for figures in found) else 1


def _look(request: BoundRequest, path: Path, rounds: int) -> dict[str, Any]:
    view = View(path)
    executions, decodings = [], []
    faces: list[Face] = []
    for _ in range(rounds + 1):
        request.inputs[0][...] = view.pixels
        start = perf_counter_ns()
        request.run(timeout=10.0)
        done = perf_counter_ns()
        faces = view.faces(*request.outputs)
        decodings.append(perf_counter_ns() - done)
        executions.append(done - start)
    # In the first round the caches are cold.
    return {
        "photograph": path.name,
        "faces": [
            {"score": face.score, "box": face.box, "points": face.points.tolist()} for face in faces
        ],
        "execution": _duration_figures(executions[1:]),
        "decoding": _duration_figures(decodings[1:]),
    }


def _duration_figures(durations_ns: list[int]) -> dict[str, float]:
    median, p99, longest = np.percentile(durations_ns, [50, 99, 100])
    return {"median_ns": float(median), "p99_ns": float(p99), "max_ns": float(longest)}


def _is_right(faces: list[dict[str, Any]], marked: Box | None) -> bool:
    """Whether exactly the marked face was found."""
    if marked is None:
        return not faces
    return len(faces) == 1 and overlap(faces[0]["box"], marked) > _ENOUGH


def _show_faces(found: list[dict[str, Any]]) -> None:
    for figures in found:
        name = figures["photograph"]
        for face in figures["faces"]:
            left, top, right, bottom = (round(edge) for edge in face["box"])
            print(
                f"{name}: a face from ({left}, {top}) to ({right}, {bottom}),"
                f" score {face['score']:.3f}"
            )
        if not figures["faces"]:
            print(f"{name}: no face")
        if not figures.get("right", True):
            print(f"{name}: that is not what a person sees in it")
    table(
        "latency of each photograph",
        ["photograph", "execution: median µs", "p99 µs", "max µs", "decoding: median µs"],
        [
            [
                figures["photograph"],
                *(microseconds(value) for value in figures["execution"].values()),
                microseconds(figures["decoding"]["median_ns"]),
            ]
            for figures in found
        ],
    )
