"""`nnburst demo noise`: take the noise out of a sound, two executions for each hop of 8 ms.

Two networks with LSTMs work in a row; the state of each stays in its burst's pools.
"""

from __future__ import annotations

import wave
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import nnburst
from nnburst.cli.demo_hops import in_time, part_figures, show_parts
from nnburst.cli.output import text_for_people, write_json
from nnburst.demo.noise import (
    NOISE_DELAY,
    NOISE_HOP,
    NOISE_HOP_SECONDS,
    NoiseWindows,
    load_noise_networks,
    noise_golden,
    noise_hops,
    signal_to_noise,
    with_noise,
)
from nnburst.demo.speech import RATE, read_clip, shipped_clip

#: The shipped clip is so much louder than the noise that it gets, in decibels, and must be so much after.
_BEFORE: Final = 5.0
_GAIN: Final = 6.0
#: What engines may differ by: they add in another order.
_TOLERANCE: Final = 1e-4
_WARM_UP: Final = 30
_PARTS: Final = ("transform", "mask", "samples", "whole hop")

_Samples = npt.NDArray[np.int16]


def suppress(
    json_path: Path | None,
    clip_path: Path | None,
    output: Path | None,
    *,
    real_time: bool,
    executor: str,
) -> int:
    """Take the noise out; 1 if the shipped clip does not become what its golden outputs are.

    Args:
        json_path: where the figures go; None for nowhere.
        clip_path: a .wav file at 16 kHz, 16 bits, one channel; None for the shipped one with a hiss.
        output: where the result goes as a .wav file; None for nowhere.
        real_time: whether hops come every 8 ms, as from a microphone, or one after the other.
        executor: of the driver.
    """
    if clip_path is None:
        clean = shipped_clip().samples
        heard = with_noise(clean, _BEFORE)
    else:
        clean, heard = None, read_clip(clip_path).samples
    with text_for_people(json_path):
        found, figures = _suppress(heard, executor, real_time=real_time)
        if clean is not None:
            figures |= _beside_clean(clean, heard, found)
            figures["golden"] = _beside_golden(found)
        _show(figures)
        if output is not None:
            _write(output, found[NOISE_DELAY:])
    write_json(json_path, figures)
    if clean is None:
        return 0
    gained = figures["after_db"] - figures["before_db"]
    return 0 if figures["golden"]["right"] and gained >= _GAIN else 1


def _suppress(
    heard: _Samples, executor: str, *, real_time: bool
) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
    """What is left of a sound, as far behind it as `NOISE_DELAY`, and how long every hop takes."""
    first, second = load_noise_networks()
    with (
        nnburst.launch(executor) as device,
        device.prepare(first) as masking,
        device.prepare(second) as sampling,
        masking.open_burst() as mask_burst,
        sampling.open_burst() as sample_burst,
    ):
        mask = nnburst.StatefulBurst(mask_burst, first.states)
        samples = nnburst.StatefulBurst(sample_burst, second.states)
        for stream in (mask, samples):
            for _ in range(_WARM_UP):
                stream.run()
            stream.reset()
        chain, hops = _Chain(mask, samples), list(noise_hops(heard))
        title = f"{len(hops) * NOISE_HOP_SECONDS:.2f} s of sound"
        coming = in_time(title, hops, NOISE_HOP_SECONDS, real_time=real_time)
        left = [chain.hear(hop) for hop in coming]
    found = np.concatenate([*left, np.zeros(0, np.float32)])
    figures: dict[str, Any] = {
        "executor": executor,
        "real_time": real_time,
        "hops": len(hops),
        "level_before": _level(heard.astype(np.float64) / 32768),
        "level_after": _level(found[NOISE_DELAY:]),
        **part_figures(_PARTS, chain.durations_ns),
    }
    return found, figures


class _Chain:
    """Everything that happens to a hop.

    Attributes:
        durations_ns: of each hop: the transform there and back, both executions, the whole.
    """

    def __init__(self, mask: nnburst.StatefulBurst, samples: nnburst.StatefulBurst) -> None:
        self._mask = mask
        self._samples = samples
        self._windows = NoiseWindows()
        self.durations_ns: list[tuple[int, ...]] = []

    def hear(self, hop: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The hop that is done now."""
        began = perf_counter_ns()
        self._mask.inputs[0][...] = self._windows.magnitudes(hop)
        first = perf_counter_ns()
        self._mask.run(timeout=10.0)
        masked = perf_counter_ns()
        self._samples.inputs[0][...] = self._windows.masked(self._mask.outputs[0])
        second = perf_counter_ns()
        self._samples.run(timeout=10.0)
        sampled = perf_counter_ns()
        done = self._windows.hop(self._samples.outputs[0])
        end = perf_counter_ns()
        executions = masked - first, sampled - second
        self.durations_ns.append((end - began - sum(executions), *executions, end - began))
        return done


def _level(samples: npt.NDArray[Any]) -> float:
    """Of the quietest tenth of the hops: decibels below the loudest possible sound."""
    hops = samples[: len(samples) // NOISE_HOP * NOISE_HOP].reshape(-1, NOISE_HOP)
    if not len(hops):
        return 0.0
    quiet = np.percentile(np.sqrt(np.mean(hops.astype(np.float64) ** 2, axis=1)), 10)
    return float(20 * np.log10(max(quiet, 1e-6)))


def _beside_clean(
    clean: _Samples, heard: _Samples, found: npt.NDArray[np.float32]
) -> dict[str, float]:
    after = found[NOISE_DELAY:]
    return {
        "before_db": signal_to_noise(clean[: len(after)], heard[: len(after)]),
        "after_db": signal_to_noise(clean[: len(after)], after),
    }


def _beside_golden(found: npt.NDArray[np.float32]) -> dict[str, Any]:
    """How far the level of each hop is from what the authors' files give by another engine."""
    golden = noise_golden()
    levels = np.sqrt(np.mean(found.reshape(-1, NOISE_HOP).astype(np.float64) ** 2, axis=1))
    largest = float(np.abs(levels - golden.levels).max())
    return {
        "engine": golden.engine,
        "same_networks": golden.is_of_installed(),
        "largest_difference": largest,
        "right": largest <= _TOLERANCE,
    }


def _show(figures: dict[str, Any]) -> None:
    if "golden" in figures:
        print(
            f"speech is {figures['before_db']:.1f} dB louder than noise before,"
            f" {figures['after_db']:.1f} dB after"
        )
    print(
        f"the quietest tenth is at {figures['level_before']:.1f} dB before,"
        f" {figures['level_after']:.1f} dB after"
    )
    if "golden" in figures:
        golden = figures["golden"]
        others = "" if golden["same_networks"] else "; the weights are others than those of it"
        print(
            f"levels of hops are {golden['largest_difference']:.2g} from {golden['engine']} at most,"
            f" expected {_TOLERANCE:g}{others}"
        )
    title = f"{figures['hops']} hops of 8 ms, two executions each ({figures['executor']})"
    show_parts(title, _PARTS, figures)


def _write(path: Path, samples: npt.NDArray[np.float32]) -> None:
    stored = np.clip(np.round(samples.astype(np.float64) * 32768), -32768, 32767)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(stored.astype("<i2").tobytes())
    print(f"wrote {path}")
