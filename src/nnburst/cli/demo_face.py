"""`nnburst demo face`: find the face in a photograph, if it shows one."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

import numpy as np

import nnburst
from nnburst.cli.output import microseconds, table, text_for_people, write_json
from nnburst.client.burst.bound_request import BoundRequest
from nnburst.demo.faces import (
    PHOTOGRAPHS,
    Box,
    Face,
    View,
    find_network,
    find_photograph,
    overlap,
)

#: What is found must share so much with what a person marked.
_ENOUGH: Final = 0.5


def find(json_path: Path | None, picture: Path | None, rounds: int) -> int:
    """Find faces; 1 if the known photographs give anything but the faces that are in them.

    Args:
        json_path: where the figures go; None for nowhere.
        picture: one of the user's own; None for the known ones.
        rounds: how often each is executed.
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
        _show(found)
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
    # The first round finds nothing in the caches.
    return {
        "photograph": path.name,
        "faces": [
            {"score": face.score, "box": face.box, "points": face.points.tolist()} for face in faces
        ],
        "execution": _figures(executions[1:]),
        "decoding": _figures(decodings[1:]),
    }


def _figures(durations_ns: list[int]) -> dict[str, float]:
    median, p99, longest = np.percentile(durations_ns, [50, 99, 100])
    return {"median_ns": float(median), "p99_ns": float(p99), "max_ns": float(longest)}


def _is_right(faces: list[dict[str, Any]], marked: Box | None) -> bool:
    """Whether exactly the marked face was found."""
    if marked is None:
        return not faces
    return len(faces) == 1 and overlap(faces[0]["box"], marked) > _ENOUGH


def _show(found: list[dict[str, Any]]) -> None:
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
