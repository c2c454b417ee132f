"""`nnburst demo voice`: mark where a sound has speech, one execution for each hop of 32 ms.

The network is a float32 one with an LSTM, whose state stays in the pools from one execution to the next.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

import numpy as np

import nnburst
from nnburst.cli.demo_hops import in_time, part_figures, show_parts
from nnburst.cli.output import text_for_people, write_json
from nnburst.demo.speech import Clip, read_clip, shipped_clip
from nnburst.demo.voice import (
    THRESHOLD,
    VOICE_HOP_SECONDS,
    Frames,
    build_voice_network,
    find_voice_network,
    segments,
    voice_golden,
    voice_hops,
)

#: What engines may differ by: they add in another order.
_TOLERANCE: Final = 1e-4
_WARM_UP: Final = 30
_PARTS: Final = ("frame", "execution")
#: Characters of the picture of probabilities, from 0 to 1.
_LEVELS: Final = " ▁▂▃▄▅▆▇█"
_COLUMNS: Final = 87


def mark(json_path: Path | None, clip_path: Path | None, *, real_time: bool, executor: str) -> int:
    """Mark the speech of a clip; 1 if the shipped one does not give what its golden outputs are.

    Args:
        json_path: where the figures go; None for nowhere.
        clip_path: a .wav file at 16 kHz, 16 bits, one channel; None for the one that is shipped.
        real_time: whether hops come every 32 ms, as from a microphone, or one after the other.
        executor: of the driver.
    """
    content = find_voice_network().read_bytes()
    clip = shipped_clip() if clip_path is None else read_clip(clip_path)
    with text_for_people(json_path):
        figures = _mark(content, clip, executor, real_time=real_time)
        if clip_path is None:
            figures["golden"] = _beside_golden(content, figures["probabilities"])
        _show(clip, figures)
    write_json(json_path, figures)
    return 0 if clip_path is not None or figures["golden"]["right"] else 1


def _mark(content: bytes, clip: Clip, executor: str, *, real_time: bool) -> dict[str, Any]:
    network = build_voice_network(content)
    probabilities: list[float] = []
    durations_ns: list[tuple[int, int]] = []  # of `_PARTS`
    with (
        nnburst.launch(executor) as device,
        device.prepare(network) as prepared,
        prepared.open_burst() as burst,
    ):
        stream = nnburst.StatefulBurst(burst, network.states)
        for _ in range(_WARM_UP):
            stream.run()
        stream.reset()
        frames, hops = Frames(), list(voice_hops(clip.samples))
        title = f"{len(hops) * VOICE_HOP_SECONDS:.2f} s of sound"
        for hop in in_time(title, hops, VOICE_HOP_SECONDS, real_time=real_time):
            start = perf_counter_ns()
            stream.inputs[0][...] = frames.frame(hop)
            ready = perf_counter_ns()
            stream.run(timeout=10.0)
            durations_ns.append((ready - start, perf_counter_ns() - ready))
            probabilities.append(float(stream.outputs[0][0, 0]))
    return {
        "executor": executor,
        "real_time": real_time,
        "hops": len(hops),
        "spoken": [phrase._asdict() for phrase in clip.phrases],
        "probabilities": probabilities,
        "segments": [segment._asdict() for segment in segments(probabilities)],
        **part_figures(_PARTS, durations_ns),
    }


def _beside_golden(content: bytes, probabilities: list[float]) -> dict[str, Any]:
    """How far the probabilities are from those that the authors' file gives by another engine."""
    golden = voice_golden()
    found, expected = np.array(probabilities), np.array(golden.probabilities)
    largest = float(np.abs(found - expected).max())
    differing = int(((found > THRESHOLD) != (expected > THRESHOLD)).sum())
    return {
        "engine": golden.engine,
        "same_network": golden.is_of(content),
        "largest_difference": largest,
        "differing_decisions": differing,
        "right": largest <= _TOLERANCE and differing == 0,
    }


def _show(clip: Clip, figures: dict[str, Any]) -> None:
    for phrase in clip.phrases:
        print(f"  {phrase.start:.2f} s to {phrase.end:.2f} s is spoken: {phrase.text}")
    for segment in figures["segments"]:
        print(f"speech from {segment['start']:.3f} s to {segment['end']:.3f} s")
    if not figures["segments"]:
        print("no speech")
    _draw(figures["probabilities"])
    if "golden" in figures:
        golden = figures["golden"]
        beside = (
            f"{golden['largest_difference']:.2g} from {golden['engine']} at most, expected"
            f" {_TOLERANCE:g}; {golden['differing_decisions']} decisions differ"
        )
        if not golden["same_network"]:
            beside += "; the weights are others than those of the golden outputs"
        print(beside)
    title = f"{figures['hops']} hops of 32 ms, one execution each ({figures['executor']})"
    show_parts(title, _PARTS, figures)


def _draw(probabilities: list[float]) -> None:
    """The probabilities as one line of bars."""
    if not probabilities:
        return
    each = -(-len(probabilities) // _COLUMNS)
    tops = [max(probabilities[at : at + each]) for at in range(0, len(probabilities), each)]
    print("".join(_LEVELS[round(top * (len(_LEVELS) - 1))] for top in tops))
